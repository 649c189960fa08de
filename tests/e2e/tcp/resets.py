# SPDX-License-Identifier: Apache-2.0
"""Resets, each cause made on purpose: every one is counted once, on both sides, by its right name and no other."""

from rig import veth as veth_rig
from rig import wire as wire_rig
from rig.netns import Netns

from stage import Row, alone, over_loopback

RESETS = "tcp_resets_total"


def rows_of_causes(added, actors, kernel=None):
    """`actors`: {actor: {(direction, cause): count}}: these and no others. `kernel`: {actor: OutRsts} where they all are its own."""
    rows = []
    for actor, expected in actors.items():
        found = {}
        for labels, value in added.after.select(RESETS, workload=actor.name):
            key = labels["direction"], labels["cause"]
            found[key] = found.get(key, 0) + int(value)
        for key in sorted({*expected, *found}):
            rows.append(Row(f"{actor.name[:3]}: {', '.join(key)}", found.get(key, 0), expected.get(key, 0), "made on purpose"))
    for name, (ours, counter) in (kernel or {}).items():
        rows.append(Row(f"{name}: resets sent", ours, counter, "OutRsts"))
    return rows


def nobodys(added, cause):
    return int(added.total(RESETS, workload="unknown", direction="sent", cause=cause))


def pairs(server, client, host, count, options=None, server_options=None):
    """So many connections: (the server's ends, the client's)."""
    listening = server.listen(host=host, backlog=count, options=server_options)
    server.begin("accept", listener=listening["listener"], count=count)
    made = [one["connection"] for one in client.connect(host=host, port=listening["port"], count=count, options=options)]
    taken = [one["connection"] for one in server.end()]
    server.close_sockets(connections=[listening["listener"]])
    return taken, made


def exchange(server, client, taken, made):
    """A byte each way, read by both."""
    client.send(connections=made)
    server.receive(connections=taken)
    server.send(connections=taken)
    client.receive(connections=made)


@over_loopback
@alone
def no_listener(stage):
    """A SYN to a port on which nobody listens."""
    netns = stage.namespace()
    client = stage.actor("cli", netns)
    count = 5 * stage.repetitions
    stage.before(a=client)
    client.connect(host="127.0.0.1", port=9, count=count)
    client.connect(host="::1", port=9, count=count)
    added, kernel = stage.after()
    return [*rows_of_causes(added, {client: {("received", "no_listener"): 2 * count}}),
            Row("nobody: sent, no_listener", nobodys(added, "no_listener"), [2 * count, kernel["a"]["TcpOutRsts"] + 1000 * (stage.place == "host")],
                "made on purpose, and OutRsts", "within")]


def listen_queue_full(stage):
    """tcp_abort_on_overflow: the third ACK that finds the accept queue full is answered by a reset."""
    wire = stage.wire(delay_ms=20, log=False)
    wire.b.sysctl("net.ipv4.tcp_abort_on_overflow", 1)
    server, client = stage.actor("srv", wire.b), stage.actor("cli", wire.a)
    listening = server.listen(host=wire_rig.B_ADDRESS, backlog=8)
    stage.before(b=server, a=client)
    for _ in range(2 * stage.repetitions):
        for count in (8, 8):
            client.start_connects(host=wire_rig.B_ADDRESS, port=listening["port"], count=count)
            stage.sleep(0.15)
        server.accept_waiting(listener=listening["listener"])
    added, kernel = stage.after()
    sent = kernel["b"]["TcpOutRsts"]
    rows = rows_of_causes(added, {server: {("sent", "listen_queue_full"): sent}, client: {("received", "peer"): kernel["a"]["TcpEstabResets"]}})
    return [*rows, Row("resets at all", sent, [1, 1000], "how it was made", "within")]


def _unread(stage, closing, other, taken, made):
    other.send(connections=made)
    closing.receive(connections=taken[:0])
    stage.sleep(0.1)
    closing.close_sockets(connections=taken)
    stage.sleep(0.1)
    other.close_sockets(connections=made)


