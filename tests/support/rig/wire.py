# SPDX-License-Identifier: Apache-2.0
"""The wire: two namespaces joined by a cable with faults (tests/support/wire)."""

import json
import os
import subprocess
import tempfile

from .build import binary
from .netns import Netns
from .process import Process

A_ADDRESS, B_ADDRESS = "10.77.0.1", "10.77.0.2"
A_ADDRESS6, B_ADDRESS6 = "fd77::1", "fd77::2"


class Wire:
    """Two fresh namespaces `a` and `b` and the cable between them.

    Keyword options are those of inferwire-wire with underscores; a list repeats the option:
    `congestion` names a TCP congestion control (default: the machine's).
    `Wire(delay_ms=10, loss="b2a:0.03", drop_nth=["b2a:5", "b2a:9"], drop_third_ack=True)`.
    """

    def __init__(self, *, log=True, control=False, congestion=None, **options):
        self._log_path = None
        self.a, self.b = Netns("a"), Netns("b")
        for end in (self.a, self.b) if congestion else ():
            end.sysctl("net.ipv4.tcp_congestion_control", congestion)
        argv = [binary("inferwire-wire"), "--a", self.a.name, "--b", self.b.name,
                "--a-addr", A_ADDRESS, "--b-addr", B_ADDRESS, "--a-addr", A_ADDRESS6, "--b-addr", B_ADDRESS6]
        if log:
            handle, self._log_path = tempfile.mkstemp(prefix="iwrig-wire-", suffix=".jsonl")
            os.close(handle)
            argv += ["--log", self._log_path]
        for key, value in options.items():
            flag = "--" + key.replace("_", "-")
            for one in value if isinstance(value, (list, tuple)) else [value]:
                argv += [flag] if one is True else [flag, str(one)]
        if control:
            argv.append("--control")
        try:
            self.process = Process(argv, stdin=subprocess.PIPE if control else None)
        except BaseException:
            self.close()
            raise

    def black_hole(self, on):
        self._command(f"black_hole {'on' if on else 'off'}")

    def set_delay_ms(self, delay_ms):
        """One way, in both directions, from now on."""
        self._command(f"delay_ms {delay_ms}")

    def _command(self, text):
        self.process.popen.stdin.write(text.encode() + b"\n")
        self.process.popen.stdin.flush()

    def log(self):
        """What was done to packets so far: a list of objects."""
        with open(self._log_path, encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    def close(self):
        status = None
        if getattr(self, "process", None) is not None:
            status = self.process.stop()
        self.a.remove()
        self.b.remove()
        if self._log_path:
            os.unlink(self._log_path)
            self._log_path = None
        return status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
