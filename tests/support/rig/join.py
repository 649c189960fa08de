# SPDX-License-Identifier: Apache-2.0
"""Joins what the agent says about each request with what its server and its client logged, and measures the difference.

Pure: lists of objects in, lists of objects out. A request is found again by role, both ports and its number on the
connection. All errors are in nanoseconds, agent minus log.
"""

import dataclasses

from .scenario import CHUNK_KINDS

# What is measured, in the order of the report: key -> (what it compares, bound at p99 in ns or None).
MS = 1_000_000
MEASURES = {
    "ttft_server": ("TTFT, server view, and the server's log (first content write minus request read)", MS),
    "ttft_server_outside": ("TTFT, server view: outside what both logs' before and after times allow", None),
    "sent_gap": ("gap between chunks as sent, and the server's log, each gap", MS),
    "sent_gap_outside": ("gap between chunks as sent: outside what the clocks around the writes allow", None),
    "sent_chunk": ("time of each chunk as sent, and the server's log (before the write)", None),
    "sent_chunk_outside": ("time of each chunk as sent: outside before and after the write", None),
    "gap_sent_max": ("longest sent gap of a stream, and the server's log", MS),
    "gap_sent_max_outside": ("longest sent gap of a stream: outside what the clocks around the writes allow", None),
    "gap_sent_sum": ("first to last chunk as sent, and the server's log", MS),
    "client_arrival": ("client role: arrival of each chunk, and the client's log of reading it", MS),
    "client_arrival_outside": ("client role: arrival of each chunk: outside of its write and its read", None),
    "client_ttft": ("client role: TTFT, user view, and the client's log", MS),
    "client_gap_max": ("client role: longest gap of a stream, and the client's log", None),
    "client_gap_sum": ("client role: first to last chunk, and the client's log", MS),
    "client_duration": ("client role: duration, and the client's clock", MS),
    "server_duration": ("server role: duration, and the client's clock (plus the last ACK's delay)", None),
    "server_start": ("server role: start, and the client's clock", MS),
    "delivered_client": ("server role: delivered time of each chunk, and the client's log", None),
    "delivered_ack": ("server role: delivered time of each chunk, and its ACK in the capture", MS // 10),
}


@dataclasses.dataclass
class Row:
    """One request: exact mismatches as sentences, differences as lists of nanoseconds."""
    tag: str
    server: str
    client: str
    ordinal: int
    cadence_ms: float | None
    problems: list
    errors: dict
    approximate: bool = False
    delivered: str | None = None

    def as_json(self):
        return dataclasses.asdict(self)


def port_of(endpoint):
    return int(endpoint.rsplit(":", 1)[1])


def index_records(records):
    """{(role, client port, server port, ordinal): [records]}"""
    index = {}
    for record in records:
        local, remote = port_of(record["local"]), port_of(record["remote"])
        client, server = (remote, local) if record.get("role") == "server" else (local, remote)
        index.setdefault((record.get("role"), client, server, record.get("ordinal")), []).append(record)
    return index


def of_this_request(records, client_line, unix_offset_ns):
    """Those that began while the request was under way: ports come again."""
    early, late = client_line["sent_first_ns"] - 200 * MS, client_line["end_ns"] + 200 * MS
    return [record for record in records if early <= record["start_unix_ns"] - unix_offset_ns <= late]


def index_trace(lines):
    """{(conn_id, ordinal, role, view): [(time, count), ...]} in the order of time."""
    index = {}
    for line in sorted(lines, key=lambda line: line["t_mono_ns"]):
        key = (line["conn_id"], line["ordinal"], line["role"], line["view"])
        index.setdefault(key, []).append((line["t_mono_ns"], line["chunks"]))
    return index


def spread(deliveries):
    """A time for each thing counted."""
    return [at for at, count in deliveries for _ in range(count)]


def chunk_times(sent, delivered):
    """A delivered time for each chunk. On the server's side a delivered line counts sent deliveries (what one ACK
    covered), on the client's side, where nothing was sent, chunks."""
    times = spread(delivered)
    if not sent or len(times) != len(sent):
        return times
    return [at for at, (_, chunks) in zip(times, sent) for _ in range(chunks)]


def chunk_writes(server_line):
    """(before_ns, after_ns) of each chunk's write, a chunk an entry."""
    return [(before, after) for before, after, kinds in server_line["steps"] for kind in kinds if kind in CHUNK_KINDS]


def chunk_reads(client_line):
    return [at for at, kind, _ in client_line["events"] if kind in CHUNK_KINDS]


def chunk_ends(client_line):
    return [end for _, kind, end in client_line["events"] if kind in CHUNK_KINDS]


def gaps(times):
    """Differences of consecutive different times."""
    distinct = sorted(set(times))
    return [later - earlier for earlier, later in zip(distinct, distinct[1:])]


def outside(value, low, high):
    """How far `value` is outside [low, high], signed; 0 inside."""
    return value - high if value > high else min(0, value - low)


class Joiner:
    """Measures requests one at a time against indexed records."""

    def __init__(self, records, trace=(), unix_offset_ns=0, acknowledgments=None):
        self.records, self.trace = index_records(records), index_trace(trace)
        self.unix_offset_ns, self.acknowledgments = unix_offset_ns, acknowledgments

    def measure(self, scenario, server_line, client_line, cadence_ms=None, roles=("server", "client")):
        row = Row(tag=client_line["tag"], server=server_line["server"], client=client_line["client"],
                  ordinal=client_line["ordinal"], cadence_ms=cadence_ms, problems=[], errors={})
        expected = scenario.expected()
        for role in roles:
            key = (role, client_line["local_port"], server_line["local_port"], client_line["ordinal"])
            found = of_this_request(self.records.get(key, []), client_line, self.unix_offset_ns)
            if len(found) != 1:
                row.problems.append(f"{len(found)} records of the {role} role instead of 1")
                continue
            [record] = found
            row.problems += [f"{role}: {problem}" for problem in exact_problems(record, expected, server_line)]
            row.approximate |= bool(record.get("approximate"))
            if role == "server":
                row.delivered = record.get("delivered")
                self._measure_server(row, record, server_line, client_line)
            else:
                self._measure_client(row, record, server_line, client_line)
        return row

    def _trace_of(self, record, view, chunks):
        """The traced time of each chunk, or None where the trace has not one for each."""
        sent, lines = (self.trace.get((record["conn_id"], record["ordinal"], record["role"], wanted), [])
                       for wanted in ("sent", view))
        times = spread(sent) if view == "sent" else chunk_times(sent, lines)
        return times if times and len(times) == chunks else None

    def _measure_server(self, row, record, server_line, client_line):
        writes = chunk_writes(server_line)
        start = record["start_unix_ns"] - self.unix_offset_ns
        row.errors["server_start"] = [start - client_line["sent_first_ns"]]
        row.errors["server_duration"] = [record["duration_ns"] - (client_line["end_ns"] - client_line["sent_first_ns"])]
        ttft = record.get("ttft_ns", {}).get("server")
        if ttft is not None and writes and server_line["request_read_ns"]:
            before, after = writes[0]
            row.errors["ttft_server"] = [ttft - (before - server_line["request_read_ns"])]
            # On loopback a segment has come in before its send returns; in any case before it is read.
            latest_in = min(at for at in (client_line["sent_last_ns"], server_line["request_read_ns"]) if at)
            row.errors["ttft_server_outside"] = [outside(ttft, before - latest_in, after - client_line["sent_first_ns"])]
        befores = [before for before, _ in writes]
        said = record.get("gap_ns", {}).get("sent")
        self._measure_gaps(row, said, befores, "gap_sent")
        edges, bounds = record.get("gap_ns", {}).get("edges"), gap_bounds(writes)
        if said and edges and said.get("count") == len(bounds):
            row.problems += histogram_problems(said["buckets"], edges, bounds)
            row.errors["gap_sent_max_outside"] = [outside(said["max"], max(low for low, _ in bounds),
                                                          max(high for _, high in bounds))]
        sent = self._trace_of(record, "sent", len(writes))
        if sent:
            row.errors["sent_chunk"] = [at - before for at, before in zip(sent, befores)]
            row.errors["sent_chunk_outside"] = [outside(at, *write) for at, write in zip(sent, writes)]
            errors = row.errors["sent_chunk"]
            pairs = [(i - 1, i) for i in range(1, len(errors)) if befores[i] != befores[i - 1]]
            row.errors["sent_gap"] = [errors[later] - errors[earlier] for earlier, later in pairs]
            row.errors["sent_gap_outside"] = [
                outside(sent[later] - sent[earlier], writes[later][0] - writes[earlier][1],
                        writes[later][1] - writes[earlier][0]) for earlier, later in pairs]
        delivered = self._trace_of(record, "delivered", len(writes))
        if delivered and len(chunk_reads(client_line)) == len(delivered):
            row.errors["delivered_client"] = [at - read for at, read in zip(delivered, chunk_reads(client_line))]
        if delivered and self.acknowledgments and client_line["reads"]:
            acked = self.acknowledgments.of(client_line["local_port"], start + self.unix_offset_ns, chunk_ends(client_line))
            row.errors["delivered_ack"] = [at + self.unix_offset_ns - ack for at, ack in zip(delivered, acked)
                                           if ack is not None]

    def _measure_client(self, row, record, server_line, client_line):
        reads = chunk_reads(client_line)
        row.errors["client_duration"] = [record["duration_ns"] - (client_line["end_ns"] - client_line["sent_first_ns"])]
        ttft = record.get("ttft_ns", {}).get("user")
        user_start = client_line["sent_first_ns"]
        if client_line["ordinal"] == 1:
            user_start = client_line["connect_ns"][0]  # a new connection: the user's wait began with its SYN
        if ttft is not None and reads:
            row.errors["client_ttft"] = [ttft - (reads[0] - user_start)]
        self._measure_gaps(row, record.get("gap_ns", {}).get("delivered"), reads, "client_gap")
        arrivals = self._trace_of(record, "delivered", len(reads))
        if arrivals:
            row.errors["client_arrival"] = [at - read for at, read in zip(arrivals, reads)]
            befores = [before for before, _ in chunk_writes(server_line)]
            row.errors["client_arrival_outside"] = [outside(at, before, read)
                                                    for at, before, read in zip(arrivals, befores, reads)]

    @staticmethod
    def _measure_gaps(row, said, times, name):
        true = gaps(times)
        if said is None or not true:
            return
        row.errors[f"{name}_max"] = [said["max"] - max(true)]
        if "sum" in said:
            row.errors[f"{name}_sum"] = [said["sum"] - sum(true)]


def exact_problems(record, expected, server_line):
    """What must be equal and is not."""
    def differs(what, is_, should):
        return [] if is_ == should else [f"{what} is {is_}, should be {should}"]
    tokens = record.get("tokens", {})
    problems = differs("code", record.get("code"), expected.code)
    problems += differs("outcome", record.get("outcome"), expected.outcome)
    problems += differs("stream", record.get("stream"), expected.stream)
    problems += differs("output tokens", tokens.get("output"), expected.output_tokens)
    problems += differs("input tokens", tokens.get("input"), expected.input_tokens)
    if expected.stream:
        problems += differs("chunks", record.get("chunks"), expected.chunks)
    if server_line["end"] == "clean":
        problems += differs("response body bytes", record.get("response_body_bytes"), server_line["body_bytes"])
    phases = record.get("phases_ns", {})
    if sum(phases.values()) != record["duration_ns"]:
        problems.append(f"phases add up to {sum(phases.values())}, duration is {record['duration_ns']}")
    return problems


def gap_bounds(writes):
    """(shortest, longest) that each gap between different writes can have been, by the clocks around them."""
    distinct = sorted(set(writes))
    return [(later[0] - earlier[1], later[1] - earlier[0]) for earlier, later in zip(distinct, distinct[1:])]


def histogram_problems(buckets, edges, bounds, tolerance_ns=MS):
    """Cumulative counts at each edge lie between those of the longest and of the shortest possible gaps."""
    problems, seen = [], 0
    for count, edge in zip(buckets, edges):
        seen += count
        low = sum(longest <= edge - tolerance_ns for _, longest in bounds)
        high = sum(shortest <= edge + tolerance_ns for shortest, _ in bounds)
        if not low <= seen <= high:
            problems.append(f"{seen} sent gaps up to {edge} ns, the log allows {low} to {high}")
    return problems


def quantile(values, q):
    """The smallest value that at least q of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(q * 1000) // 1000) - 1)]


def summarize(rows, keep=lambda row: True):
    """{measure: {count, p50, p99, max, mean}} of the absolute errors (mean: signed) of the rows that `keep` takes."""
    summary = {}
    for key in MEASURES:
        errors = [error for row in rows if keep(row) for error in row.errors.get(key, [])]
        if errors:
            absolute = [abs(error) for error in errors]
            summary[key] = {"count": len(errors), "p50": quantile(absolute, 0.5), "p99": quantile(absolute, 0.99),
                            "max": max(absolute), "mean": round(sum(errors) / len(errors))}
    return summary


def verdicts(rows):
    """[(name, passed, text)]: the exact part first, then each bound that was measured."""
    wrong = [row for row in rows if row.problems]
    result = [("exact", not wrong, f"{len(rows) - len(wrong)} of {len(rows)} requests have one record a role, with exact "
               "chunks, tokens, bytes, code and outcome, and phases that tile the duration")]
    for key, measured in summarize(rows).items():
        text, bound = MEASURES[key]
        if bound is not None:
            result.append((key, measured["p99"] <= bound,
                           f"{text}: p99 {measured['p99'] / MS:.3f} ms, bound {bound / MS:g} ms"))
    return result
