#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the demo and holds the agent's records against what the clients saw by their own clock."""

import collections
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from rig import testing  # noqa: E402
from rig.build import ROOT, agent_binary, binary  # noqa: E402
from rig.process import RigError, run, wait_for  # noqa: E402

DEMO = ROOT / "deploy" / "demo"
NEAR_STREAMS, FAR_STREAMS = 4, 1
WIRE_RTT_MS = 40
MOST_SECONDS = 40
WHAT_WAS_ASKED = {"method": "POST", "route": "/v1/chat/completions", "model": "inferwire-demo", "code": 200,
                  "outcome": "complete", "stream": True, "finish_reason": "length"}

# The clients' clock is read in JavaScript, after the event was parsed, in an event loop that four streams share: it is never
# early, and late by at most what the client says of its event loop and some ms more.
LATE_MS = 5.0
SAME_CLOCK_MS = 0.5  # the kernel's own times, from two sockets


def require_demo():
    testing.require_root()
    if not os.path.exists("/sys/kernel/btf/vmlinux"):
        raise unittest.SkipTest("this kernel has no BTF")
    if agent_binary() is None:
        raise unittest.SkipTest("inferwire is not built")
    if not (DEMO / "node_modules" / "openai").is_dir():
        raise unittest.SkipTest("npm packages of the demo are not installed: npm ci --prefix deploy/demo")
    for program in ("node", "nginx"):
        if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin") is None:
            raise unittest.SkipTest(f"{program} is not installed")


def demo_environment():
    environment = dict(os.environ, DEMO_AGENT=agent_binary())
    try:
        environment["DEMO_WIRE"] = binary("inferwire-wire")
    except RigError:
        pass  # the demo builds it
    return environment


def what_demos_leave():
    """Namespaces, folders and processes of demos."""
    namespaces = [name for name in run(["ip", "netns", "list"]).stdout.split() if name.startswith("inferwire-demo-")]
    folders = [str(path) for path in pathlib.Path("/tmp").glob("inferwire-demo.*")]
    processes = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue  # it has ended
        if "/tmp/inferwire-demo." in words or "deploy/demo/" in words or "inferwire-demo-" in words:
            processes.append(words)
    return namespaces + folders + processes


def milliseconds(nanoseconds):
    return nanoseconds / 1e6


def first_content_ns(record):
    """Of a client's record, from the first request byte."""
    return record["phases_ns"]["send"] + record["phases_ns"]["wait"]


def by_hop(records):
    """The four records of one request, in the order in which the request travels."""
    hops = {}
    for record in records:
        place = "gateway" if record.get("comm") == "nginx" else "node"
        hops[record["role"], place] = record
    return [hops.get(key) for key in
            (("client", "node"), ("server", "gateway"), ("client", "gateway"), ("server", "node"))]


