#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every record is exported or counted as lost, and what is lost in the ring buffer is missing from no counter.

The ring buffer has room for three records and is read once a second at most, while hundreds of requests end: most records
are lost. The figures must still be exact.
"""

import collections
import json
import os
import pathlib
import random
import re
import socket
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from rig import testing  # noqa: E402
from rig.agent import Agent  # noqa: E402
from rig.build import agent_binary  # noqa: E402
from rig.process import Process, run  # noqa: E402

FLOOD = str(pathlib.Path(__file__).with_name("flood.py"))
PARTIAL_INTERVAL_S = 1

# What each kind of request must be called, by both ends.
OUTCOMES = {"stream": "complete", "cut": "truncated_abrupt", "json": "complete", "get": "complete"}


def request(kind="stream", path="/v1/chat/completions", code=200, chunks=0, pause_ms=0, tokens=(0, 0)):
    return {"path": path, "kind": kind, "code": code, "chunks": chunks, "pause_ms": pause_ms,
            "output_tokens": tokens[0], "input_tokens": tokens[1]}


def make_plan(seed):
    """Connections with short requests of every kind, and some with one long stream, which ends amid the others."""
    draw = random.Random(seed)

    def short():
        kind = draw.choices(["stream", "json", "get"], [8, 2, 1])[0]
        if kind == "get":
            return request("get", "/health")
        tokens = (draw.randint(1, 200), draw.randint(1, 2000))
        if kind == "json":
            return request("json", draw.choice(["/v1/completions", "/v1/chat/completions"]), tokens=tokens)
        return request(path=draw.choice(["/v1/chat/completions", "/v1/completions"]), chunks=draw.randint(1, 12),
                       pause_ms=draw.choice([0, 0, 2]), tokens=tokens)

    connections = [[short() for _ in range(draw.randint(1, 30))] for _ in range(30)]
    for number, requests in enumerate(connections[:12]):
        if number < 4:
            requests.append(request("cut", chunks=draw.randint(1, 9)))
        elif number < 8:
            requests.insert(0, request("json", code=429))
        else:
            requests.insert(0, request(path="/v1/unknown/stream", chunks=3, tokens=(3, 3)))
    # Connections that carry nothing to follow.
    connections += [[request("get", "/health")] * count for count in (1, 3, 40)]
    # Seen by several readings of the open requests, then lost at their end.
    connections += [[request(chunks=draw.randint(30, 60), pause_ms=50, tokens=(60, 60)), *(short() for _ in range(8))]
                    for _ in range(12)]
    return connections


def is_llm(plan):
    return plan["path"].startswith("/v1/") and plan["path"] != "/v1/unknown/stream"


def route(plan):
    return plan["path"] if is_llm(plan) else "other"


class Metrics:
    """One scrape."""

    def __init__(self, text):
        self.samples = []
        for line in text.splitlines():
            found = re.match(r"(\w+)(?:\{(.*)\})? (\S+)$", line)
            if found:
                labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found.group(2) or ""))
                self.samples.append((found.group(1), labels, float(found.group(3))))

    def total(self, name, **labels):
        return sum(value for of, has, value in self.samples
                   if of == name and all(has.get(key) == wanted for key, wanted in labels.items()))

    def by(self, name, keys, **labels):
        """Sums by the values of `keys`."""
        sums = collections.Counter()
        for of, has, value in self.samples:
            if of == name and value and all(has.get(key) == wanted for key, wanted in labels.items()):
                sums[tuple(has[key] for key in keys)] += value
        return dict(sums)


def ask_status(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(b"status\n")
        answer = b""
        while got := client.recv(65536):
            answer += got
    return json.loads(answer)


class Flood:
    """Server, agent and client of one test; `run` returns when the client has all its answers."""

    def __init__(self, test, *flags, trace=False):
        self.folder = pathlib.Path(test.enterContext(tempfile.TemporaryDirectory()))
        self.names = {"server": f"iwrecs{os.getpid() % 100000}", "client": f"iwrecc{os.getpid() % 100000}"}
        self.server = test.enterContext(Process([sys.executable, FLOOD, "serve", self.names["server"]]))
        self.port = self.server.ready_line.split()[1]
        self.agent = test.enterContext(Agent(folder=self.folder, trace=trace, flags=["--ports", self.port, *flags]))

    def run(self, plan):
        path = self.folder / "plan.json"
        path.write_text(json.dumps(plan))
        done = run([sys.executable, FLOOD, "ask", self.names["client"], self.port, path], timeout_s=60)
        return int(done.stdout.split()[1])

    def metrics(self):
        return Metrics(self.agent.get())

    def workload(self, metrics, role):
        """What the agent calls this end: the name of its process, or of what contains the tests."""
        found = {labels["workload"] for name, labels, _ in metrics.samples
                 if name == "inferwire_requests_total" and labels["role"] == role and labels["port"] == self.port}
        return found.pop() if len(found) == 1 else self.names[role]


def await_value(read, wanted, timeout_s):
    """Calls `read` until it returns `wanted`; returns what it returned last."""
    deadline = time.monotonic() + timeout_s
    while (value := read()) != wanted and time.monotonic() < deadline:
        time.sleep(0.2)
    return value


class LossIsCounted(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root: loads kernel programs")
        if agent_binary() is None:
            raise unittest.SkipTest("inferwire is not built")

    def enterContext(self, manager):  # Python 3.11 has it
        value = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return value

    def expect_requests(self, flood, plan):
        """inferwire_requests_total of both ends, each request under its right name."""
        keys = ("role", "route", "code", "outcome")
        wanted = collections.Counter()
        for connection in plan:
            followed = False
            for one in connection:
                followed = followed or one["kind"] != "get"
                told = (str(one["code"]), OUTCOMES[one["kind"]])
                wanted[("server", route(one), *told)] += 1
                # What only asks for other routes is counted when it asks.
                wanted[("client", route(one), *(told if followed else ("", "")))] += 1
        counted = await_value(lambda: flood.metrics().by("inferwire_requests_total", keys, port=flood.port),
                              dict(wanted), 20)
        self.assertEqual(counted, dict(wanted))

    def expect_amounts(self, flood, plan, timeout_s):
        """Chunks and tokens of both ends."""
        requests = [one for connection in plan for one in connection if is_llm(one)]
        told = [one for one in requests if one["kind"] in ("stream", "json") and one["output_tokens"]]
        wanted = {name: {(role,): float(sum(values)) for role in ("server", "client")} for name, values in {
            "inferwire_output_chunks_total": [one["chunks"] for one in requests],
            "inferwire_output_tokens_total": [one["output_tokens"] for one in told],
            "inferwire_input_tokens_total": [one["input_tokens"] for one in told]}.items()}

        def read():
            metrics = flood.metrics()
            return {name: {(role,): metrics.total(name, role=role, workload=flood.workload(metrics, role))
                           for role in ("server", "client")} for name in wanted}

        self.assertEqual(await_value(read, wanted, timeout_s), wanted)
        return read, wanted

    def expect_every_record(self, flood):
        """Records = lines + lost. Other programs on this machine make requests too: best in a moment without any, else
        what was exported lies between a scrape before and one after."""
        status_of = {"seen": "seen_by_kernel", "lost": "lost_in_ring_buffer"}

        def scrape():
            metrics = flood.metrics()
            figures = {kind: {"seen": metrics.total("inferwire_records_total", kind=kind),
                              "lost": metrics.total("inferwire_records_lost_total", kind=kind, where="ring_buffer")}
                       for kind in ("final", "partial", "delivery")}
            return figures, {kind: of["seen"] - of["lost"] for kind, of in figures.items()}

        def read():
            before, exported = scrape()
            time.sleep(0.3)  # for what is counted in `before` to be in the files
            lines = {"final": len(flood.agent.records()), "delivery": len(flood.agent.trace())}
            status = ask_status(flood.folder / "agent.sock")
            time.sleep(1.2)  # /metrics shows what was published at most a second ago: this scrape is newer than `status`
            after, exported_after = scrape()
            for kind, count in lines.items():
                self.assertLessEqual(exported[kind], count, kind)
                self.assertLessEqual(count, exported_after[kind], kind)
            for kind in before:
                said = status["records"][kind]
                self.assertEqual(said["seen_by_kernel"], said["lost_in_ring_buffer"] + said["delivered"] + said["waiting"])
                for figure, name in status_of.items():
                    own = said["self_check"] if figure == "seen" else 0
                    waiting = said["waiting"] if figure == "seen" else 0
                    self.assertLessEqual(before[kind][figure], said[name] - own, (kind, figure))
                    self.assertLessEqual(said[name] - own - waiting, after[kind][figure], (kind, figure))
            return before == after, before, lines, status

        deadline = time.monotonic() + 8
        while not (state := read())[0] and time.monotonic() < deadline:
            pass
        quiet, figures, lines, status = state
        if quiet:
            for kind in ("final", "delivery"):
                self.assertEqual(figures[kind]["seen"], lines[kind] + figures[kind]["lost"], (kind, figures))
            for kind in ("final", "partial", "delivery"):
                said = status["records"][kind]
                self.assertEqual(said["waiting"], 0, said)
                self.assertEqual(said["seen_by_kernel"] - said["self_check"], figures[kind]["seen"])
                self.assertEqual(said["lost_in_ring_buffer"], figures[kind]["lost"])
        else:
            print("other programs kept making requests: figures were compared within bounds", file=sys.stderr)
        self.assertEqual(status["records"]["malformed"], 0)
        self.assertEqual(status["packet_path"]["counts_full"], 0)
        return figures, lines["final"], status

    def test_a_full_ring_buffer_costs_records_and_no_count(self):
        plan = make_plan(seed=20)
        flood = Flood(self, "--ringbuf-bytes", "4096", "--drain-interval", "1s", "--partial-interval", f"{PARTIAL_INTERVAL_S}s")
        requests = sum(map(len, plan))
        self.assertEqual(flood.run(plan), requests)

        self.expect_requests(flood, plan)
        # What was counted while a request was open comes off when its record was lost, some readings later.
        read, wanted = self.expect_amounts(flood, plan, timeout_s=15 * PARTIAL_INTERVAL_S)
        figures, lines, status = self.expect_every_record(flood)
        # Not an empty case: records were lost, others were not, every one that ended was made, and some of those that
        # were lost had been counted in part.
        self.assertGreater(lines, 0)
        self.assertGreater(status["requests"]["forgotten"], 0)
        self.assertGreater(figures["final"]["lost"], requests)
        followed = sum(one["kind"] in ("stream", "cut") or is_llm(one) for connection in plan for one in connection)
        self.assertGreaterEqual(figures["final"]["seen"], 2 * followed)
        self.assertGreaterEqual(status["packet_path"]["requests_finished"], 2 * followed)
        mine = [record for record in flood.agent.records()
                if flood.port in (record["local"].rsplit(":")[-1], record["remote"].rsplit(":")[-1])]
        self.assertLessEqual(len(mine), lines)
        self.assertEqual(len({(record["conn_id"], record["ordinal"], record["role"]) for record in mine}), len(mine))
        self.assertEqual(read(), wanted, "counters went on after the traffic had ended")

    def test_deliveries_that_are_traced_are_lines_or_lost_and_crowd_out_no_count(self):
        plan = make_plan(seed=22)[:20]
        flood = Flood(self, "--ringbuf-bytes", "4096", "--drain-interval", "50ms", "--partial-interval",
                      f"{PARTIAL_INTERVAL_S}s", trace=True)
        self.assertEqual(flood.run(plan), sum(map(len, plan)))
        self.expect_requests(flood, plan)
        self.expect_amounts(flood, plan, timeout_s=15 * PARTIAL_INTERVAL_S)
        figures, _, _ = self.expect_every_record(flood)
        self.assertGreater(figures["delivery"]["lost"], 0)
        self.assertGreater(figures["delivery"]["seen"], figures["delivery"]["lost"])

    def test_with_room_no_record_is_lost_and_each_is_a_line(self):
        plan = make_plan(seed=21)
        flood = Flood(self)
        self.assertEqual(flood.run(plan), sum(map(len, plan)))
        self.expect_requests(flood, plan)
        self.expect_amounts(flood, plan, timeout_s=10)
        figures, _, _ = self.expect_every_record(flood)
        self.assertEqual(figures["final"]["lost"], 0)
        self.assertEqual(figures["delivery"], {"seen": 0, "lost": 0})
        lines = collections.Counter(
            (record["role"], record["route"], record["code"], record["outcome"], record.get("chunks", 0))
            for record in flood.agent.records()
            if flood.port in (record["local"].rsplit(":")[-1], record["remote"].rsplit(":")[-1]))
        wanted = collections.Counter(
            (role, route(one), one["code"], OUTCOMES[one["kind"]], one["chunks"])
            for role in ("server", "client") for connection in plan for one in connection
            if is_llm(one) or one["kind"] == "stream")
        self.assertEqual(lines, wanted)


if __name__ == "__main__":
    testing.main()
