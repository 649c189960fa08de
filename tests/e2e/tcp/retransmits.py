# SPDX-License-Identifier: Apache-2.0
"""Segments that are sent again, by type, against RetransSegs and its relatives."""

from rig import wire as wire_rig

from stage import Row

RETRANSMITTED = "tcp_retransmitted_segments_total"
SEGMENT = 1448  # payload of a full one on the wire


def rows_of_types(prefix, types, kernel, *, timeouts=True):
    """Our segments by type beside a namespace's counters."""
    def ours(*names):
        return int(sum(types.get(name, 0) for name in names))
    rows = [
        Row(prefix + "all types and TCPRetransFail", ours(*types) + kernel["TcpExtTCPRetransFail"], kernel["TcpRetransSegs"],
            f"TcpRetransSegs (TCPRetransFail: {kernel['TcpExtTCPRetransFail']})"),
        Row(prefix + "syn and synack", ours("syn", "synack"), kernel["TcpExtTCPSynRetrans"], "TCPSynRetrans"),
        Row(prefix + "fast", ours("fast"), kernel["TcpExtTCPFastRetrans"], "TCPFastRetrans"),
        Row(prefix + "tlp", ours("tlp"), kernel["TcpExtTCPLossProbes"], "TCPLossProbes", "<="),
    ]
    if timeouts:
        # A SYN, or a SYN-ACK, that was not answered is a timeout too; a SYN-ACK that answers a second SYN is not.
        most = kernel["TcpExtTCPSlowStartRetrans"] + kernel["TcpExtTCPTimeouts"]
        source = "TCPSlowStartRetrans + TCPTimeouts"
        if ours("synack"):
            rows.append(Row(prefix + "rto and syn", ours("rto", "syn"), [most - ours("synack"), most], source + ", some of them synack's", "within"))
        else:
            rows.append(Row(prefix + "rto and syn", ours("rto", "syn"), most, source))
    return rows


def types_of(added, *actors):
    return added.by("type", RETRANSMITTED, workload={actor.name for actor in actors})


