# SPDX-License-Identifier: Apache-2.0
"""Pooled connections that are used again just when the server closes them, and streams that a reset cuts."""

import collections
import statistics

from rig import clients
from rig import wire as wire_rig
from rig.scenario import scenario
from rig.servers import Server

from stage import Row, alone, over_loopback

MS = 1_000_000


def port_of(endpoint):
    return int(endpoint.rsplit(":", 1)[1])


def rows_of_reuse(stage, prefix, ends, client, port, idle_ms, http):
    """Of each second request that failed one record says stale reuse, with its idle age; of none that was answered."""
    failed = {local for local, end in ends if end != "good"}
    good = {local for local, end in ends if end == "good"}
    stage.sleep(2)
    resets = [one for one in stage.records("reset") if port in (port_of(one["local"]), port_of(one["remote"]))]
    stale = [one for one in resets if one["cause"] == "stale_reuse"]
    received = [one for one in stale if one["direction"] == "received"]
    sent = [one for one in stale if one["direction"] == "sent"]
    ports = [port_of(one["local"]) for one in received] + [port_of(one["remote"]) for one in sent]
    rows = [Row(f"{prefix}second requests that failed, and that were answered", min(len(failed), len(good)), [1, len(ends)],
                f"the client: {len(failed)} and {len(good)}", "within"),
            Row(f"{prefix}records of resets received: stale_reuse", sorted(port_of(one["local"]) for one in received) == sorted(failed), True,
                "one for each that failed"),
            Row(f"{prefix}records of resets sent: stale_reuse", sorted(port_of(one["remote"]) for one in sent) == sorted(failed), True,
                "one for each that failed"),
            Row(f"{prefix}... of connections whose requests were answered", len(good & set(ports)), 0, "the client"),
            Row(f"{prefix}other resets", len(resets) - len(stale), 0, "none was made"),
            Row(f"{prefix}records of the client that do not name the server as the first to close",
                sum(one.get("closed_first") != "server" for one in stale), 0, "the server closes")]
    ages = [one["idle_ns"] / MS for one in stale] or [0]
    rows += [Row(f"{prefix}idle age, ms: least", round(min(ages)), idle_ms, "the client's pauses", "within"),
             Row(f"{prefix}idle age, ms: most", round(max(ages)), idle_ms, "the client's pauses", "within")]
    total = stage.scrape().by("direction", "tcp_resets_total", cause="stale_reuse", workload=client.name)
    rows.append(Row(f"{prefix}stale_reuse, the client's metric", total, {"received": len(failed)} if failed else {}, "the client"))
    if http:
        requests = {(port_of(one["local"]), one["ordinal"]): one for one in stage.records("request")
                    if one.get("final", True) and one["role"] == "client" and port_of(one["remote"]) == port}
        outcomes = {local: requests.get((local, 2), {}).get("outcome") for local in failed | good}
        rows += [Row(f"{prefix}failed requests that are not reset_stale_reuse",
                     sorted(str(outcomes[local]) for local in failed if outcomes[local] != "reset_stale_reuse"), [], "the client"),
                 Row(f"{prefix}answered requests that are not complete",
                     sorted(str(outcomes[local]) for local in good if outcomes[local] != "complete"), [], "the client")]
        idle = [requests[local, 2]["idle_before_ns"] / MS for local in failed if (local, 2) in requests] or [0]
        rows.append(Row(f"{prefix}idle age of failed requests, ms: median", round(statistics.median(idle)), idle_ms, "the client's pauses",
                        "within"))
    return rows


def _request(one):
    body = one.body()
    body = body if isinstance(body, str) else body.decode()
    return (f"POST {one.path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body.encode())}\r\n\r\n{body}")


def _counts(stage):
    return 40 * stage.repetitions, 20


@over_loopback
@alone
def uvicorn(stage):
    """uvicorn with a keep-alive of one second, and a client that comes again after 0.99 to 1.01 s."""
    connections, lanes = _counts(stage)
    rows = []
    request = _request(scenario(chunks=2, cadence_ms=2, ttft_ms=2))
    netns = stage.namespace()
    server = stage.enter(Server("uvicorn", netns=netns, flags=["--keep-alive-s", 1]))
    client = stage.actor("cli", netns)
    stage.before(a=client)
    ends = client.reuse(host="127.0.0.1", port=server.port, kind="http", request=request, connections=connections, lanes=lanes,
                        low_ms=990, high_ms=1010, seed=stage.seed)
    rows += rows_of_reuse(stage, "", ends, client, server.port, [985, 1060], True)
    if stage.place == "host":
        return rows
    wire = stage.wire(delay_ms=5, log=False)
    server = stage.enter(Server("uvicorn", netns=wire.b, host=wire_rig.B_ADDRESS, flags=["--keep-alive-s", 1]))
    client = stage.actor("far", wire.a)
    ends = client.reuse(host=wire_rig.B_ADDRESS, port=server.port, kind="http", request=request, connections=connections, lanes=lanes,
                        low_ms=980, high_ms=1000, seed=stage.seed)
    return rows + rows_of_reuse(stage, "10 ms away: ", ends, client, server.port, [975, 1060], True)


