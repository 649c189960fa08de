# SPDX-License-Identifier: Apache-2.0
"""Round trips and closed windows, while connections live."""

import threading

from rig import clients
from rig import veth as veth_rig
from rig import wire as wire_rig
from rig.scenario import scenario
from rig.servers import Server

import kernel as kernel_side
from metrics import Change
from stage import PARTIAL_MS, PUBLISHED_AFTER_S, Row, alone

SAMPLES, SAMPLE_SECONDS = "tcp_rtt_samples_total", "tcp_rtt_sample_seconds_total"
EXPORT_S = PARTIAL_MS / 1000 + PUBLISHED_AFTER_S  # from an event to /metrics, at most


def _bulk(stage, server, client, host):
    """Packets both ways, whose acknowledgments do not wait, until the returned function is called."""
    listening = server.listen(host=host)
    server.begin("accept", listener=listening["listener"])
    made = client.connect(host=host, port=listening["port"])[0]["connection"]
    taken = server.end()[0]["connection"]
    server.begin("echo_until_closed", connection=taken, size=6000)
    client.begin("ping_until_told", connection=made, size=6000, every_ms=10, path=str(stage.folder / f"stop-{made}-{host}"))

    def stop():
        (stage.folder / f"stop-{made}-{host}").touch()
        client.end()
        client.close_sockets(connections=[made])
        server.end()
    return listening["port"], stop


def _mean_ms(change, actor, role):
    labels = {"workload": actor.name, "role": role}
    count = change.total(SAMPLES, **labels)
    return round(1000 * change.total(SAMPLE_SECONDS, **labels) / count, 2) if count else None


@alone
def changing_path(stage):
    """A connection in whose middle the path gets slower, from 5 to 100 ms there and back: both ends follow within one export."""
    wire = stage.wire(delay_ms=2.5, control=True, log=False)
    server, client = stage.actor("srv", wire.b), stage.actor("cli", wire.a)
    stage.before(a=client)
    port, stop = _bulk(stage, server, client, wire_rig.B_ADDRESS)
    stage.sleep(2)
    marks = [stage.scrape()]
    stage.sleep(1)
    marks.append(stage.scrape())
    shown_ms = kernel_side.smoothed_rtt_ms(port, "client", wire.a)
    wire.set_delay_ms(50)
    stage.sleep(EXPORT_S + 0.3)  # an export, and a round trip or two
    marks.append(stage.scrape())
    stage.sleep(1.5)
    marks.append(stage.scrape())
    slow_shown_ms = kernel_side.smoothed_rtt_ms(port, "client", wire.a)
    stop()
    rows = []
    for actor, role in ((client, "client"), (server, "server")):
        before, after, later = (Change(*pair) for pair in zip(marks, marks[1:]))
        rows += [Row(f"{role}: before, ms", _mean_ms(before, actor, role), [5, 6.5], "the wire: 5 ms", "within"),
                 Row(f"{role}: one export later, the slowest so far, ms", _mean_ms(after, actor, role), [6.5, 106], "more than before", "within"),
                 Row(f"{role}: then, ms", _mean_ms(later, actor, role), [100, 104], "the wire: 100 ms", "within")]
    before, later = Change(marks[0], marks[1]), Change(marks[2], marks[3])
    rows += [Row("client: before, ms", _mean_ms(before, client, "client"), round(shown_ms, 2), "ss -ti: rtt", "within", 1.5),
             Row("client: then, ms", _mean_ms(later, client, "client"), round(slow_shown_ms, 2), "ss -ti: rtt", "within", 8)]
    return rows


