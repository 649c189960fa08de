# SPDX-License-Identifier: Apache-2.0
"""Where scenarios play: namespaces, processes and the agent, all gone afterwards; and how what the agent says is laid
beside what the kernel counted in the same window.

A scenario is a function `play(stage)` that returns a list of rows. It drives real traffic in namespaces of its own (or,
with place `host`, over loopback in the machine's own) between `stage.before()` and `stage.after()`.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from rig.agent import Agent  # noqa: E402
from rig.logs import read_lines  # noqa: E402
from rig.netns import Netns  # noqa: E402
from rig.pcap import Capture  # noqa: E402
from rig.process import RigError, wait_for  # noqa: E402
from rig.veth import Veth  # noqa: E402
from rig.wire import Wire  # noqa: E402

import kernel  # noqa: E402
from actor import Actor  # noqa: E402
from metrics import Change, Metrics  # noqa: E402

PARTIAL_MS = 200       # how often the agent of a scenario reads the kernel's sums
PUBLISHED_AFTER_S = 1.0  # ... and how often it publishes
PLACES = ("apart", "inside", "host")
_numbers = itertools.count(1)


def over_loopback(play):
    """Marks a scenario that needs no more than a loopback device: it can be played in the machine's own namespace."""
    play.over_loopback = True
    return play


def alone(play):
    """Marks a scenario that others would disturb: it measures times, or what is nobody's."""
    play.alone = True
    return play


@dataclasses.dataclass
class Row:
    """One comparison. `rule`: "=", "<=" (ours at most the truth), "within" (`slack` of it, or between two truths)."""
    what: str
    ours: object
    truth: object
    source: str  # where the truth is from
    rule: str = "="
    slack: float = 0

    def holds(self):
        if self.rule == "=":
            return self.ours == self.truth
        if self.rule == "<=":
            return self.ours <= self.truth
        if isinstance(self.truth, (list, tuple)):
            return self.truth[0] <= self.ours <= self.truth[1]
        return abs(self.ours - self.truth) <= self.slack

    def as_json(self):
        return {**dataclasses.asdict(self), "holds": self.holds()}


class Stage:
    """One scenario's: `with Stage(...) as stage`."""

    def __init__(self, *, seed=1, repetitions=1, long=False, place="apart", uid=None, quiet=True, flags=(), agent=True):
        self.seed, self.repetitions, self.long, self.place, self.uid = seed, repetitions, long, place, uid
        self.draw = random.Random(seed)
        self.quiet, self._flags, self._with_agent = quiet, flags, agent
        self._stack = contextlib.ExitStack()
        self._home = None  # the namespace in which the agent is to run
        self._agent = None
        self._before = None
        self._names = set()
        self._tag = f"{os.getpid() % 46656:x}{next(_numbers)}"
        self.folder = pathlib.Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="iwtcp-")))
        self.folder.chmod(0o755)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return self._stack.__exit__(*exception)

    # ---- What is on it ----

    def namespace(self):
        """A namespace with a loopback device and nothing else; the machine's own with place `host`."""
        if self.place == "host":
            return None
        return self._live_in(self._stack.enter_context(Netns("tcp")))

    def veth(self):
        veth = self._stack.enter_context(Veth())
        self._live_in(veth.b)
        return veth

    def wire(self, **options):
        wire = self._stack.enter_context(Wire(seed=self.seed, **options))
        self._live_in(wire.b)
        return wire

    def _live_in(self, netns):
        if self.place == "inside" and self._home is None:
            if self._agent:
                raise RigError("the agent runs already, elsewhere")
            self._home = netns
        return netns

    def name(self, what):
        """A process name that no other run has."""
        name = f"{what}-{self._tag}"
        if len(name) > 15 or name in self._names:
            raise RigError(f"{name} is too long for a process's name, or has one already")
        self._names.add(name)
        return name

    def actor(self, what, netns=None, **options):
        one = Actor(self.name(what), netns, **options)
        self._stack.callback(one.close)
        return one

    def capture(self, netns, interface, expression):
        return self._stack.enter_context(Capture(interface, netns=netns, expression=expression))

    def enter(self, context):
        return self._stack.enter_context(context)

    # ---- The agent ----

    @property
    def agent(self):
        if self._agent is None:
            (self.folder / "agent").mkdir()
            self._agent = self._stack.enter_context(Agent(
                folder=self.folder / "agent", netns=self._home, uid=self.uid,
                flags=["--partial-interval", f"{PARTIAL_MS}ms", "--log-level", "info" if self.quiet else "debug", *self._flags]))
        return self._agent

    def scrape(self):
        return Metrics(self.agent.get() if self._with_agent else "")

    def records(self, kind):
        return [line for line in read_lines(self.agent.records_path) if line.get("type") == kind] if self._with_agent else []

    # ---- A window ----

    def before(self, **namespaces):
        """Begins a window. `namespaces`: name -> an actor that lives in it, whose counters are wanted."""
        self._windows = namespaces
        self.scraped = self.scrape()
        self._before = (self.scraped, {name: kernel.counters(one.pid) for name, one in namespaces.items()})

    def window(self, **namespaces):
        """The window goes on with other processes of the same namespaces."""
        self._windows = namespaces

    def after(self, timeout_s=30):
        """Ends it, once the kernel's counters stand still and the agent has had its interval.
        Returns (what the agent added, {name: what the kernel added})."""
        deadline = time.monotonic() + timeout_s
        while True:
            first = {name: kernel.counters(one.pid) for name, one in self._windows.items()}
            time.sleep(PARTIAL_MS / 1000 + PUBLISHED_AFTER_S + 0.4)
            last = {name: kernel.counters(one.pid) for name, one in self._windows.items()}
            if all(self._same(first[name], last[name]) for name in last):
                break
            if time.monotonic() > deadline:
                raise RigError("the kernel's counters do not stand still")
        scrape = self.scrape()  # its own connection is in neither
        before, counters = self._before
        added = {name: _subtracted(last[name], counters[name]) for name in last}
        return Change(before, scrape), added

    def _same(self, one, other):
        compared = _COMPARED_ON_HOST if self.place == "host" else _COMPARED
        return all(other[key] == value for key, value in one.items() if compared.search(key))

    @staticmethod
    def wait_for(condition, what, timeout_s=10):
        return wait_for(condition, timeout_s, what)

    @staticmethod
    def now():
        return time.monotonic()

    @staticmethod
    def sleep(seconds):
        """Where the scenario is about time itself."""
        time.sleep(seconds)


# What scenarios compare with, by parts of the names: everything else also moves with traffic that is not theirs.
_COMPARED = re.compile("Retrans|Timeouts|LossProbes|Listen|ReqQ|Cookies|OutRsts|Reset|AttemptFails|Opens|Abort")
_COMPARED_ON_HOST = re.compile("Listen|ReqQ|Cookies")  # the rest moves there all the time


def _subtracted(after, before):
    result = type(after)()
    for key, value in after.items():
        result[key] = value - before.get(key, 0)
    return result


def dump(rows):
    return json.dumps([row.as_json() for row in rows])
