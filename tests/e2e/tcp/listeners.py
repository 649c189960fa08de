# SPDX-License-Identifier: Apache-2.0
"""Listen queues: what was dropped and why, beside ListenDrops and its relatives; lengths and limits beside ss; accept wait."""

from rig import veth as veth_rig
from rig import wire as wire_rig

import kernel as kernel_side
from stage import Row, alone, over_loopback

SPOOFED = {4: "198.18.", 6: "fd99::"}
HOST = {4: veth_rig.B_ADDRESS, 6: veth_rig.B_ADDRESS6}
LISTEN_DROPS, SYNCOOKIES = "tcp_listen_drops_total", "tcp_syncookies_total"


def rows_of_drops(prefix, added, kernel, *servers):
    """Our drops by reason beside a namespace's counters. `servers`: all who listen there."""
    names = frozenset(servers)
    reasons = added.by("reason", LISTEN_DROPS, workload=names)
    return [
        Row(prefix + "drops, all reasons", int(sum(reasons.values())), kernel["TcpExtListenDrops"], "ListenDrops"),
        Row(prefix + "accept_queue_full", int(reasons.get("accept_queue_full", 0)), kernel["TcpExtListenOverflows"],
            "ListenOverflows"),
        Row(prefix + "syn_queue_full", int(reasons.get("syn_queue_full", 0)), kernel["TcpExtTCPReqQFullDrop"], "TCPReqQFullDrop"),
        Row(prefix + "SYN cookies", int(added.total(SYNCOOKIES, workload=names)), kernel["TcpExtSyncookiesSent"],
            "SyncookiesSent"),
    ]


def rows_of_records(stage, prefix, server, reason, limit_name, limit_value):
    """The records of a listener tell of all its drops, of the limit and its fix, at most once a second."""
    records = [one for one in stage.records("listen_drop") if one["workload"] == server.name and one["reason"] == reason]
    total = stage.scrape().total(LISTEN_DROPS, workload=server.name, reason=reason)
    times = sorted(one["time_unix_ns"] for one in records)
    close = sum(later - earlier < 1_000_000_000 for earlier, later in zip(times, times[1:]))
    return [
        Row(prefix + f"records, their counts of {reason}", sum(one["count"] for one in records), int(total), "the metric"),
        Row(prefix + "records within a second of another", close, 0, "the contract"),
        Row(prefix + "the limit's name in records", ", ".join(sorted({one["limit_name"] for one in records})), limit_name, "how it was made"),
        Row(prefix + "the limit's value", ", ".join(sorted({str(one["limit_value"]) for one in records})), str(limit_value),
            "how it was made"),
        Row(prefix + "records without a fix", sum(not one.get("fix") for one in records), 0, "the contract"),
    ]


def rows_of_queues(prefix, scrape, server, port, netns):
    """Lengths and limits now, beside ss."""
    shown = kernel_side.listen_queues(port, netns)
    labels = {"workload": server.name, "port": str(port)}
    return [
        Row(prefix + "accept queue's length", int(scrape.total("tcp_accept_queue_length", **labels)),
            sum(length for length, _ in shown), "ss -ltn: Recv-Q"),
        Row(prefix + "accept queue's limit", int(scrape.total("tcp_accept_queue_limit", **labels)),
            sum(limit for _, limit in shown), "ss -ltn: Send-Q"),
    ]


def _flood(stage, *, cookies, backlog, version=4, bound=None, max_syn_backlog=None, count=3000):
    veth = stage.veth()
    veth.b.sysctl("net.ipv4.tcp_syncookies", cookies)
    if max_syn_backlog:
        veth.b.sysctl("net.ipv4.tcp_max_syn_backlog", max_syn_backlog)
    server, sender = stage.actor("srv", veth.b), stage.actor("syn", veth.a)
    listening = server.listen(host=bound or HOST[version], backlog=backlog)
    stage.before(b=server)
    sender.flood(host=HOST[version], port=listening["port"], count=count * (10 if stage.long else 1), sources=SPOOFED[version],
                 seed=stage.seed, pause_every=100, pause_ms=10)
    if cookies != 2:
        stage.wait_for(lambda: kernel_side.counters(server.pid)["TcpExtTCPSynRetrans"] > 0, "SYN-ACKs that are sent again")
    # A closed listener sends no SYN-ACK again: the counters stand still.
    # With cookies for all, whoever asks an agent in this namespace for its metrics gets one too.
    rows = rows_of_queues("", *_now(stage), server, listening["port"], veth.b) if cookies != 2 else []
    added, kernel, = _closed(stage, server, listening)
    return rows, added, kernel["b"], server, listening


