# SPDX-License-Identifier: Apache-2.0
"""Whose a connection is: the process that connects, accepts, reads; never one that happened to run when a packet came."""

import os

from rig import veth as veth_rig
from rig.scenario import scenario
from rig.servers import Server

from stage import Row, alone, over_loopback

SEGMENTS, OPENED = "tcp_segments_total", "tcp_connections_opened_total"
# What has a process's name on it, of connections.
FAMILIES = ("tcp_segments_total", "tcp_payload_bytes_total", "tcp_retransmitted_segments_total", "tcp_connects_total",
            "tcp_connections_opened_total", "tcp_resets_total", "tcp_listen_drops_total", "tcp_accept_wait_seconds_count",
            "tcp_connections", "tcp_rtt_samples_total", "requests_total")


def _named(scrape, name):
    """Families in which this workload occurs with something."""
    return sorted(family for family in FAMILIES if any(value for _, value in scrape.select(family, workload=name)))


@alone
def busy_loops(stage):
    """Busy loops on every CPU, packets handled by whichever CPU: none of them ever owns something."""
    veth = stage.veth()
    cpus = sorted(os.sched_getaffinity(0))
    for netns in (veth.a, veth.b):  # receive packet steering: packets are handled on the last CPU
        netns.run(["sh", "-c", f"echo {1 << cpus[-1]:x} > /sys/class/net/veth0/queues/rx-0/rps_cpus"])
    server, client = stage.actor("srv", veth.b), stage.actor("cli", veth.a)
    loops = [stage.actor(f"bz{cpu}", veth.a) for cpu in cpus]
    seconds = 8 if stage.long else 4
    stage.before(a=client)
    listening = server.listen(host=veth_rig.B_ADDRESS)
    server.answer_forever(listener=listening["listener"])
    for loop, cpu in zip(loops, cpus):
        loop.begin("spin", cpu=cpu, seconds=seconds)
    client.pin(cpu=cpus[0])
    rounds = 0
    deadline = stage.now() + seconds - 1
    while stage.now() < deadline:
        made = [one["connection"] for one in client.connect(host=veth_rig.B_ADDRESS, port=listening["port"], count=10)]
        client.send(connections=made, data="ask", repeat=500)
        client.receive(connections=made)
        client.connect(host=veth_rig.B_ADDRESS, port=9, count=2)
        client.close_sockets(connections=made)
        rounds += 1
    for loop in loops:
        loop.end()
    added, _ = stage.after()
    rows = [Row(f"families with {loop.name.split('-')[0]}", _named(added.after, loop.name), [], "it has no socket") for loop in loops]
    # How many is for other scenarios: what packets interrupt here may be a thread in which no program runs (rig/disturbance.py).
    return [*rows, Row("client: connections", int(added.total(OPENED, workload=client.name)), [9 * rounds, 10 * rounds], "connections made", "within"),
            Row("server: connections", int(added.total(OPENED, workload=server.name)), [9 * rounds, 10 * rounds], "connections made", "within")]


@over_loopback
def passed_descriptors(stage):
    """A process accepts and passes the descriptor to another one (SCM_RIGHTS), which answers the requests."""
    netns = stage.namespace()
    acceptor, worker, client = stage.actor("acc", netns), stage.actor("wrk", netns), stage.actor("cli", netns)
    one = scenario(chunks=2)
    body = one.body().decode() if isinstance(one.body(), bytes) else one.body()
    request = (f"POST {one.path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body.encode())}\r\n\r\n{body}")
    answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    count = 5 * stage.repetitions
    stage.before(a=client)
    listening = acceptor.listen()
    for number in range(count):
        acceptor.begin("accept", listener=listening["listener"])
        made = client.connect(host="127.0.0.1", port=listening["port"])[0]["connection"]
        taken = acceptor.end()[0]["connection"]
        path = str(stage.folder / f"pass-{number}")
        worker.begin("await_descriptor", path=path)
        stage.wait_for(lambda: os.path.exists(path), "the worker")
        acceptor.pass_descriptor(connection=taken, path=path)
        passed = worker.end()
        for _ in range(2):
            client.send(connections=[made], data=request)
            worker.receive_exactly(connection=passed, size=len(request.encode()))
            worker.send(connections=[passed], data=answer)
            client.receive(connections=[made], size=1000)
        client.close_sockets(connections=[made])
        worker.close_sockets(connections=[passed])
    added, _ = stage.after()
    ours = [one for one in stage.records("request") if one.get("final", True) and one["role"] == "server" and
            one["local"].endswith(f":{listening['port']}")]
    return [Row("requests of the worker", sum(one["workload"] == worker.name for one in ours), 2 * count, "requests made"),
            Row("requests of the acceptor", sum(one["workload"] == acceptor.name for one in ours), 0, "requests made"),
            Row("requests of the worker, metric", int(added.total("requests_total", workload=worker.name, role="server")), 2 * count, "requests made"),
            Row("connections opened", int(added.total(OPENED, role="server", workload={worker.name, acceptor.name})), count, "connections made"),
            Row("payload that the worker has received", int(added.total("tcp_payload_bytes_total", role="server", direction="received", workload=worker.name)),
                [count * len(request.encode()), 2 * count * len(request.encode())], "the second requests, and what of the first ones was not counted yet",
                "within")]


