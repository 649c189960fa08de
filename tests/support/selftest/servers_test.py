# SPDX-License-Identifier: Apache-2.0
"""Servers and clients agree on what was written and when: the ground truth is true."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from rig import servers  # noqa: E402
from rig.clients import connection, request, run_plan  # noqa: E402
from rig.scenario import scenario  # noqa: E402
from rig.servers import Server  # noqa: E402
from rig.testing import main  # noqa: E402


def play(server, named_scenarios, *, client="cpp", **request_options):
    """Each scenario on a connection of its own; returns {name: (client line, server line)}."""
    plan = [connection(server.host, server.port, [request(name, one, **request_options)])
            for name, one in named_scenarios.items()]
    client_log = run_plan(plan, kind=client)
    server_log = {line["tag"]: line for line in server.log(requests=len(plan))}
    return {name: (client_log[name], server_log[name]) for name in named_scenarios}


def kinds_read(line):
    return "".join(kind for _, kind, _ in line["events"])


def kinds_written(line):
    return "".join(kinds for _, _, kinds in line["steps"]).replace("m", "c")


STREAMS = {
    "plain": scenario(chunks=6, cadence_ms=5, ttft_ms=10),
    "crlf": scenario(framing="sse-crlf", chunks=6, cadence_ms=5, ttft_ms=10),
    "ndjson": scenario(framing="ndjson", chunks=6, cadence_ms=5, ttft_ms=10, head="first"),
    "role-early": scenario(chunks=4, cadence_ms=5, ttft_ms=60, role_early_ms=5),
    "reasoning": scenario(chunks=6, reasoning=3, cadence_ms=5, ttft_ms=10),
    "pings": scenario(chunks=3, gaps_ms=[60, 60], ttft_ms=80, comments_every_ms=20),
    "bursts": scenario(chunks=12, coalesce=4, cadence_ms=10, ttft_ms=10),
    "separate-tail": scenario(chunks=4, cadence_ms=5, ttft_ms=10, tail="separate"),
    "pieces": scenario(chunks=4, cadence_ms=5, ttft_ms=10, split=7),
    "single": scenario(chunks=6, cadence_ms=5, ttft_ms=10, split="single"),
    "error": scenario(chunks=6, cadence_ms=5, ttft_ms=10, error_at=3),
    "no-marker": scenario(chunks=4, cadence_ms=5, ttft_ms=10, done=False),
    "length": scenario(chunks=4, cadence_ms=5, ttft_ms=10, body="length", split="single"),
    "status": scenario(framing="json", ttft_ms=10, status=503, body="length"),
}


class ServersTest(unittest.TestCase):
    def for_each_server(self, check):
        for kind in servers.KINDS:
            with self.subTest(kind), Server(kind) as server:
                check(server)

    def test_every_scenario_arrives_as_it_was_written(self):
        def check(server):
            for name, (client, written) in play(server, STREAMS).items():
                with self.subTest(name):
                    expected = STREAMS[name].expected()
                    self.assertIsNone(written["error"])
                    self.assertEqual(client["outcome"], "complete")
                    self.assertEqual(client["status"], expected.code)
                    self.assertEqual(client["body_bytes"], written["body_bytes"])
                    self.assertEqual(client["local_port"], written["remote_port"])
                    if expected.stream:
                        self.assertEqual(kinds_read(client), kinds_written(written))
                        self.assertEqual(sum(kinds_read(client).count(kind) for kind in "ctk"), expected.chunks)
        self.for_each_server(check)

    def test_events_are_read_after_they_were_written_and_soon(self):
        def check(server):
            client, written = play(server, {"s": scenario(chunks=40, cadence_ms=10, ttft_ms=20)})["s"]
            self.assertLess(client["sent_first_ns"], written["head_ns"])
            first_events = iter(client["events"])
            lateness_ms = []
            for before, after, kinds in written["steps"]:
                self.assertLessEqual(before, after)
                for read, _, _ in [next(first_events) for _ in kinds]:
                    self.assertGreater(read, before)
                    lateness_ms.append((read - before) / 1e6)
            self.assertLess(sorted(lateness_ms)[len(lateness_ms) // 2], 2)
            self.assertGreater(client["end_ns"], written["steps"][-1][0])
        self.for_each_server(check)

    def test_steps_come_when_the_script_says(self):
        def check(server):
            _, written = play(server, {"s": scenario(chunks=30, cadence_ms=10, ttft_ms=30)})["s"]
            due = written["request_read_ns"]
            for (before, _, _), (wait_ms, _) in zip(written["steps"], scenario(chunks=30, cadence_ms=10, ttft_ms=30).script["steps"]):
                due += wait_ms * 1e6
                self.assertGreaterEqual(before, due - 1e6)
            self.assertLess(written["steps"][-1][0] - due, 50e6)
        self.for_each_server(check)

    def test_requests_on_one_connection_are_numbered_alike_on_both_sides(self):
        def check(server):
            one = scenario(chunks=3, cadence_ms=2, ttft_ms=5)
            client = run_plan([connection(server.host, server.port, [request(f"r{i}", one) for i in range(5)])])
            written = {line["tag"]: line for line in server.log(requests=5)}
            self.assertEqual(len({line["local_port"] for line in client.values()}), 1)
            for i in range(5):
                self.assertEqual((client[f"r{i}"]["ordinal"], written[f"r{i}"]["ordinal"]), (i + 1, i + 1))
            self.assertEqual([written[f"r{i}"]["accepted_ns"] is None for i in range(5)], [False] + [True] * 4)
        self.for_each_server(check)

    def test_ends_that_are_no_end_are_seen_by_the_client(self):
        def check(server):
            cases = {"fin": scenario(chunks=6, cadence_ms=5, die_at=3, end="fin"),
                     "rst": scenario(chunks=6, cadence_ms=5, die_at=3, end="rst")}
            for name, (client, written) in play(server, cases).items():
                self.assertEqual(client["outcome"], name)
                self.assertEqual(written["end"], name)
        self.for_each_server(check)

    def test_the_head_leaves_early_or_with_the_first_step(self):
        def check(server):
            cases = {head: scenario(chunks=3, cadence_ms=10, ttft_ms=100, head=head) for head in ("early", "first")}
            both = play(server, cases)
            def wait_ms(name):
                client, _ = both[name]
                return (client["reads"][0][0] - client["sent_last_ns"]) / 1e6
            self.assertLess(wait_ms("early"), 60)
            self.assertGreater(wait_ms("first"), 95)
        self.for_each_server(check)

    def test_aiohttp_reads_the_same_events(self):
        def check(server):
            chosen = {name: STREAMS[name] for name in ("plain", "crlf", "ndjson", "pings", "bursts", "pieces")}
            for name, (client, written) in play(server, chosen, client="aiohttp").items():
                with self.subTest(name):
                    self.assertEqual(kinds_read(client), kinds_written(written))
                    self.assertEqual(client["local_port"], written["remote_port"])
        self.for_each_server(check)


class RawServerTest(unittest.TestCase):
    """What only the C++ server does."""

    def test_a_body_until_close_ends_with_the_connection(self):
        with Server("cpp") as server:
            one = scenario(chunks=4, cadence_ms=5, body="close")
            client, written = play(server, {"s": one})["s"]
            self.assertEqual((client["outcome"], kinds_read(client)), ("complete", kinds_written(written)))

    def test_the_wire_bytes_are_cut_into_single_bytes(self):
        with Server("cpp") as server:
            client, _ = play(server, {"s": scenario(chunks=3, cadence_ms=20, split=1)})["s"]
            self.assertGreater(len(client["reads"]), 20)

    def test_an_answer_before_the_upload_has_ended(self):
        one = scenario(framing="json", status=413, ttft_ms=0, body="length", early_answer=True)
        with Server("cpp") as server:
            client = run_plan([connection(server.host, server.port, [
                {"tag": "s", "body": "{}", "pad_bytes": 20_000_000, "headers": {"x-script": json.dumps(one.script)},
                 "piece_bytes": 65536, "piece_gap_ms": 1}])])["s"]
            [written] = server.log(requests=1)
            self.assertEqual((client["status"], client["outcome"]), (413, "complete"))
            self.assertLess(written["steps"][0][0], client["sent_last_ns"])

    def test_connections_are_accepted_late_when_asked_to(self):
        with Server("cpp", flags=["--accept-delay-ms", 300]) as server:
            client, written = play(server, {"s": scenario(chunks=2, cadence_ms=5)})["s"]
            self.assertGreater(written["accepted_ns"] - client["connect_ns"][1], 290e6)

    def test_a_deferred_accept_still_serves(self):
        with Server("cpp", flags=["--defer-accept", 5]) as server:
            client, _ = play(server, {"s": scenario(chunks=2, cadence_ms=5)}, wait_ms=50)["s"]
            self.assertEqual(client["outcome"], "complete")

    def test_a_client_that_leaves_is_logged(self):
        with Server("cpp") as server:
            client, written = play(server, {"s": scenario(chunks=50, cadence_ms=10)}, abort_after_events=5, abort="rst")["s"]
            self.assertEqual((client["outcome"], written["end"]), ("aborted", "aborted"))


if __name__ == "__main__":
    main()
