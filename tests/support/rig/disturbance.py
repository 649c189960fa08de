# SPDX-License-Identifier: Apache-2.0
"""Kernel events that a tracing program may not have been shown.

A tracepoint fires in whatever thread the CPU has when a packet or a timer comes. Kernels of some virtual machines run no tracing
program in the threads of process 1, which there is the machine's keeper: what fires in these is counted by the kernel, and seen by no
program. How many such events there were, ftrace knows: it is not a program.
"""

import contextlib
import os
import pathlib
import re
import tempfile

from .process import run, wait_for

EVENTS = ("tcp/tcp_retransmit_skb", "tcp/tcp_retransmit_synack", "tcp/tcp_send_reset", "tcp/tcp_receive_reset", "sock/inet_sock_set_state",
          "tcp/tcp_rcv_space_adjust")


class Disturbance:
    """Counts, as a context manager, the events in threads of process 1; 0 where ftrace cannot be had."""

    def __init__(self):
        self._instance = self._mount = None

    def __enter__(self):
        with contextlib.suppress(OSError):
            self._begin()
        return self

    def _begin(self):
        self._mount = pathlib.Path(tempfile.mkdtemp(prefix="iwrig-trace-"))
        if run(["mount", "-t", "tracefs", "tracefs", self._mount], check=False).returncode != 0:
            return
        instance = self._mount / "instances" / self._mount.name
        instance.mkdir(exist_ok=True)
        self._instance = instance
        (instance / "options" / "event-fork").write_text("1")
        (instance / "set_event_pid").write_text(" ".join(os.listdir("/proc/1/task")))
        for event in EVENTS:
            with contextlib.suppress(OSError):
                (instance / "events" / event / "enable").write_text("1")

    def events(self):
        """How many so far."""
        if self._instance is None:
            return 0
        return sum(int(number) for stats in self._instance.glob("per_cpu/cpu*/stats")
                   for number in re.findall(r"^(?:entries|overrun): (\d+)", stats.read_text(), re.MULTILINE))

    def _removed(self):
        # A process that another thread is just starting has all our files open until it becomes another program.
        with contextlib.suppress(OSError):
            self._instance.rmdir()
            return True
        return False

    def __exit__(self, *_):
        if self._instance is not None:
            wait_for(self._removed, 10, "the trace instance to be free", every_s=0.05)
        if self._mount is not None:
            run(["umount", self._mount], check=False)
            self._mount.rmdir()
