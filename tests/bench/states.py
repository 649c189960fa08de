# SPDX-License-Identifier: Apache-2.0
"""What is attached to the host's root cgroup while a slice runs: nothing, two empty programs, the agent's programs without
its process, or the agent."""

import contextlib
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from rig.agent import Agent  # noqa: E402  pylint: disable=wrong-import-position
from rig.process import Process, RigError, wait_for  # noqa: E402  pylint: disable=wrong-import-position


class Switch:
    """Attaches programs at once: "none", "empty", "base", or "programs" (those that the agent attaches)."""

    def __init__(self, tools, program_object):
        self._process = Process(
            [tools / "bench" / "inferwire-program-cost", "hold", "--baseline",
             tools / "skeletons" / "inferwire_bench_skeletons" / "baseline.bpf.o", "--object", f"programs={program_object}"],
            stdin=subprocess.PIPE)

    def to(self, name):
        """Returns when it is attached."""
        answers = len(self._process.lines)
        self._process.popen.stdin.write(name.encode() + b"\n")
        self._process.popen.stdin.flush()
        wait_for(lambda: len(self._process.lines) > answers or not self._process.alive(), 20, f"{name} to be attached", every_s=0.002)
        if not self._process.alive():
            raise RigError("the programs' holder ended:\n" + self._process.output())

    def close(self):
        self._process.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class States:
    def __init__(self, agent, tools, program_object):
        self._agent, self._tools, self._object = agent, tools, program_object

    def switch(self):
        return Switch(self._tools, self._object)

    @contextlib.contextmanager
    def hold(self, name):
        """Yields the agent in the state "agent", else None."""
        if name == "agent":
            with Agent(self._agent) as agent:
                yield agent
        elif name == "none":
            yield None
        else:
            with self.switch() as switch:
                switch.to(name)
                yield None