class TheDemo(unittest.TestCase):
    """One run, looked at from several sides."""

    @classmethod
    def setUpClass(cls):
        require_demo()
        cls.before = what_demos_leave()
        with tempfile.TemporaryDirectory(prefix="iwrig-demo-") as folder:
            records, clients = pathlib.Path(folder, "records.jsonl"), pathlib.Path(folder, "clients.jsonl")
            began = time.monotonic()
            cls.done = subprocess.run([DEMO / "demo.sh", "--json", records, "--client-log", clients], check=False,
                                      capture_output=True, text=True, timeout=240, env=demo_environment())
            cls.seconds = time.monotonic() - began
            sys.stderr.write(cls.done.stderr)
            if cls.done.returncode != 0:
                raise AssertionError(f"the demo ended with {cls.done.returncode}")
            cls.shown = run([agent_binary(), "show", records]).stdout
            cls.records = [json.loads(line) for line in records.read_text().splitlines()]
            cls.clients = [json.loads(line) for line in clients.read_text().splitlines()]
        cls.after = what_demos_leave()
        answers = collections.defaultdict(list)
        for record in cls.records:
            if record.get("type") == "request" and record["final"] and record.get("response_id"):
                answers[record["response_id"]].append(record)
        cls.seen = [(client, answers[client["response_id"]]) for client in cls.clients]
        cls.requests = [(client, by_hop(records)) for client, records in cls.seen]

    def moments(self):
        """(client, what, bounds by the client's clock, by its record): times since the first request byte, in ms."""
        for client, (record, *_) in self.requests:
            first_ns = first_content_ns(record)
            for what, client_ns, record_ns in (
                    ("first content", client["content_ns"][0], first_ns),
                    ("last content", client["content_ns"][-1], first_ns + record["gap_ns"]["delivered"]["sum"]),
                    ("end", client["done_ns"], record["duration_ns"])):
                before_ns, after_ns = client["sent_ns"]
                yield (client, what, milliseconds(client_ns - after_ns), milliseconds(client_ns - before_ns),
                       milliseconds(record_ns))

    def test_prints_what_show_prints_of_the_records_and_nothing_else(self):
        self.assertEqual(self.done.stdout, self.shown)
        self.assertNotEqual(self.shown.strip(), "")

    def test_takes_less_than_forty_seconds(self):
        self.assertLess(self.seconds, MOST_SECONDS)

    def test_leaves_nothing_behind(self):
        self.assertEqual([left for left in self.after if left not in self.before], [])

    def test_asks_all_streams_at_once_one_of_them_over_the_wire(self):
        self.assertNotIn("NO WIRE", self.done.stderr)
        self.assertEqual(sorted(client["name"] for client in self.clients), ["far-1", "near-1", "near-2", "near-3", "near-4"])
        self.assertLess(max(client["sent_ns"][1] for client in self.clients), min(client["done_ns"] for client in self.clients))

    def test_every_request_is_seen_once_at_each_of_its_four_sockets(self):
        for client, records in self.seen:
            with self.subTest(client["name"]):
                self.assertEqual(len(records), 4)
                self.assertEqual(len({record["conn_id"] for record in records}), 4)

    def test_the_four_sockets_are_two_connections_end_to_end(self):
        for client, hops in self.requests:
            with self.subTest(client["name"]):
                asked, front, back, model = hops
                self.assertEqual((asked["local"], asked["remote"]), (front["remote"], front["local"]))
                self.assertEqual((back["local"], back["remote"]), (model["remote"], model["local"]))

    def test_the_model_answered_nobody_else(self):
        answers = [record for record in self.records if record.get("type") == "request" and record["final"]
                   and record.get("model") == WHAT_WAS_ASKED["model"]]
        self.assertEqual(len(answers), 4 * (NEAR_STREAMS + FAR_STREAMS))

    def test_every_hop_says_what_was_asked_and_how_it_ended(self):
        for client, hops in self.requests:
            with self.subTest(client["name"]):
                for record in hops:
                    self.assertEqual({key: record.get(key) for key in WHAT_WAS_ASKED}, WHAT_WAS_ASKED)

    def test_every_hop_counts_the_chunks_and_tokens_that_the_client_got(self):
        for client, hops in self.requests:
            with self.subTest(client["name"]):
                for record in hops:
                    self.assertEqual(record["chunks"], len(client["content_ns"]))
                    self.assertEqual(record["tokens"], {"output": client["usage"]["completion_tokens"],
                                                        "input": client["usage"]["prompt_tokens"]})

    def test_first_and_last_token_and_end_came_when_the_client_says(self):
        late_ms = []
        for client, what, least_ms, most_ms, record_ms in self.moments():
            with self.subTest(f"{client['name']}: {what}"):
                loop_ms = milliseconds(client["loop_delay_ns"])
                said = f"record {record_ms:.3f} ms, client {least_ms:.3f} to {most_ms:.3f}, its event loop up to {loop_ms:.1f} late"
                self.assertGreater(most_ms - record_ms, -SAME_CLOCK_MS, said)
                self.assertLess(least_ms - record_ms, LATE_MS + loop_ms, said)
                late_ms.append(least_ms - record_ms)
        self.assertLess(statistics.median(late_ms), LATE_MS)

    def test_each_hop_waits_for_the_first_token_at_least_as_long_as_the_hop_behind_it(self):
        for client, (asked, front, back, model) in self.requests:
            with self.subTest(client["name"]):
                waits = [first_content_ns(asked), front["ttft_ns"]["server"], first_content_ns(back), model["ttft_ns"]["server"]]
                for nearer, farther in zip(waits, waits[1:]):
                    self.assertGreater(milliseconds(nearer - farther), -SAME_CLOCK_MS)
                over_the_wire = milliseconds(waits[0] - waits[1])
                if client["name"].startswith("far"):
                    self.assertGreater(over_the_wire, WIRE_RTT_MS - SAME_CLOCK_MS)
                else:
                    self.assertLess(over_the_wire, 5)  # loopback, and a busy machine

    def test_phases_tile_the_duration(self):
        for client, hops in self.requests:
            with self.subTest(client["name"]):
                for record in hops:
                    self.assertEqual(sum(record["phases_ns"].values()), record["duration_ns"])

    def test_round_trips_are_those_of_the_wire_and_of_loopback(self):
        for client, (asked, front, back, _) in self.requests:
            with self.subTest(client["name"]):
                if client["name"].startswith("far"):
                    for record in (asked, front):
                        self.assertGreaterEqual(record["rtt_us"]["min"], WIRE_RTT_MS * 1000 * 0.99)
                else:
                    self.assertLess(asked["rtt_us"]["min"], 10_000)
                self.assertLess(back["rtt_us"]["min"], 10_000)

    def test_segments_are_resent_on_the_wire_only(self):
        for client, hops in self.requests:
            with self.subTest(client["name"]):
                for record in hops[2:] if client["name"].startswith("far") else hops:
                    resent = collections.Counter()
                    for by_type in record.get("retransmits", {}).values():
                        resent.update(by_type)
                    resent.pop("tlp", None)  # a probe may go out on loopback, too, while an acknowledgement is delayed
                    self.assertEqual(resent, {})


