# SPDX-License-Identifier: Apache-2.0
"""Network namespaces with names that no other run has, removed at the end whatever happens."""

import atexit
import itertools
import os

from .process import run

_PREFIX = "iwrig"
_numbers = itertools.count(1)
_live = set()


def _remove_all():
    for namespace in list(_live):
        namespace.remove()


atexit.register(_remove_all)


class Netns:
    """One network namespace, loopback up. Use as a context manager."""

    def __init__(self, purpose="ns"):
        self.name = f"{_PREFIX}-{os.getpid()}-{next(_numbers)}-{purpose}"
        run(["ip", "netns", "add", self.name])
        _live.add(self)
        self.run(["ip", "link", "set", "lo", "up"])

    def run(self, argv, **options):
        return run(argv, netns=self.name, **options)

    def sysctl(self, key, value):
        self.run(["sysctl", "-q", "-w", f"{key}={value}"])

    def remove(self):
        if self in _live:
            _live.discard(self)
            run(["ip", "netns", "delete", self.name], check=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


def remove_leftovers():
    """Removes namespaces of runs whose process is gone (a run that was killed with SIGKILL)."""
    listed = run(["ip", "netns", "list"], check=False).stdout.split("\n")
    for name in (line.split(" ")[0] for line in listed if line.startswith(_PREFIX + "-")):
        owner = name.split("-")[1]
        if owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            run(["ip", "netns", "delete", name], check=False)