@alone
def dropped_after_read(stage):
    """A server that reads the second request, after a pause, and then closes at once without an answer: that is no stale reuse."""
    wire = stage.wire(delay_ms=5, log=False)
    rows = []
    for prefix, netns, host in (("", wire.b, "127.0.0.1"), ("10 ms away: ", wire.a, wire_rig.B_ADDRESS)):
        server, client = stage.actor("s" + host[:3], wire.b), stage.actor("c" + host[:3], netns)
        listening = server.listen(host=host)
        server.serve_then_close(listener=listening["listener"])
        stage.before(a=client)
        ends = client.reuse(host=host, port=listening["port"], kind="http", request=_request(scenario(chunks=2)),
                            connections=10 * stage.repetitions, lanes=10, low_ms=200, high_ms=220, seed=stage.seed)
        stage.sleep(1.5)
        records = [one for one in stage.records("request") if one.get("final", True) and one["ordinal"] == 2
                   and listening["port"] in (port_of(one["local"]), port_of(one["remote"]))]
        for role in ("server", "client"):
            outcomes = collections.Counter(one["outcome"] for one in records if one["role"] == role)
            rows.append(Row(f"{prefix}{role}: outcomes of the second requests", dict(outcomes),
                            {"no_response": sum(end == "fin" for _, end in ends)}, "the client: closed without an answer"))
        stale = [one for one in stage.records("reset") if one["cause"] == "stale_reuse"]
        rows.append(Row(f"{prefix}resets named stale_reuse", len(stale), 0, "how it was made"))
    return rows


@alone
def opaque(stage):
    """The same with a protocol that nobody can parse."""
    connections, lanes = _counts(stage)
    wire = stage.wire(delay_ms=5, log=False)
    rows = []
    for prefix, netns, host, low, high in (("", wire.b, "127.0.0.1", 990, 1010), ("10 ms away: ", wire.a, wire_rig.B_ADDRESS, 980, 1000)):
        server, client = stage.actor("s" + str(low), wire.b), stage.actor("c" + str(low), netns)
        listening = server.listen(host=host)
        server.serve_until_idle(listener=listening["listener"], idle_s=1.0)
        stage.before(a=client)
        ends = client.reuse(host=host, port=listening["port"], kind="opaque", request="\x01asking\x02", connections=connections,
                            lanes=lanes, low_ms=low, high_ms=high, seed=stage.seed)
        rows += rows_of_reuse(stage, prefix, ends, client, listening["port"], [low - 5, 1060], False)
    return rows


@over_loopback
def cut_streams(stage):
    """Streams that the server cuts by a reset after so many chunks: the record says how many had come."""
    netns = stage.namespace()
    server = stage.enter(Server("cpp", netns=netns))
    stage.before()
    chunks = {f"cut-{number}": 1 + stage.draw.randrange(20) for number in range(5 * stage.repetitions)}
    plan = [clients.connection(server.host, server.port, [clients.request(tag, scenario(chunks=count, cadence_ms=3, ttft_ms=5, end="rst"))])
            for tag, count in chunks.items()]
    lines = clients.run_plan(plan, netns=netns)
    logged = {line["tag"]: line for line in server.log(requests=len(chunks))}
    stage.sleep(1.5)
    rows = []
    records = stage.records("reset")
    for role, direction in (("server", "sent"), ("client", "received")):
        told = {}
        for one in records:
            if one.get("role") == role and one["direction"] == direction:
                told.setdefault(port_of(one["remote" if role == "server" else "local"]), []).append(one.get("chunks"))
        expected = {line["local_port"]: [chunks[tag]] for tag, line in lines.items()}
        ours = {port: told.get(port, []) for port in expected}
        rows.append(Row(f"{role}: records with the right number of chunks", sum(ours[port] == expected[port] for port in expected), len(expected),
                        f"the server's log: {sum(len(line['steps']) > 0 for line in logged.values())} streams"))
    return rows


SCENARIOS = (uvicorn, opaque, dropped_after_read, cut_streams)