def _now(stage):
    stage.sleep(1.6)
    return (stage.scrape(),)


def _closed(stage, server, listening):
    server.close_sockets(connections=[listening["listener"]])
    return stage.after()


def _flood_rows(stage, *, limit=None, **options):
    rows, added, kernel, server, _ = _flood(stage, **options)
    rows += rows_of_drops("", added, kernel, server.name)
    rows.append(Row("SYN-ACKs sent again", int(added.total("tcp_retransmitted_segments_total", workload=server.name, type="synack")),
                    kernel["TcpExtTCPSynRetrans"], "TCPSynRetrans"))
    if limit:
        rows += rows_of_records(stage, "", server, *limit)
    return rows


def flood_with_cookies(stage):
    """SYNs from spoofed addresses, cookies on: none is dropped."""
    return _flood_rows(stage, cookies=1, backlog=128)


def flood_without_cookies(stage):
    """... cookies off: what does not fit in the SYN queue is dropped."""
    return _flood_rows(stage, cookies=0, backlog=64, limit=("syn_queue_full", "backlog", 64))


def flood_over_ipv6(stage):
    return _flood_rows(stage, cookies=0, backlog=64, version=6, limit=("syn_queue_full", "backlog", 64))


def flood_over_both_versions(stage):
    """A listener on ::, and SYNs over IPv4."""
    return _flood_rows(stage, cookies=0, backlog=64, bound="::", limit=("syn_queue_full", "backlog", 64))


def flood_with_cookies_always(stage):
    """tcp_syncookies = 2: every SYN gets a cookie."""
    return _flood_rows(stage, cookies=2, backlog=128)


def flood_to_max_syn_backlog(stage):
    """Cookies off, and tcp_max_syn_backlog lower than the listener's own limit."""
    rows, added, kernel, server, _ = _flood(stage, cookies=0, backlog=1024, max_syn_backlog=256)
    rows += rows_of_drops("", added, kernel, server.name)
    reasons = added.by("reason", LISTEN_DROPS, workload=server.name)
    rows.append(Row("max_syn_backlog", int(reasons.get("max_syn_backlog", 0)), kernel["TcpExtListenDrops"], "ListenDrops, no other reason"))
    return rows + rows_of_records(stage, "", server, "max_syn_backlog", "tcp_max_syn_backlog", 256)


def _never_accepted(stage, backlog, somaxconn=None, bound="127.0.0.1", host="127.0.0.1"):
    """Connects to a listener that never accepts: the kernel drops what its queue has no room for."""
    netns = stage.namespace()
    if somaxconn:
        netns.sysctl("net.core.somaxconn", somaxconn)
    server, client = stage.actor("srv", netns), stage.actor("cli", netns)
    listening = server.listen(host=bound, backlog=backlog)
    stage.before(b=server)
    begun = client.start_connects(host=host, port=listening["port"], count=50)
    stage.sleep(7 if stage.long else 3.5)  # SYNs are sent again after one second, and after three
    rows = rows_of_queues("", stage.scrape(), server, listening["port"], netns)
    client.close_sockets(connections=[one["connection"] for one in begun])
    added, kernel = stage.after()
    rows += rows_of_drops("", added, kernel["b"], server.name)
    rows.append(Row("drops at all", int(added.total(LISTEN_DROPS, workload=server.name)), [48, 1000], "50 connects, 2 places", "within"))
    limit = ("accept_queue_full", "somaxconn", somaxconn) if somaxconn else ("accept_queue_full", "backlog", backlog)
    return rows + rows_of_records(stage, "", server, *limit)


@over_loopback
def never_accepted(stage):
    """listen(1) and 50 connects, none accepted."""
    return _never_accepted(stage, 1)


@over_loopback
def never_accepted_over_ipv6(stage):
    return _never_accepted(stage, 1, bound="::1", host="::1")


@over_loopback
def never_accepted_both_versions(stage):
    """A listener on ::, and connects over IPv4."""
    return _never_accepted(stage, 1, bound="::")


def never_accepted_somaxconn(stage):
    """... where the system's limit is the lower one."""
    return _never_accepted(stage, 100, somaxconn=1)