def transfer(stage, server, client, host, size, connections, options=None):
    listening = server.listen(host=host, backlog=connections)
    server.begin("accept", listener=listening["listener"], count=connections, timeout_s=60)
    sending = [one["connection"] for one in client.connect(host=host, port=listening["port"], count=connections, timeout_s=60, options=options)]
    taking = [one["connection"] for one in server.end()]
    server.begin("pull", connections=taking, size=size // connections)
    client.begin("push", connections=sending, size=size // connections)
    client.end(600)
    server.end(600)
    client.close_sockets(connections=sending)
    server.close_sockets(connections=taking)


def loss(stage):
    """5 % of the packets lost in both directions, GSO on."""
    rows = []
    wire = stage.wire(loss=0.05, delay_ms=1, log=False)
    for congestion in ("cubic", "bbr"):
        server, client = stage.actor("s" + congestion, wire.b), stage.actor("c" + congestion, wire.a)
        stage.before(a=client, b=server)
        transfer(stage, server, client, wire_rig.B_ADDRESS, (100 if stage.long else 8) << 20, 8, {"TCP_CONGESTION": congestion})
        added, kernel = stage.after()
        for side, actor in (("a", client), ("b", server)):
            rows += rows_of_types(f"{congestion}, {'sender' if side == 'a' else 'receiver'}: ", types_of(added, actor), kernel[side])
    return rows


def local_drops(stage):
    """5 % lost on the path, and a tenth of what the sender sends dropped by its own firewall: some resends fail."""
    wire = stage.wire(loss=0.05, delay_ms=1, log=False)
    wire.a.run(["nft", "-f", "-"], input_text="table inet t { chain out { type filter hook output priority 0; "
               "tcp flags & syn == 0 numgen random mod 10 == 0 drop; }; }\n")  # TCPSynRetrans would count failed ones too
    server, client = stage.actor("srv", wire.b), stage.actor("cli", wire.a)
    stage.before(a=client)
    transfer(stage, server, client, wire_rig.B_ADDRESS, (40 if stage.long else 6) << 20, 8)
    added, kernel = stage.after()
    # A timeout whose resend failed is a timeout all the same.
    return rows_of_types("", types_of(added, client), kernel["a"], timeouts=False)


def lost_third_ack(stage):
    """The client's third ACK is lost: the SYN-ACK is sent again, nothing is dropped."""
    wire = stage.wire(drop_third_ack=True, delay_ms=2, log=False)
    server, client = stage.actor("srv", wire.b), stage.actor("cli", wire.a)
    count = 12 * stage.repetitions
    listening = server.listen(host=wire_rig.B_ADDRESS, backlog=256)
    stage.before(a=client, b=server)
    server.begin("accept", listener=listening["listener"], count=count, timeout_s=60)
    made = client.connect(host=wire_rig.B_ADDRESS, port=listening["port"], count=count)
    server.end(120)
    added, kernel = stage.after()
    client.close_sockets(connections=[one["connection"] for one in made])
    server_types = types_of(added, server)
    drops = added.total("tcp_listen_drops_total", workload=server.name)
    return [*rows_of_types("server: ", server_types, kernel["b"]), *rows_of_types("client: ", types_of(added, client), kernel["a"]),
            Row("server: synack", int(server_types.get("synack", 0)), count, "connections, each with its third ACK lost"),
            Row("drops", int(drops), kernel["b"]["TcpExtListenDrops"], "ListenDrops"),
            Row("connects, ok", int(added.total("tcp_connects_total", workload=client.name, result="ok")), count, "connections made")]


def lost_syns(stage):
    """SYNs, and the answers to others, are lost."""
    wire = stage.wire(loss=0.3, log=False)
    server, client = stage.actor("srv", wire.b), stage.actor("cli", wire.a)
    count = 20 + stage.repetitions
    listening = server.listen(host=wire_rig.B_ADDRESS, backlog=256)
    stage.before(a=client, b=server)
    begun = client.start_connects(host=wire_rig.B_ADDRESS, port=listening["port"], count=count)
    ends = client.finish_connects(connections=[one["connection"] for one in begun], timeout_s=60)
    client.close_sockets(connections=[one["connection"] for one in begun])
    added, kernel = stage.after(timeout_s=90)
    return [*rows_of_types("server: ", types_of(added, server), kernel["b"], timeouts=False),
            *rows_of_types("client: ", types_of(added, client), kernel["a"]),
            Row("connects, ok", int(added.total("tcp_connects_total", workload=client.name, result="ok")), ends.count("ok"),
                "the client's own count")]


def lost_tails(stage):
    """Of each burst of four segments the last one is lost: a probe brings it."""
    count = 20 * stage.repetitions
    # Segments with payload by their number on the wire, the probes included.
    wire = stage.wire(delay_ms=2, drop_nth=[f"a2b:{4 + 5 * burst}" for burst in range(count)], log=False)
    server, client = stage.actor("srv", wire.b), stage.actor("cli", wire.a)
    listening = server.listen(host=wire_rig.B_ADDRESS)
    server.begin("accept", listener=listening["listener"])
    sending = client.connect(host=wire_rig.B_ADDRESS, port=listening["port"])[0]["connection"]
    taking = server.end()[0]["connection"]
    stage.before(a=client, b=server)
    server.begin("pull", connections=[taking], size=count * 4 * SEGMENT)
    client.bursts(connection=sending, count=count, size=4 * SEGMENT, pause_ms=5)
    server.end()
    added, kernel = stage.after()
    types = types_of(added, client)
    return [*rows_of_types("", types, kernel["a"]),
            Row("tlp, of probes that all resent", int(types.get("tlp", 0)), kernel["a"]["TcpExtTCPLossProbes"], "TCPLossProbes"),
            Row("segments sent again", int(sum(types.values())), count, "bursts, each with its last segment lost", "within", count // 10)]


SCENARIOS = (loss, local_drops, lost_third_ack, lost_syns, lost_tails)