class AnInterruptedDemo(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        require_demo()

    def interrupt(self, when, number):
        before = what_demos_leave()
        # A session of its own: the signal goes to all of its processes, as Ctrl-C does.
        demo = subprocess.Popen([DEMO / "demo.sh"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                start_new_session=True, env=demo_environment())
        try:
            for line in demo.stderr:
                if when in line:
                    break
            os.killpg(demo.pid, number)
            status = demo.wait(20)
        finally:
            if demo.poll() is None:
                os.killpg(demo.pid, signal.SIGKILL)
            demo.stderr.close()
        wait_for(lambda: [left for left in what_demos_leave() if left not in before] == [], 5, "the demo's remains to go")
        return status

    def test_by_ctrl_c_while_it_asks_leaves_nothing_behind(self):
        self.assertEqual(self.interrupt("asking:", signal.SIGINT), 130)

    def test_by_ctrl_c_while_the_agent_loads_leaves_nothing_behind(self):
        self.assertEqual(self.interrupt("agent:", signal.SIGINT), 130)

    def test_by_sigterm_while_the_model_loads_leaves_nothing_behind(self):
        self.assertEqual(self.interrupt("wire:", signal.SIGTERM), 143)


class ADemoThatCannotRun(unittest.TestCase):
    def refused(self, argv, **changes):
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=30, env=dict(os.environ, **changes))
        self.assertEqual(done.stdout, "")
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def test_without_root_says_what_to_run(self):
        testing.require_root()
        with tempfile.TemporaryDirectory(prefix="iwrig-demo-") as folder:  # the tree may be closed to other users
            copy = shutil.copytree(DEMO, pathlib.Path(folder, "deploy", "demo"), ignore=shutil.ignore_patterns("node_modules"))
            os.chmod(folder, 0o755)
            said = self.refused(["setpriv", "--reuid", "nobody", "--clear-groups", copy / "demo.sh"])
        self.assertIn("sudo ./run demo", said)

    def test_without_an_agent_says_what_builds_it(self):
        testing.require_root()
        self.assertIn("./run demo builds it", self.refused([DEMO / "demo.sh"], DEMO_AGENT="/nonexistent/inferwire"))

    def test_with_a_json_file_in_no_folder_says_so(self):
        self.assertIn("/nonexistent/records.jsonl", self.refused([DEMO / "demo.sh", "--json", "/nonexistent/records.jsonl"]))


if __name__ == "__main__":
    testing.main()