def third_ack_overflow(stage):
    """Handshakes begun while there was room, ended when there was none: their third ACKs are dropped."""
    wire = stage.wire(delay_ms=20, log=False)
    server, client = stage.actor("srv", wire.b), stage.actor("cli", wire.a)
    listening = server.listen(host=wire_rig.B_ADDRESS, backlog=8)
    stage.before(b=server, a=client)
    begun = []
    for _ in range(3 * min(stage.repetitions, 4)):  # within a minute: no request may expire
        for count in (8, 8):
            begun += client.start_connects(host=wire_rig.B_ADDRESS, port=listening["port"], count=count)
            stage.sleep(0.15)
        stage.sleep(1.2)
        server.accept_waiting(listener=listening["listener"])
    connections = [one["connection"] for one in begun]
    ends = client.finish_connects(connections=connections, timeout_s=30)
    # Half of them with a FIN each, which is dropped like an ACK; a reset each ends it.
    client.shut_down(connections=connections[::2])
    stage.sleep(1)
    client.set_options(connections=connections, options={"SO_LINGER": [1, 0]})
    client.close_sockets(connections=connections)
    added, kernel = stage.after()
    return [*rows_of_drops("", added, kernel["b"], server.name),
            Row("drops of third ACKs happened", int(added.total(LISTEN_DROPS, workload=server.name)), [1, 10000], "how it was made", "within"),
            Row("connects, ok", int(added.total("tcp_connects_total", workload=client.name, result="ok")), ends.count("ok"),
                "the client's own count")]


@over_loopback
def deferred_accept(stage):
    """TCP_DEFER_ACCEPT: the third ACK without data is ignored, which is no drop."""
    netns = stage.namespace()
    server, client = stage.actor("srv", netns), stage.actor("cli", netns)
    listening = server.listen(backlog=64, options={"TCP_DEFER_ACCEPT": 10})
    stage.before(b=server)
    made = [one["connection"] for one in client.connect(host="127.0.0.1", port=listening["port"], count=20)]
    client.send(connections=made)
    server.accept(listener=listening["listener"], count=20)
    added, kernel = stage.after()
    return [*rows_of_drops("", added, kernel["b"], server.name),
            Row("sum of drops", int(added.total(LISTEN_DROPS, workload=server.name)), 0, "how it was made")]


def deferred_accept_overflow(stage):
    """TCP_DEFER_ACCEPT and a full accept queue: third ACKs without data are ignored, until the listener has waited long enough; data and FINs are
    dropped."""
    wire = stage.wire(delay_ms=10, log=False)
    server, client = stage.actor("srv", wire.b), stage.actor("cli", wire.a)
    listening = server.listen(host=wire_rig.B_ADDRESS, backlog=4, options={"TCP_DEFER_ACCEPT": 1})
    stage.before(b=server)
    def connections(count):
        return [one["connection"] for one in client.connect(host=wire_rig.B_ADDRESS, port=listening["port"], count=count)]
    client.send(connections=connections(4))
    stage.sleep(0.1)
    silent, late = connections(2), connections(2)
    client.send(connections=connections(1))  # the fifth with data: the queue is full
    rows = rows_of_queues("", _now(stage)[0], server, listening["port"], wire.b)
    client.send(connections=late)
    stage.sleep(8)  # SYN-ACKs are sent again, and answered
    client.set_options(connections=silent + late, options={"SO_LINGER": [1, 0]})
    client.close_sockets(connections=silent + late)
    added, kernel = stage.after()
    return rows + rows_of_drops("", added, kernel["b"], server.name)


@over_loopback
def closed_at_once(stage):
    """A listener that is closed right after it dropped something: its drops are not lost."""
    netns = stage.namespace()
    client = stage.actor("cli", netns)
    rows = []
    for number in range(3 * stage.repetitions):
        server = stage.actor(f"s{number}", netns)
        listening = server.listen(backlog=1)
        stage.before(b=server)
        begun = client.start_connects(host="127.0.0.1", port=listening["port"], count=30)
        server.close()
        client.close_sockets(connections=[one["connection"] for one in begun])
        # The server's process is gone: the counters are the client's namespace's, which is the same.
        stage.window(b=client)
        added, kernel = stage.after()
        rows += rows_of_drops(f"{number}: ", added, kernel["b"], server.name)
    return rows


