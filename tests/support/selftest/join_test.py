# SPDX-License-Identifier: Apache-2.0
"""The judge is judged: a perfect agent passes, and each kind of wrong agent is found out."""

import copy
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from rig import join, report  # noqa: E402
from rig.pcap import ACK, SYN, Acknowledgments, Segment  # noqa: E402
from rig.scenario import scenario  # noqa: E402
from rig.testing import main  # noqa: E402

MS = 1_000_000
UNIX_OFFSET_NS = 1_700_000_000_000_000_000
START_NS = 5_000 * MS
EDGES_NS = [edge * MS for edge in (1, 2, 4, 6, 8, 10, 20, 50)]
STREAM = scenario(chunks=10, cadence_ms=7, ttft_ms=30)


def a_server_line():
    """Everything on time, 0.1 ms a write."""
    at, steps = START_NS + MS, []
    for wait_ms, kinds in STREAM.script["steps"]:
        at += int(wait_ms * MS)
        steps.append([at, at + MS // 10, kinds])
    return {"server": "cpp", "tag": "s", "local_port": 8000, "remote_port": 50000, "ordinal": 1, "request_read_ns": START_NS + MS,
            "steps": steps, "end": "clean", "body_bytes": 1234}


def a_client_line(server_line):
    """Reads each event 0.2 ms after its write began."""
    reads, events, end = [], [], 0
    for before, _, kinds in server_line["steps"]:
        for kind in kinds:
            end += 100
            events.append([before + MS // 5, kind, end])
        reads.append([before + MS // 5, end])
    return {"client": "cpp", "tag": "s", "local_port": 50000, "remote_port": 8000, "ordinal": 1,
            "connect_ns": [START_NS - MS, START_NS], "sent_first_ns": START_NS, "sent_last_ns": START_NS + MS,
            "reads": reads, "events": events, "end_ns": reads[-1][0]}


def bucketed(gaps):
    counts = [0] * (len(EDGES_NS) + 1)
    for gap in gaps:
        counts[next((i for i, edge in enumerate(EDGES_NS) if gap <= edge), len(EDGES_NS))] += 1
    return counts


def gap_view(times):
    gaps = join.gaps(times)
    return {"p50": 0, "p99": 0, "max": max(gaps), "sum": sum(gaps), "count": len(gaps), "buckets": bucketed(gaps)}


def perfect(server_line, client_line):
    """(records, trace) of an agent that knows the logs."""
    writes = [before for before, _ in join.chunk_writes(server_line)]
    reads = join.chunk_reads(client_line)
    duration = client_line["end_ns"] - client_line["sent_first_ns"]
    common = {"type": "request", "final": True, "conn_id": "a", "ordinal": 1, "code": 200, "outcome": "complete",
              "stream": True, "chunks": 10, "tokens": {"output": 10, "input": 17}, "response_body_bytes": 1234,
              "start_unix_ns": START_NS + UNIX_OFFSET_NS, "duration_ns": duration, "phases_ns": {"server": duration}}
    server = {**copy.deepcopy(common), "role": "server", "local": "127.0.0.1:8000", "remote": "127.0.0.1:50000",
              "ttft_ns": {"server": writes[0] - server_line["request_read_ns"]},
              "gap_ns": {"sent": gap_view(writes), "edges": EDGES_NS}, "delivered": "exact"}
    client = {**copy.deepcopy(common), "role": "client", "local": "127.0.0.1:50000", "remote": "127.0.0.1:8000", "conn_id": "b",
              "ttft_ns": {"user": reads[0] - client_line["connect_ns"][0]},
              "gap_ns": {"delivered": gap_view(reads), "edges": EDGES_NS}}
    trace = [{"conn_id": conn, "ordinal": 1, "role": role, "view": view, "t_mono_ns": at, "chunks": 1}
             for conn, role, view, times in (("a", "server", "sent", writes), ("a", "server", "delivered", reads),
                                             ("b", "client", "delivered", reads)) for at in times]
    return [server, client], trace


class JoinTest(unittest.TestCase):
    def setUp(self):
        self.server_line = a_server_line()
        self.client_line = a_client_line(self.server_line)
        self.records, self.trace = perfect(self.server_line, self.client_line)

    def measure(self):
        joiner = join.Joiner(self.records, self.trace, UNIX_OFFSET_NS)
        return joiner.measure(STREAM, self.server_line, self.client_line)

    def test_a_perfect_agent_has_no_problem_and_no_error(self):
        row = self.measure()
        self.assertEqual(row.problems, [])
        self.assertEqual({key: [e for e in errors if e] for key, errors in row.errors.items() if any(errors)}, {})
        self.assertTrue(all(passed for _, passed, _ in join.verdicts([row])))
        measured = set(join.MEASURES) - {"delivered_ack"}
        self.assertEqual(set(row.errors), measured)

    def test_each_wrong_count_is_a_problem(self):
        for key, value in (("chunks", 9), ("code", 500), ("outcome", "truncated_clean"), ("stream", False),
                           ("response_body_bytes", 1233), ("tokens", {"output": 11, "input": 17})):
            with self.subTest(key):
                self.setUp()
                self.records[0][key] = value
                self.assertEqual(len(self.measure().problems), 1)
                self.assertFalse(join.verdicts([self.measure()])[0][1])

    def test_phases_that_do_not_tile_are_a_problem(self):
        self.records[1]["phases_ns"]["drain"] = 1
        self.assertEqual(len(self.measure().problems), 1)

    def test_a_missing_record_and_one_too_many_are_problems(self):
        self.records.append(copy.deepcopy(self.records[0]))
        self.assertIn("2 records of the server role", self.measure().problems[0])
        self.records = self.records[1:2]
        self.assertIn("0 records of the server role", self.measure().problems[0])

    def test_a_record_of_an_earlier_connection_with_the_same_ports_is_another_requests(self):
        earlier = copy.deepcopy(self.records[0])
        earlier["start_unix_ns"] -= 5_000 * MS
        self.records.append(earlier)
        self.assertEqual(self.measure().problems, [])

    def test_a_late_chunk_is_found_in_the_trace_and_in_the_record(self):
        line = next(line for line in self.trace if line["view"] == "sent")
        line["t_mono_ns"] -= 2 * MS
        self.assertEqual(max(abs(e) for e in self.measure().errors["sent_gap"]), 2 * MS)
        self.records[0]["gap_ns"]["sent"]["max"] += 3 * MS
        failed = [name for name, passed, _ in join.verdicts([self.measure()]) if not passed]
        self.assertEqual(failed, ["sent_gap", "gap_sent_max"])

    def test_a_wrong_ttft_and_duration_are_found(self):
        self.records[0]["ttft_ns"]["server"] += 2 * MS
        self.records[1]["duration_ns"] += 2 * MS
        self.records[1]["phases_ns"]["server"] += 2 * MS
        failed = [name for name, passed, _ in join.verdicts([self.measure()]) if not passed]
        self.assertEqual(failed, ["ttft_server", "client_duration"])

    def test_gaps_in_a_wrong_bucket_are_a_problem_and_near_an_edge_are_not(self):
        buckets = self.records[0]["gap_ns"]["sent"]["buckets"]
        seven_ms = next(i for i, count in enumerate(buckets) if count)
        buckets[seven_ms] -= 1
        buckets[-1] += 1
        self.assertTrue(self.measure().problems)
        self.assertEqual(join.histogram_problems([0, 9, 0], [6 * MS, 8 * MS], [(7 * MS, 8 * MS + MS // 2)] * 9), [])

    def test_deliveries_of_several_chunks_are_spread_over_their_chunks(self):
        self.trace = [line for line in self.trace if line["view"] != "sent"]
        first = join.chunk_writes(self.server_line)[0][0]
        self.trace.append({"conn_id": "a", "ordinal": 1, "role": "server", "view": "sent", "t_mono_ns": first, "chunks": 10})
        self.assertEqual(len(self.measure().errors["sent_chunk"]), 10)
        self.assertEqual(max(abs(e) for e in self.measure().errors["sent_gap"]), 7 * MS)

    def test_an_ack_that_covers_several_deliveries_is_the_delivery_of_all_their_chunks(self):
        self.assertEqual(join.chunk_times(sent=[(1, 3), (2, 1), (3, 2)], delivered=[(10, 2), (11, 1)]),
                         [10, 10, 10, 10, 11, 11])
        self.assertEqual(join.chunk_times(sent=[], delivered=[(10, 2), (11, 1)]), [10, 10, 11])

    def test_without_a_trace_records_are_still_judged(self):
        self.trace = []
        row = self.measure()
        self.assertNotIn("sent_gap", row.errors)
        self.assertIn("gap_sent_max", row.errors)

    def test_the_report_names_what_failed(self):
        self.records[0]["chunks"] = 9
        row = self.measure()
        result = {"seed": 1, "streams": 1, "parallel": 1, "stream_ms": 1, "machine": {"kernel": "k", "cpus": 2, "cpu": "c"},
                  "versions": {}, "verdicts": join.verdicts([row])}
        self.assertIn("chunks is 9, should be 10", report.render(result, [row]))
        self.assertIn("FAILED", report.render_text(result, [row]))


class AcknowledgmentsTest(unittest.TestCase):
    @staticmethod
    def segment(unix_ns, from_server, flags, sequence=0, acknowledgment=0):
        ports = (8000, 50000) if from_server else (50000, 8000)
        return Segment(unix_ns, "a", ports[0], "b", ports[1], sequence, acknowledgment, flags, 0)

    def test_a_byte_is_acknowledged_by_the_first_ack_that_covers_it_also_across_the_wrap(self):
        first = 0xFFFFFFF0
        acks = Acknowledgments([self.segment(1, True, SYN | ACK, sequence=first),
                                self.segment(2, False, ACK, acknowledgment=(first + 1) & 0xFFFFFFFF),
                                self.segment(3, False, ACK, acknowledgment=(first + 11) & 0xFFFFFFFF),
                                self.segment(4, False, ACK, acknowledgment=(first + 51) & 0xFFFFFFFF)], 8000)
        self.assertEqual(acks.of(50000, 10, [5, 10, 11, 50, 51]), [3, 3, 4, 4, None])

    def test_a_port_that_is_used_again_belongs_to_the_connection_of_its_time(self):
        acks = Acknowledgments([self.segment(1, True, SYN | ACK, sequence=100), self.segment(2, False, ACK, acknowledgment=111),
                                self.segment(100, True, SYN | ACK, sequence=900),
                                self.segment(102, False, ACK, acknowledgment=911)], 8000)
        self.assertEqual(acks.of(50000, 50, [10]), [2])
        self.assertEqual(acks.of(50000, 110, [10]), [102])


if __name__ == "__main__":
    main()
