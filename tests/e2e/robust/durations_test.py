# SPDX-License-Identifier: Apache-2.0
"""Durations agree with the client's own clock, and the phases say where the time went."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from rig import clients  # noqa: E402
from rig.observe import MS, gather, play, start_agent  # noqa: E402
from rig.scenario import scenario  # noqa: E402
from rig.servers import Server  # noqa: E402
from rig.testing import main  # noqa: E402

TOLERANCE_NS = 5 * MS   # a busy machine's scheduler; tests/e2e/accuracy.py measures the real error
ACK_DELAY_NS = 50 * MS  # how late a receiver may acknowledge the last byte
UPLOAD_BYTES = 20_000_000


def setUpModule():
    global agent
    agent = start_agent()


class DurationsTest(unittest.TestCase):
    def assert_durations(self, seen):
        true = seen.client_line["end_ns"] - seen.client_line["sent_first_ns"]
        for role in ("server", "client"):
            record = getattr(seen, role)
            self.assertEqual(sum(record["phases_ns"].values()), record["duration_ns"], role)
        self.assertLess(abs(seen.client["duration_ns"] - true), TOLERANCE_NS)
        self.assertGreater(seen.server["duration_ns"], true - TOLERANCE_NS)
        self.assertLess(seen.server["duration_ns"], true + TOLERANCE_NS + ACK_DELAY_NS)

    def assert_phase(self, record, phase, wanted_ms, tolerance_ms=10):
        self.assertLess(abs(record["phases_ns"].get(phase, 0) / MS - wanted_ms), tolerance_ms,
                        f"{phase}: {record['phases_ns']}")

    def play_one(self, one, *, flags=(), **options):
        with Server("cpp", flags=flags) as server:
            seen = play(agent, server, {"s": one}, **options)["s"]
        self.assertEqual(seen.problems("server") + seen.problems("client"), [])
        self.assert_durations(seen)
        return seen

    def test_a_normal_stream(self):
        seen = self.play_one(scenario(chunks=20, cadence_ms=10, ttft_ms=100))
        self.assert_phase(seen.server, "server", 100)
        self.assert_phase(seen.server, "stream", 190)

    def test_a_late_accept(self):
        seen = self.play_one(scenario(chunks=5, cadence_ms=10, ttft_ms=50), flags=["--accept-delay-ms", 300])
        if "accept_wait" not in seen.server["phases_missing"]:
            self.assert_phase(seen.server, "accept_wait", 300, 15)
        self.assert_phase(seen.server, "server", 50, 15)

    def test_a_late_read(self):
        seen = self.play_one(scenario(chunks=5, cadence_ms=10, ttft_ms=50), flags=["--read-delay-ms", 200])
        if "read_wait" not in seen.server["phases_missing"] and seen.server.get("accepted") != "upper_bound":
            self.assert_phase(seen.server, "read_wait", 200, 15)

    def test_an_answer_that_is_no_stream(self):
        seen = self.play_one(scenario(framing="json", ttft_ms=120, body="length", head="first"))
        self.assert_phase(seen.server, "server", 120)

    def test_an_upload_of_twenty_megabytes(self):
        seen = self.play_one(scenario(chunks=5, cadence_ms=10, ttft_ms=50), request_options={"pad_bytes": UPLOAD_BYTES})
        self.assertEqual(seen.server["request_body_bytes"], UPLOAD_BYTES)
        upload_ms = (seen.server_line["request_read_ns"] - seen.client_line["sent_first_ns"]) / MS
        self.assertLess(seen.server["phases_ns"]["upload"] / MS, upload_ms + 5)
        self.assertGreater(seen.server["phases_ns"]["upload"] / MS, 0)

    def test_uploads_of_twenty_megabytes_at_once_are_counted_to_the_byte_on_both_sides(self):
        scenarios = {f"u{i}": scenario(chunks=5, cadence_ms=10, ttft_ms=50) for i in range(8)}
        with Server("cpp") as server:
            for name, seen in play(agent, server, scenarios, request_options={"pad_bytes": UPLOAD_BYTES}).items():
                with self.subTest(name):
                    self.assertEqual(seen.problems("server") + seen.problems("client"), [])
                    self.assertEqual([seen.server["request_body_bytes"], seen.client["request_body_bytes"]],
                                     [UPLOAD_BYTES] * 2)

    def test_a_slow_upload(self):
        seen = self.play_one(scenario(chunks=5, cadence_ms=10, ttft_ms=50), request_options={
            "pad_bytes": 200_000, "piece_bytes": 20_000, "piece_gap_ms": 20})
        upload_ms = (seen.client_line["sent_last_ns"] - seen.client_line["sent_first_ns"]) / MS
        self.assertGreater(upload_ms, 180)
        self.assert_phase(seen.server, "upload", upload_ms)

    def test_an_answer_before_the_upload_has_ended(self):
        one = scenario(framing="json", status=413, ttft_ms=0, body="length", early_answer=True)
        with Server("cpp") as server:
            lines = clients.run_plan([clients.connection(server.host, server.port, [
                {"tag": "s", "body": "{}", "pad_bytes": 2_000_000, "headers": {"x-script": json.dumps(one.script)},
                 "piece_bytes": 65536, "piece_gap_ms": 5}])])
            seen = gather(agent, {"s": one}, server, lines)["s"]
        for role in ("server", "client"):
            record = getattr(seen, role)
            self.assertEqual((record["code"], record["outcome"]), (413, "complete"), role)
            self.assertEqual(sum(record["phases_ns"].values()), record["duration_ns"])

    def test_a_connection_opened_long_before_its_request(self):
        seen = self.play_one(scenario(chunks=5, cadence_ms=10, ttft_ms=50), request_options={"wait_ms": 1500})
        self.assertLess(seen.server["duration_ns"], 500 * MS)
        self.assertLess(abs(seen.server["idle_before_ns"] / MS - 1500), 30)

    def test_idle_time_between_requests_is_no_part_of_them(self):
        scenarios = {f"r{i}": scenario(chunks=5, cadence_ms=10, ttft_ms=50) for i in range(3)}
        with Server("cpp") as server:
            lines = clients.run_plan([clients.connection(server.host, server.port, [
                clients.request(name, one, wait_ms=400) for name, one in scenarios.items()])])
            for name, seen in gather(agent, scenarios, server, lines).items():
                with self.subTest(name):
                    self.assertEqual(seen.problems("server") + seen.problems("client"), [])
                    self.assert_durations(seen)


if __name__ == "__main__":
    main()
