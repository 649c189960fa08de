# SPDX-License-Identifier: Apache-2.0
"""The test's end of a process that does with sockets what it is told (acts.py)."""

import json
import pathlib
import select
import subprocess

from rig.process import RigError, in_netns

_ACTS = pathlib.Path(__file__).with_name("acts.py")


class Actor:
    """`actor.connect(host=..., port=...)` does acts.connect() in the actor's process and returns its result;
    `actor.begin("connect", ...)` returns at once, and `actor.end()` has the result."""

    def __init__(self, name, netns=None, cgroup=None):
        self.name = name
        argv = in_netns(netns, ["/usr/bin/python3", str(_ACTS), name])
        if cgroup:
            argv = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(cgroup), *argv]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._busy = "start"
        self.end(30)

    @property
    def pid(self):
        return self._process.pid

    def begin(self, act, **arguments):
        if self._busy:
            raise RigError(f"{self.name} is still busy with {self._busy}")
        self._busy = act
        self._process.stdin.write(json.dumps({"act": act, "with": arguments}).encode() + b"\n")
        self._process.stdin.flush()

    def end(self, timeout_s=120):
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            raise RigError(f"{self.name} is not done with {self._busy} after {timeout_s} s")
        line = self._process.stdout.readline()
        if not line:
            raise RigError(f"{self.name} ended with {self._process.wait(5)} in {self._busy}")
        answer = json.loads(line)
        if "error" in answer:
            raise RigError(f"{self.name}: {answer['error']}")
        self._busy = None
        return answer["result"]

    def __getattr__(self, act):
        if act.startswith("_"):
            raise AttributeError(act)

        def do(**arguments):
            self.begin(act, **arguments)
            return self.end()
        return do

    def close(self):
        """Ends the process; its sockets close as the kernel closes them."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
