# SPDX-License-Identifier: Apache-2.0
"""What is attached to the host's root cgroup while a slice runs: nothing, two empty programs, or the agent."""

import contextlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from rig.agent import Agent  # noqa: E402  pylint: disable=wrong-import-position
from rig.process import Process  # noqa: E402  pylint: disable=wrong-import-position


class States:
    def __init__(self, agent, tools):
        self._agent = agent
        self._cost = tools / "bench" / "inferwire-program-cost"
        self._baseline = tools / "skeletons" / "inferwire_bench_skeletons" / "baseline.bpf.o"

    @contextlib.contextmanager
    def hold(self, name):
        """Yields the agent in the state "agent", else None."""
        if name == "none":
            yield None
        elif name == "agent":
            with Agent(self._agent) as agent:
                yield agent
        else:
            with Process([self._cost, "hold", "--baseline", self._baseline, "--set", name]):
                yield None