@alone
def short_paths(stage):
    """Loopback and veth, whose round trips take tens of microseconds."""
    veth = stage.veth()
    rows = []
    for where, near, host in (("loopback", veth.b, "127.0.0.1"), ("loopback, IPv6", veth.b, "::1"), ("veth", veth.a, veth_rig.B_ADDRESS)):
        server, client = stage.actor("s" + where[0] + where[-1], veth.b), stage.actor("c" + where[0] + where[-1], near)
        stage.before(b=server)
        port, stop = _bulk(stage, server, client, host)
        stage.sleep(1)
        shown_ms = {"client": kernel_side.smoothed_rtt_ms(port, "client", near), "server": kernel_side.smoothed_rtt_ms(port, "server", veth.b)}
        stop()
        added, _ = stage.after()
        for actor, role in ((client, "client"), (server, "server")):
            # The server's data is acknowledged by the next ping, ten milliseconds later.
            rows += [Row(f"{where}, {role}: mean, ms", _mean_ms(added, actor, role), round(shown_ms[role], 2), "ss -ti: rtt", "within",
                         round(max(0.3, shown_ms[role] / 4), 2)),
                     Row(f"{where}, {role}: samples", int(added.total(SAMPLES, workload=actor.name, role=role)), [8, 15],
                         "one second, ten samples a second", "within")]
    return rows


@alone
def llm_histogram(stage):
    """A stream of tokens over a path that gets slower in its middle: the histogram of its server follows within one export."""
    wire = stage.wire(delay_ms=2.5, control=True, log=False)
    server = stage.enter(Server("cpp", netns=wire.b, host=wire_rig.B_ADDRESS))
    stage.before()
    plan = [clients.connection(server.host, server.port, [clients.request("s", scenario(chunks=250, cadence_ms=30, ttft_ms=5, pad=3000))])]
    playing = threading.Thread(target=lambda: clients.run_plan(plan, netns=wire.a))
    playing.start()
    stage.sleep(2.5)
    first = stage.scrape()
    wire.set_delay_ms(50)
    stage.sleep(EXPORT_S + 0.4)
    second = stage.scrape()
    stage.sleep(2)
    third = stage.scrape()
    playing.join()
    labels = {"workload": "inferwire-scrip", "role": "server"}

    def share(change, low, high):
        buckets = change.buckets("tcp_rtt_seconds", **labels)
        count = sum(number for _, number in buckets)
        return round(sum(number for edge, number in buckets if low < edge <= high) / count, 2) if count else 0.0
    return [Row("share of samples from 2.5 to 50 ms, before", share(Change(stage.scraped, first), 0.0025, 0.05), [0.9, 1], "the wire: 5 ms, and delayed ACKs",
                "within"),
            Row("share over 75 ms, one export later", share(Change(first, second), 0.075, 1), [0.05, 1], "the wire: 100 ms", "within"),
            Row("share over 75 ms, then", share(Change(second, third), 0.075, 1), [0.95, 1], "the wire: 100 ms", "within"),
            Row("queueing delay is known too", int(third.total("tcp_queueing_delay_seconds_count", workload=labels["workload"])) > 0, True,
                "each sample has one")]


@alone
def zero_window(stage):
    """A client that stops reading a stream for some seconds: its window is closed, as the capture shows."""
    wire = stage.wire(delay_ms=1, log=False)
    server = stage.enter(Server("cpp", netns=wire.b, host=wire_rig.B_ADDRESS))
    capture = stage.capture(wire.b, "wire0", f"tcp port {server.port}")
    client = stage.actor("cli", wire.a)
    stage.before(a=client)
    one = scenario(chunks=60, cadence_ms=5, ttft_ms=5, pad=60000)
    client.slow_reader(host=server.host, port=server.port, path=one.path, body=one.body().decode() if isinstance(one.body(), bytes) else one.body(),
                       pause_s=2.5, buffer=20000)
    added, _ = stage.after()
    capture.stop()
    closed_s, since = 0.0, None
    for segment in capture.segments():
        if segment.destination_port != server.port:
            continue
        if segment.window == 0 and since is None and not segment.flags & 4:
            since = segment.unix_ns
        elif segment.window and since is not None:
            closed_s += (segment.unix_ns - since) / 1e9
            since = None
    received = added.total("tcp_zero_window_seconds_total", workload="inferwire-scrip", direction="received")
    sent = added.total("tcp_zero_window_seconds_total", workload=client.name, direction="sent")
    return [Row("the window was closed at all, s", round(closed_s, 2), [1.5, 4], "tcpdump", "within"),
            Row("server: the peer's window closed, s", round(received, 2), round(closed_s, 2), "tcpdump", "within", 0.1),
            Row("client: its own window closed, s", round(sent, 2), round(closed_s, 2), "tcpdump", "within", 0.1)]


SCENARIOS = (changing_path, short_paths, llm_histogram, zero_window)