@over_loopback
def abort_on_close(stage):
    """Closed with data that nobody has read: by the server, by the client, by the death of a process."""
    netns = stage.namespace()
    count = 5 * stage.repetitions
    server, client, dying = stage.actor("srv", netns), stage.actor("cli", netns), stage.actor("die", netns)
    stage.before(a=client)
    taken, made = pairs(server, client, "127.0.0.1", count)
    _unread(stage, server, client, taken, made)
    taken, made = pairs(server, client, "::1", count)
    _unread(stage, client, server, made, taken)
    taken, made = pairs(dying, client, "127.0.0.1", count)
    client.send(connections=made)
    stage.sleep(0.1)
    dying.close()
    added, kernel = stage.after()
    rows = rows_of_causes(added, {server: {("sent", "abort_on_close"): count, ("received", "peer"): count},
                                  client: {("sent", "abort_on_close"): count, ("received", "peer"): 2 * count},
                                  dying: {("sent", "abort_on_close"): count}})
    return [*rows, Row("abort_on_close", int(added.total(RESETS, cause="abort_on_close", workload={server.name, client.name, dying.name})),
                       kernel["a"]["TcpExtTCPAbortOnClose"], "TCPAbortOnClose", "<=" if stage.place == "host" else "=")]


@over_loopback
def abort_on_linger(stage):
    """SO_LINGER with a time of 0."""
    netns = stage.namespace()
    count = 5 * stage.repetitions
    server, client = stage.actor("srv", netns), stage.actor("cli", netns)
    stage.before(a=client)
    for host in ("127.0.0.1", "::1"):
        taken, made = pairs(server, client, host, count)
        exchange(server, client, taken, made)
        for actor, closing, still in ((server, taken[::2], made[::2]), (client, made[1::2], taken[1::2])):
            actor.set_options(connections=closing, options={"SO_LINGER": [1, 0]})
            actor.close_sockets(connections=closing)
            stage.sleep(0.1)
            (client if actor is server else server).close_sockets(connections=still)
    added, _ = stage.after()
    by_server, by_client = 2 * len(taken[::2]), 2 * len(made[1::2])
    return rows_of_causes(added, {server: {("sent", "abort_on_linger"): by_server, ("received", "peer"): by_client},
                                  client: {("sent", "abort_on_linger"): by_client, ("received", "peer"): by_server}})


def abort_on_data(stage):
    """Data that crosses the close on its way, or (over loopback) comes soon after it: the closed socket is there still."""
    wire = stage.wire(delay_ms=20, log=False)
    count = 5 * stage.repetitions
    rows = []
    for prefix, near, far, host in (("", wire.b, wire.a, wire_rig.B_ADDRESS), ("loopback: ", wire.b, wire.b, "::1")):
        server, client = stage.actor("s" + host[0], near), stage.actor("c" + host[0], far)
        stage.before(b=server)
        taken, made = pairs(server, client, host, count)
        for connection, other in zip(taken, made):
            exchange(server, client, [connection], [other])
            server.close_sockets(connections=[connection])
            client.send(connections=[other], data="late")
        stage.sleep(0.3)
        client.close_sockets(connections=made)
        added, kernel = stage.after()
        rows += rows_of_causes(added, {server: {("sent", "abort_on_data"): count}, client: {("received", "peer"): count}})
        rows.append(Row(prefix + "abort_on_data", int(added.total(RESETS, cause="abort_on_data", workload=server.name)),
                        kernel["b"]["TcpExtTCPAbortOnData"], "TCPAbortOnData"))
    return rows


@alone
def on_data_after_close(stage):
    """Data on a connection that the other side has closed, of which the kernel keeps no more than a remnant; and on none at all."""
    wire = stage.wire(log=False)
    count = 5 * stage.repetitions
    server, client, forger = stage.actor("srv", wire.b), stage.actor("cli", wire.a), stage.actor("for", wire.a)
    stage.before(b=server)
    for host in (wire_rig.B_ADDRESS, wire_rig.B_ADDRESS6):
        taken, made = pairs(server, client, host, count)
        for connection, other in zip(taken, made):
            server.close_sockets(connections=[connection])
            stage.sleep(0.02)  # the FIN has been acknowledged
            client.send(connections=[other], data="late")
        stage.sleep(0.1)
        client.close_sockets(connections=made)
    for number in range(count):
        forger.forge(source=wire_rig.A_ADDRESS, host=wire_rig.B_ADDRESS, source_port=2000 + number, port=9, flags=0x18, payload="late")
    added, kernel = stage.after()
    ours = int(added.total(RESETS, workload=server.name))
    nobody = nobodys(added, "on_data_after_close")
    return [*rows_of_causes(added, {server: {("sent", "on_data_after_close"): 2 * count}, client: {("received", "peer"): 2 * count}},
                            {"server and nobody": (ours + nobody, kernel["b"]["TcpOutRsts"])}),
            Row("nobody: sent, on_data_after_close", nobody, count, "made on purpose")]