def _accepts_slowly(stage, server, listener, client, port, count, every_ms):
    """Connects one after the other, each when the one before was accepted. The true waits in seconds."""
    server.begin("accept", listener=listener, count=count, every_ms=every_ms, timeout_s=30, greet=True)
    made = client.connect(host="127.0.0.1", port=port, count=count, wait_for_greeting=True, timeout_s=30)
    accepted = {one["peer_port"]: one["at_ns"] for one in server.end()}
    return [(accepted[one["port"]] - one["after_ns"]) / 1e9 for one in made]


@over_loopback
@alone
def accept_wait(stage):
    """A server that accepts every 300 ms."""
    netns = stage.namespace()
    server, client = stage.actor("srv", netns), stage.actor("cli", netns)
    listening = server.listen(backlog=16)
    count = 10 * stage.repetitions
    stage.before(b=server)
    waits = _accepts_slowly(stage, server, listening["listener"], client, listening["port"], count, 300)
    added, _ = stage.after()
    ours = added.total("tcp_accept_wait_seconds_sum", workload=server.name)
    return [Row("connections whose wait was measured", int(added.total("tcp_accept_wait_seconds_count", workload=server.name)), count,
                "connections accepted"),
            Row("mean wait, ms", round(1000 * ours / count, 2), round(1000 * sum(waits) / count, 2), "both programs' clocks", "within", 2),
            Row("mean wait is about 300 ms", round(1000 * ours / count), [270, 305], "how it was made", "within")]


@over_loopback
@alone
def accept_wait_shared_port(stage):
    """Four processes with a listener each on one port (SO_REUSEPORT), each accepts every 300 ms; then none accepts."""
    netns = stage.namespace()
    servers = [stage.actor(f"s{number}", netns) for number in range(4)]
    client = stage.actor("cli", netns)
    first = servers[0].listen(backlog=4, options={"SO_REUSEPORT": 1})
    port = first["port"]
    listeners = [first] + [one.listen(port=port, backlog=4, options={"SO_REUSEPORT": 1}) for one in servers[1:]]
    stage.before(b=client)
    begun = client.start_connects(host="127.0.0.1", port=port, count=12)
    connections = [one["connection"] for one in begun]
    client.finish_connects(connections=connections, timeout_s=10)
    rows = []
    stage.sleep(1.6)
    scrape = stage.scrape()
    lengths = [int(scrape.total("tcp_accept_queue_length", workload=one.name, port=str(port))) for one in servers]
    shown = sorted(length for length, _ in kernel_side.listen_queues(port, netns))
    rows.append(Row("lengths of the four queues", sorted(lengths), shown, "ss -ltn: Recv-Q"))
    rows.append(Row("limits", [int(scrape.total("tcp_accept_queue_limit", workload=one.name, port=str(port))) for one in servers], [4] * 4,
                    "listen(4)"))
    for one, listening, length in zip(servers, listeners, lengths):
        accepted = one.accept(listener=listening["listener"], count=length, every_ms=300) if length else []
        rows.append(Row(f"{one.name[:2]}: accepted, as its queue was long", len(accepted), length, "accept()"))
    added, _ = stage.after()
    for one, length in zip(servers, lengths):
        rows.append(Row(f"{one.name[:2]}: waits measured", int(added.total("tcp_accept_wait_seconds_count", workload=one.name)), length,
                        "connections accepted"))
    # Now none accepts, and the queues overflow.
    stage.before(b=client)
    begun += client.start_connects(host="127.0.0.1", port=port, count=100)
    stage.sleep(1.5)
    client.close_sockets(connections=[one["connection"] for one in begun])
    added, kernel = stage.after()
    rows += rows_of_drops("overflow: ", added, kernel["b"], *(one.name for one in servers))
    scrape = stage.scrape()
    for one in servers:
        rows.append(Row(f"{one.name[:2]}: dropped something", int(added.total(LISTEN_DROPS, workload=one.name)), [1, 1000], "100 connects to 20 places",
                        "within"))
    return rows


SCENARIOS = (flood_with_cookies, flood_without_cookies, flood_over_ipv6, flood_over_both_versions, flood_with_cookies_always, flood_to_max_syn_backlog,
             never_accepted, never_accepted_over_ipv6, never_accepted_both_versions, never_accepted_somaxconn, third_ack_overflow, deferred_accept,
             deferred_accept_overflow, closed_at_once,
             accept_wait, accept_wait_shared_port)
