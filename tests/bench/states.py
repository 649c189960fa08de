# SPDX-License-Identifier: Apache-2.0
"""What is attached to the host's root cgroup while a slice runs: nothing, two empty programs, the agent's programs without
its process, with or without those that are there only while connections are followed, or the agent."""

import contextlib
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from rig.agent import Agent  # noqa: E402  pylint: disable=wrong-import-position
from rig.process import Process, RigError, wait_for  # noqa: E402  pylint: disable=wrong-import-position


def agents_programs(agent):
    """(programs that are always attached, those that are attached while connections are followed) of this kernel."""
    report = json.loads(subprocess.run([agent, "doctor", "--json"], stdout=subprocess.PIPE, check=True, text=True).stdout)
    used = [hook for hook in report["hooks"] if hook["attaches"] and not hook["program"].startswith("iter__")]
    return [hook["program"] for hook in used if not hook["while_followed"]], [hook["program"] for hook in used]


class Switch:
    """Attaches programs at once: "none", "empty", "base"; "idle" is what the agent attaches while it follows no connection,
    "followed" what it attaches while it does."""

    def __init__(self, tools, objects):
        self._process = Process(
            [tools / "bench" / "inferwire-program-cost", "hold", "--baseline",
             tools / "skeletons" / "inferwire_bench_skeletons" / "baseline.bpf.o",
             *(word for name, file in objects.items() for word in ("--object", f"{name}={file}"))],
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
        self._agent, self._tools = agent, tools
        always, all_of_them = agents_programs(agent)
        self.objects = {"idle": f"{program_object}:{','.join(always)}", "followed": f"{program_object}:{','.join(all_of_them)}"}

    def switch(self):
        return Switch(self._tools, self.objects)

    @contextlib.contextmanager
    def hold(self, name):
        """Yields the agent in the state "agent", else None."""
        if name == "agent":
            # Nothing is followed after its self-check: what serves streams only is taken off at once.
            with Agent(self._agent, flags=["--idle-detach", "0ms"]) as agent:
                yield agent
        elif name == "none":
            yield None
        else:
            with self.switch() as switch:
                switch.to(name)
                yield None