@over_loopback
def prefork(stage):
    """A process listens and forks, its children accept: connections are the child's that took them."""
    netns = stage.namespace()
    parent, client = stage.actor("par", netns), stage.actor("cli", netns)
    children = [stage.name(f"ch{number}") for number in range(3)]
    count = 30 * stage.repetitions
    stage.before(a=client)
    listening = parent.listen()
    pids = parent.fork_workers(listener=listening["listener"], names=children)
    for _ in range(count):
        made = client.connect(host="127.0.0.1", port=listening["port"])[0]["connection"]
        client.send(connections=[made])
        client.receive(connections=[made])
        client.close_sockets(connections=[made])
    added, _ = stage.after()
    opened = {name: int(added.total(OPENED, workload=name, role="server")) for name in children}
    return [Row("connections of the children", sum(opened.values()), count, "connections made"),
            Row("children that had some", sum(value > 0 for value in opened.values()), [1, len(pids)], "who accepts is the kernel's choice", "within"),
            Row("connections of the parent", int(added.total(OPENED, workload=parent.name)), 0, "it accepts none"),
            Row("accept waits of the children", int(added.total("tcp_accept_wait_seconds_count", workload=set(children))), count, "connections made")]


@over_loopback
def shared_port(stage):
    """Four processes on one port (SO_REUSEPORT): each has the connections that it accepted."""
    netns = stage.namespace()
    servers = [stage.actor(f"s{number}", netns) for number in range(4)]
    client = stage.actor("cli", netns)
    count = 40 * stage.repetitions
    stage.before(a=client)
    first = servers[0].listen(backlog=1024, options={"SO_REUSEPORT": 1})
    listeners = [first] + [one.listen(port=first["port"], backlog=1024, options={"SO_REUSEPORT": 1}) for one in servers[1:]]
    client.connect(host="127.0.0.1", port=first["port"], count=count)
    accepted = {one.name: one.accept_waiting(listener=listening["listener"]) for one, listening in zip(servers, listeners)}
    client.close()
    for one in servers:
        one.close()
    stage.window()
    added, _ = stage.after()
    return [Row(f"{name.split('-')[0]}: connections", int(added.total(OPENED, workload=name, role="server")), number, "accept()")
            for name, number in accepted.items()]


@over_loopback
def neighbours(stage):
    """Two processes over 127.0.0.1, in one namespace: each has its own end, whichever direction the bytes go."""
    netns = stage.namespace()
    one, other = stage.actor("one", netns), stage.actor("two", netns)
    stage.before(a=one)
    sizes = {}
    for server, client, there, back in ((one, other, 3000, 50_000), (other, one, 700, 90_000)):
        listening = server.listen()
        server.begin("accept", listener=listening["listener"])
        made = client.connect(host="127.0.0.1", port=listening["port"])[0]["connection"]
        taken = server.end()[0]["connection"]
        client.send(connections=[made], data="a", repeat=there)
        server.receive_exactly(connection=taken, size=there)
        server.send(connections=[taken], data="b", repeat=back)
        client.receive_exactly(connection=made, size=back)
        client.close_sockets(connections=[made])
        server.close_sockets(connections=[taken])
        sizes[server.name, "server"], sizes[client.name, "client"] = (there, back), (back, there)
    added, _ = stage.after()
    rows = []
    for (name, role), (received, sent) in sizes.items():
        for direction, size in (("received", received), ("sent", sent)):
            rows.append(Row(f"{name.split('-')[0]}, {role}: {direction}", int(added.total("tcp_payload_bytes_total", workload=name, role=role,
                                                                                       direction=direction)), size, "bytes sent"))
    return rows


@over_loopback
def older_than_the_agent(stage):
    """1,000 idle keep-alive connections, and a thread blocked in accept(), before the agent starts: the next request on each is followed."""
    netns = stage.namespace()
    server = stage.enter(Server("cpp", netns=netns))
    blocked, client = stage.actor("blk", netns), stage.actor("cli", netns)
    count = 1000 if stage.long or stage.repetitions > 1 else 300
    one = scenario(chunks=2, cadence_ms=1, ttft_ms=1)
    body = one.body().decode() if isinstance(one.body(), bytes) else one.body()
    request = (f"POST {one.path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body.encode())}\r\n\r\n{body}")
    made = [each["connection"] for each in client.connect(host="127.0.0.1", port=server.port, count=count)]
    client.ask_each(connections=made, request=request)
    listening = blocked.listen()
    blocked.begin("accept", listener=listening["listener"], count=1, timeout_s=60)
    stage.sleep(0.2)
    stage.agent  # starts  # pylint: disable=pointless-statement
    stage.before(a=client)
    client.ask_each(connections=made, request=request)
    newcomer = client.connect(host="127.0.0.1", port=listening["port"])
    accepted = blocked.end()
    stage.sleep(1)
    scrape = stage.scrape()
    added, _ = stage.after()
    finals = [each for each in stage.records("request") if each.get("final", True) and str(server.port) in (
        each["local"].rsplit(":", 1)[1], each["remote"].rsplit(":", 1)[1])]
    rows = [Row(f"{role}: requests followed", len({each["local"] + each["remote"] for each in finals if each["role"] == role and
                                                   each["outcome"] == "complete"}), count, "requests made") for role in ("server", "client")]
    wrong = [each["workload"] for each in finals if each["workload"] != (client.name if each["role"] == "client" else "inferwire-scrip")]
    return [*rows, Row("requests of another workload", len(wrong), 0, "who has the sockets"),
            Row("connections established now, client", int(scrape.total("tcp_connections", workload=client.name, state="established")),
                count + len(newcomer), "connections held"),
            Row("the blocked accept: its connection", int(added.total(OPENED, workload=blocked.name, role="server")), len(accepted), "accept()"),
            Row("... its wait", int(added.total("tcp_accept_wait_seconds_count", workload=blocked.name)), len(accepted), "accept()"),
            Row("its listener", int(added.after.total("tcp_accept_queue_limit", workload=blocked.name)), 128, "listen(128)")]


SCENARIOS = (busy_loops, passed_descriptors, prefork, shared_port, neighbours, older_than_the_agent)
