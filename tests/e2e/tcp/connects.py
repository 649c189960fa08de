# SPDX-License-Identifier: Apache-2.0
"""Connects: each attempt has exactly one outcome; and what opened, by state and in bytes."""

from rig import veth as veth_rig
from rig import wire as wire_rig

import kernel as kernel_side
from stage import Row, alone, over_loopback

CONNECTS = "tcp_connects_total"
NOWHERE = "10.78.0.99"  # in the veth's network, nobody has it


def rows_of_results(prefix, added, client, expected):
    """All results of one client, the ones that are not expected too."""
    results = {key: int(value) for key, value in added.by("result", CONNECTS, workload=client.name).items()}
    return [Row(f"{prefix}{result}", results.get(result, 0), expected.get(result, 0), "the client's own count")
            for result in sorted({*expected, *results})]


def _errors(made):
    return sorted({one.get("error", "ok") for one in made})


def _no_icmp_limit(netns):
    netns.sysctl("net.ipv4.icmp_ratelimit", 0)
    netns.sysctl("net.ipv6.icmp.ratelimit", 0)


@over_loopback
def ok(stage):
    """Connections made, over IPv4 and IPv6; half of them closed at once, without data; the others after a byte each way."""
    netns = stage.namespace()
    server, client = stage.actor("srv", netns), stage.actor("cli", netns)
    count = 20 * stage.repetitions
    stage.before(a=client)
    for host in ("127.0.0.1", "::1"):
        listening = server.listen(host=host)
        server.begin("accept", listener=listening["listener"], count=count)
        made = [one["connection"] for one in client.connect(host=host, port=listening["port"], count=count)]
        taken = [one["connection"] for one in server.end()]
        client.send(connections=made[:count // 2])
        server.receive(connections=taken[:count // 2])
        client.close_sockets(connections=made)
        server.close_sockets(connections=taken)
    added, kernel = stage.after()
    rows = rows_of_results("", added, client, {"ok": 2 * count})
    return [*rows,
            Row("opened, client", int(added.total("tcp_connections_opened_total", workload=client.name, role="client")), 2 * count, "connections made"),
            Row("opened, server", int(added.total("tcp_connections_opened_total", workload=server.name, role="server")), 2 * count, "connections made"),
            Row("opened, client", int(added.total("tcp_connections_opened_total", workload=client.name, role="client")),
                kernel["a"]["TcpActiveOpens"], "ActiveOpens", "=" if stage.place != "host" else "<="),
            Row("opened, server", int(added.total("tcp_connections_opened_total", workload=server.name, role="server")),
                kernel["a"]["TcpPassiveOpens"], "PassiveOpens", "=" if stage.place != "host" else "<="),
            Row("no reset", int(added.total("tcp_resets_total", workload={client.name, server.name})), 0, "none was made")]


def refused(stage):
    """Nobody listens: RST. And a router's answer that the application sees as refusal: port unreachable."""
    veth = stage.veth()
    _no_icmp_limit(veth.b)
    veth.b.run(["nft", "-f", "-"], input_text="table inet t { chain i { type filter hook input priority 0; "
               "tcp dport 81 reject with icmpx port-unreachable; }; }\n")
    client = stage.actor("cli", veth.a)
    count = 10 * stage.repetitions
    stage.before(a=client)
    errors = _errors(client.connect(host=veth_rig.B_ADDRESS, port=80, count=count) +
                     client.connect(host=veth_rig.B_ADDRESS6, port=80, count=count) +
                     client.connect(host=veth_rig.B_ADDRESS, port=81, count=count))
    added, _ = stage.after()
    return [*rows_of_results("", added, client, {"refused": 3 * count}),
            Row("errors", errors, ["ECONNREFUSED"], "the client")]


def unreachable(stage):
    """A router's answers: host, network, prohibited; over IPv6; and an address that nobody has."""
    veth = stage.veth()
    _no_icmp_limit(veth.b)
    veth.b.run(["nft", "-f", "-"], input_text="table inet t { chain i { type filter hook input priority 0; "
               "tcp dport 81 reject with icmpx host-unreachable; tcp dport 82 reject with icmpx no-route; "
               "tcp dport 83 reject with icmpx admin-prohibited; }; }\n")
    client = stage.actor("cli", veth.a)
    count = 2 * stage.repetitions
    stage.before(a=client)
    made = []
    for host in (veth_rig.B_ADDRESS, veth_rig.B_ADDRESS6):
        for port in (81, 82, 83):
            made += client.connect(host=host, port=port, count=count)
    made += client.connect(host=NOWHERE, port=80, count=1)
    added, _ = stage.after()
    ended = {"EHOSTUNREACH", "ENETUNREACH", "EACCES"}
    return [*rows_of_results("", added, client, {"unreachable": sum(one.get("error") in ended for one in made)}),
            Row("errors", _errors(made), sorted(ended), "the client")]


def timed_out(stage):
    """Nobody answers: the kernel gives up; TCP_USER_TIMEOUT; and a client that gives up itself."""
    veth = stage.veth()
    veth.b.run(["nft", "-f", "-"], input_text="table inet t { chain i { type filter hook input priority 0; tcp dport 80 drop; }; }\n")
    client = stage.actor("cli", veth.a)
    stage.before(a=client)
    begun = [one["connection"] for one in
             client.start_connects(host=veth_rig.B_ADDRESS, port=80, count=4, options={"TCP_SYNCNT": 1}) +
             client.start_connects(host=veth_rig.B_ADDRESS, port=80, count=4, options={"TCP_USER_TIMEOUT": 1500})]
    given_up = client.connect(host=veth_rig.B_ADDRESS, port=80, count=3, timeout_s=0.2)
    ends = client.finish_connects(connections=begun, timeout_s=20)
    client.close_sockets(connections=begun)
    added, kernel = stage.after()
    return [*rows_of_results("", added, client, {"timeout": ends.count("ETIMEDOUT"), "aborted": len(given_up)}),
            Row("errors", sorted(set(ends)), ["ETIMEDOUT"], "the client"),
            Row("timeouts", int(added.total(CONNECTS, workload=client.name, result="timeout")), kernel["a"]["TcpAttemptFails"], "AttemptFails")]


def aborted(stage):
    """Closed before there was an answer: non-blocking, interrupted by a signal, the process killed. Each is one outcome."""
    veth = stage.veth()
    veth.b.run(["nft", "-f", "-"], input_text="table inet t { chain i { type filter hook input priority 0; tcp dport 80 drop; }; }\n")
    client, killed = stage.actor("cli", veth.a), stage.actor("kil", veth.a)
    count = 5 * stage.repetitions
    stage.before(a=client)
    client.close_sockets(connections=[one["connection"] for one in client.start_connects(host=veth_rig.B_ADDRESS, port=80, count=count)])
    interruptions = [client.interrupted_connect(host=veth_rig.B_ADDRESS, port=80, after_ms=50) for _ in range(count)]
    killed.start_connects(host=veth_rig.B_ADDRESS, port=80, count=count)
    killed.close()
    added, _ = stage.after()
    return [*rows_of_results("", added, client, {"aborted": 2 * count}), *rows_of_results("killed: ", added, killed, {"aborted": count}),
            Row("interrupted", sorted(set(interruptions)), ["EINTR"], "the client")]


@alone
def slow_but_ok(stage):
    """Non-blocking connects over a slow path, polled, and one that a signal interrupts before it is established."""
    wire = stage.wire(delay_ms=40, log=False)
    server, client = stage.actor("srv", wire.b), stage.actor("cli", wire.a)
    listening = server.listen(host=wire_rig.B_ADDRESS)
    count = 10 * stage.repetitions
    stage.before(a=client)
    begun = [one["connection"] for one in client.start_connects(host=wire_rig.B_ADDRESS, port=listening["port"], count=count)]
    ends = client.finish_connects(connections=begun, timeout_s=10)
    client.close_sockets(connections=begun)
    added, _ = stage.after()
    seconds = added.total("tcp_connect_seconds_sum", workload=client.name)
    return [*rows_of_results("", added, client, {"ok": ends.count("ok")}),
            Row("connects timed", int(added.total("tcp_connect_seconds_count", workload=client.name)), count, "connections made"),
            Row("mean time, ms", round(1000 * seconds / count, 1), [80, 90], "the wire: 80 ms", "within")]


def no_port_left(stage):
    """Every port that a client may use is taken: no SYN leaves."""
    netns = stage.namespace()
    netns.sysctl("net.ipv4.ip_local_port_range", "40000 40009")
    server, client = stage.actor("srv", netns), stage.actor("cli", netns)
    listening = server.listen(port=50000, backlog=64)
    stage.before(a=client)
    made = client.connect(host="127.0.0.1", port=listening["port"], count=15)
    added, kernel = stage.after()
    errors = [one.get("error", "ok") for one in made]
    return [*rows_of_results("", added, client, {"ok": errors.count("ok"), "no_port": errors.count("EADDRNOTAVAIL")}),
            Row("connects that began", int(added.total("tcp_connections_opened_total", workload=client.name)), kernel["a"]["TcpActiveOpens"], "ActiveOpens")]


def states(stage):
    """Connections held in each state, beside ss."""
    veth = stage.veth()
    server, client = stage.actor("srv", veth.b), stage.actor("cli", veth.a)
    listening = server.listen(host=veth_rig.B_ADDRESS)
    stage.before(a=client)
    server.begin("accept", listener=listening["listener"], count=12)
    made = [one["connection"] for one in client.connect(host=veth_rig.B_ADDRESS, port=listening["port"], count=12)]
    taken = [one["connection"] for one in server.end()]
    client.shut_down(connections=made[:3])    # FIN_WAIT2 here, CLOSE_WAIT there
    server.shut_down(connections=taken[:1])   # both have closed
    veth.b.run(["nft", "-f", "-"], input_text="table inet t { chain i { type filter hook input priority 0; tcp dport 80 drop; }; }\n")
    client.start_connects(host=veth_rig.B_ADDRESS, port=80, count=2)
    stage.sleep(1.8)
    scrape = stage.scrape()
    rows = []
    for actor, netns in ((client, veth.a), (server, veth.b)):
        shown = kernel_side.states(actor.pid, netns)
        ours = {key: int(value) for key, value in scrape.by("state", "tcp_connections", workload=actor.name).items()}
        # Both ends of one have closed it, and have the descriptor still: ss does not show those.
        shown["close"] = 1
        rows += [Row(f"{actor.name[:3]}: {state}", ours.get(state, 0), shown.get(state, 0),
                     "closed by both ends" if state == "close" else "ss -tan") for state in sorted({*ours, *shown})]
    return rows


def sizes(stage):
    """Segments, payload and header bytes of both sides, beside TCP_INFO and beside a capture; also while the connections live."""
    veth = stage.veth()
    server, client = stage.actor("srv", veth.b), stage.actor("cli", veth.a)
    listening = server.listen(host=veth_rig.B_ADDRESS)
    capture = stage.capture(veth.b, "veth0", f"tcp port {listening['port']}")
    stage.before(a=client)
    server.begin("accept", listener=listening["listener"], count=4)
    made = [one["connection"] for one in client.connect(host=veth_rig.B_ADDRESS, port=listening["port"], count=4)]
    taken = [one["connection"] for one in server.end()]
    server.begin("pull", connections=taken, size=1_000_000)
    client.push(connections=made, size=1_000_000)
    server.end()
    for connection, other in zip(made, taken):
        server.begin("echo", connection=other, size=300, count=20)
        client.ping(connection=connection, size=300, count=20, every_ms=2)
        server.end()
    stage.sleep(0.3)
    added, _ = stage.after()
    rows = []
    for actor, connections, role in ((client, made, "client"), (server, taken, "server")):
        infos = actor.info(connections=connections)
        for direction, segments, size in (("sent", "segs_out", "bytes_sent"), ("received", "segs_in", "bytes_received")):
            labels = {"workload": actor.name, "role": role, "direction": direction}
            rows += [Row(f"{role}, {direction}: segments", int(added.total("tcp_segments_total", **labels)), sum(one[segments] for one in infos),
                         f"TCP_INFO: {segments}"),
                     Row(f"{role}, {direction}: payload bytes", int(added.total("tcp_payload_bytes_total", **labels)),
                         sum(one[size] - (one["bytes_retrans"] if direction == "sent" else 0) for one in infos), f"TCP_INFO: {size}")]
    capture.stop()
    for direction, source in (("received", veth_rig.A_ADDRESS), ("sent", veth_rig.B_ADDRESS)):
        labels = {"workload": server.name, "role": "server", "direction": direction}
        seen = [one for one in capture.segments() if one.source == source]
        # A capture sees the packets that GSO and GRO have joined: it cannot count segments, but payload.
        rows.append(Row(f"server, {direction}: payload bytes", int(added.total("tcp_payload_bytes_total", **labels)),
                        sum(one.payload_bytes for one in seen), "tcpdump"))
        segments = added.total("tcp_segments_total", **labels)
        rows.append(Row(f"server, {direction}: header bytes a segment", round(added.total("tcp_header_bytes_total", **labels) / segments, 1),
                        52, "IPv4, and TCP with timestamps: 52", "within", 2))
    return rows


SCENARIOS = (ok, refused, unreachable, timed_out, aborted, slow_but_ok, no_port_left, states, sizes)