def keepalive_timeout(stage):
    """The peer no longer answers keepalive probes."""
    wire = stage.wire(control=True, log=False)
    count = 5 * stage.repetitions
    server, client = stage.actor("srv", wire.b), stage.actor("cli", wire.a)
    keepalive = {"SO_KEEPALIVE": 1, "TCP_KEEPIDLE": 1, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 1}
    stage.before(b=server, a=client)
    taken, made = pairs(server, client, wire_rig.B_ADDRESS, count, options=keepalive)
    exchange(server, client, taken, made)
    wire.black_hole(True)
    stage.sleep(4)
    added, kernel = stage.after()
    return [*rows_of_causes(added, {client: {("sent", "keepalive_timeout"): count}, server: {}},
                            {"client": (int(added.total(RESETS, workload=client.name)), kernel["a"]["TcpOutRsts"])}),
            Row("timed out", count, kernel["a"]["TcpExtTCPAbortOnTimeout"], "TCPAbortOnTimeout")]


def user_timeout(stage):
    """TCP_USER_TIMEOUT: data is not acknowledged in time; and with keepalive, probes are not answered in time."""
    wire = stage.wire(control=True, log=False)
    count = 5 * stage.repetitions
    server, client = stage.actor("srv", wire.b), stage.actor("cli", wire.a)
    stage.before(b=server, a=client)
    taken, made = pairs(server, client, wire_rig.B_ADDRESS, count, options={"TCP_USER_TIMEOUT": 800})
    exchange(server, client, taken, made)
    probing = {"TCP_USER_TIMEOUT": 800, "SO_KEEPALIVE": 1, "TCP_KEEPIDLE": 1, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 9}
    also_taken, also_made = pairs(server, client, wire_rig.B_ADDRESS, count, options=probing)
    exchange(server, client, also_taken, also_made)
    wire.black_hole(True)
    client.send(connections=made, data="unanswered")
    stage.sleep(5)
    added, kernel = stage.after()
    return [*rows_of_causes(added, {client: {("sent", "user_timeout"): 2 * count}, server: {}}),
            Row("timed out", 2 * count, kernel["a"]["TcpExtTCPAbortOnTimeout"], "TCPAbortOnTimeout")]


def invalid_segment(stage):
    """A forged SYN-ACK for a SYN that was never answered, and a forged ACK to a listener."""
    veth = stage.veth()
    count = 5 * stage.repetitions
    veth.b.run(["nft", "-f", "-"], input_text="table inet t { chain i { type filter hook input priority 0; tcp dport 80 drop; }; }\n")
    client, forger, server = stage.actor("cli", veth.a), stage.actor("for", veth.b), stage.actor("srv", veth.b)
    listening = server.listen(host=veth_rig.B_ADDRESS)
    stage.before(a=client, b=server)
    begun = [one["connection"] for one in client.start_connects(host=veth_rig.B_ADDRESS, port=80, count=count)]
    for port in client.ports(connections=begun):
        forger.forge(source=veth_rig.B_ADDRESS, host=veth_rig.A_ADDRESS, source_port=80, port=port, acknowledgment=12345, flags=0x12)
    stage.sleep(0.1)
    client.close_sockets(connections=begun)
    for number in range(count):
        client.forge(source=veth_rig.A_ADDRESS, host=veth_rig.B_ADDRESS, source_port=3000 + number, port=listening["port"], flags=0x10)
    added, kernel = stage.after()
    return rows_of_causes(added, {client: {("sent", "invalid_segment"): count}, server: {("sent", "invalid_segment"): count}},
                          {"client": (int(added.total(RESETS, workload=client.name)), kernel["a"]["TcpOutRsts"]),
                           "server": (int(added.total(RESETS, workload=server.name)), kernel["b"]["TcpOutRsts"])})


def firewall(stage):
    """A reset by a firewall: on the client's own host, and on a router of which both ends know nothing."""
    veth, router = stage.veth(), stage.enter(Netns("r"))
    count = 3 * stage.repetitions
    # a --- r --- b, beside the direct cable.
    for end, own, subnet in ((veth.a, "10.79.1.1", "10.79.2.0/24"), (veth.b, "10.79.2.1", "10.79.1.0/24")):
        network = own.rsplit(".", 1)[0]
        end.run(["ip", "link", "add", "veth1", "type", "veth", "peer", "name", "to" + network[-1], "netns", router.name])
        end.run(["ip", "address", "add", own + "/24", "dev", "veth1"])
        end.run(["ip", "link", "set", "veth1", "up"])
        router.run(["ip", "address", "add", network + ".254/24", "dev", "to" + network[-1]])
        router.run(["ip", "link", "set", "to" + network[-1], "up"])
        end.run(["ip", "route", "add", subnet, "via", network + ".254"])
    router.sysctl("net.ipv4.ip_forward", 1)
    server, client = stage.actor("srv", veth.b), stage.actor("cli", veth.a)
    stage.before(a=client, b=server)
    for netns, host, chain in ((router, "10.79.2.1", "forward"), (veth.a, veth_rig.B_ADDRESS, "output"), (veth.a, veth_rig.B_ADDRESS6, "output")):
        taken, made = pairs(server, client, host, count)
        exchange(server, client, taken, made)
        netns.run(["nft", "-f", "-"], input_text=f"table inet t {{ chain c {{ type filter hook {chain} priority 0; "
                  "meta l4proto tcp tcp flags & (syn | rst) == 0 reject with tcp reset; }; }\n")
        client.send(connections=made, data="cut")
        stage.sleep(0.2)
        netns.run(["nft", "delete", "table", "inet", "t"])
        client.close_sockets(connections=made)
        server.close_sockets(connections=taken)
    added, kernel = stage.after()
    # The server closes later, and the client's kernel knows nothing of the connection any more.
    return [*rows_of_causes(added, {client: {("received", "firewall"): 3 * count}, server: {("received", "peer"): 3 * count}}),
            Row("connections that were reset", 3 * count, kernel["a"]["TcpEstabResets"], "EstabResets")]


def firewall_on_loopback(stage):
    """... on the host that has both ends."""
    netns = stage.enter(Netns("fw"))
    count = 5 * stage.repetitions
    server, client = stage.actor("srv", netns), stage.actor("cli", netns)
    stage.before(a=client)
    taken, made = pairs(server, client, "127.0.0.1", count)
    exchange(server, client, taken, made)
    netns.run(["nft", "-f", "-"], input_text="table inet t { chain c { type filter hook input priority 0; "
              f"tcp sport {client.ports(connections=made)[0]} accept; meta l4proto tcp tcp flags & (syn | rst) == 0 reject with tcp reset; }}; }}\n")
    client.send(connections=made[1:], data="cut")
    stage.sleep(0.2)
    netns.run(["nft", "delete", "table", "inet", "t"])
    client.close_sockets(connections=made)
    server.close_sockets(connections=taken)
    added, kernel = stage.after()
    return [*rows_of_causes(added, {client: {("received", "firewall"): count - 1}, server: {("received", "peer"): count - 1}}),
            Row("connections that were reset", count - 1, kernel["a"]["TcpEstabResets"], "EstabResets")]


@over_loopback
def orderly(stage):
    """No reset at all: closed by both in either order, by the death of a process, half closed, in TIME_WAIT."""
    netns = stage.namespace()
    count = 5 * stage.repetitions
    server, client, dying = stage.actor("srv", netns), stage.actor("cli", netns), stage.actor("die", netns)
    stage.before(a=client)
    for first, second in ((0, 1), (1, 0)):
        taken, made = pairs(server, client, "127.0.0.1", count)
        exchange(server, client, taken, made)
        ends = ((server, taken), (client, made))
        ends[first][0].shut_down(connections=ends[first][1])
        ends[second][0].receive(connections=ends[second][1])
        ends[second][0].close_sockets(connections=ends[second][1])
        ends[first][0].close_sockets(connections=ends[first][1])
    taken, made = pairs(dying, client, "127.0.0.1", count)
    exchange(dying, client, taken, made)
    dying.close()
    client.receive(connections=made)
    client.close_sockets(connections=made)
    added, _ = stage.after()
    return [Row("resets", int(added.total(RESETS, workload={server.name, client.name, dying.name})), 0, "none was made")]


SCENARIOS = (no_listener, listen_queue_full, abort_on_close, abort_on_linger, abort_on_data, on_data_after_close, keepalive_timeout,
             user_timeout, invalid_segment, firewall, firewall_on_loopback, orderly)
