#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How right the agent's times and counts are, against the clocks of scripted servers and of clients.

Starts the agent, plays streams with cadences from 2 to 200 ms on first and on reused connections from servers on four
HTTP stacks, joins the agent's records (and its trace of deliveries, where it has one) with both logs and a packet
capture, and says how far off each time was. Everything it used is left in --out, so that others can judge for themselves.

  accuracy.py --agent build/release/inferwire --streams 240 --seed 1 --out /tmp/accuracy --doc docs/accuracy.md

Exit status: 0 every bound was met, 1 one was not, 77 this machine cannot run it (it says why).
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import platform
import random
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from rig import clients, join, observe, report, servers  # noqa: E402
from rig import wire as wire_rig  # noqa: E402
from rig.agent import Agent  # noqa: E402
from rig.build import agent_binary  # noqa: E402
from rig.clock import realtime_offset_ns  # noqa: E402
from rig.pcap import Acknowledgments, Capture  # noqa: E402
from rig.process import run  # noqa: E402
from rig.scenario import scenario  # noqa: E402
from rig.testing import SKIPPED  # noqa: E402
from rig.wire import Wire  # noqa: E402

PATHS = ({}, {"reorder": 0.25}, {"duplicate": 0.05}, {"loss": 0.03}, {"corrupt": 0.05})
CADENCES_MS = (2, 5, 10, 20, 50, 100, 200)
REQUESTS_PER_REUSED_CONNECTION = 5
AIOHTTP_SHARE = 0.25
WARM_UPS = 5
STREAM_MS = 1000  # how long a stream is to last, about


@dataclasses.dataclass
class Stream:
    tag: str
    scenario: object
    cadence_ms: float
    length_ms: float


def make_stream(tag, cadence_ms, draw, stream_ms):
    chunks = max(8, min(200, round(stream_ms / cadence_ms)))
    ttft_ms = draw.uniform(5, 120)
    framing = draw.choices(("sse-lf", "sse-crlf", "ndjson"), (6, 2, 2))[0]
    one = scenario(framing=framing, ttft_ms=ttft_ms, cadence_ms=cadence_ms, chunks=chunks, jitter=0.3,
                   seed=draw.randrange(1 << 30), coalesce=draw.choices((1, 3), (8, 2))[0],
                   role_early_ms=draw.choice((None, None, 1.0)), reasoning=draw.choice((0, 0, chunks // 4)),
                   head=draw.choice(("early", "first")),
                   comments_every_ms=draw.choice((None, None, 150)) if framing != "ndjson" else None)
    return Stream(tag, one, cadence_ms, ttft_ms + chunks * cadence_ms)


def make_connections(server, count, draw, stream_ms):
    """Lists of streams, one a connection: half of the streams alone on one, the rest five after another."""
    streams = [make_stream(f"{server}-{i}", CADENCES_MS[i % len(CADENCES_MS)], draw, stream_ms) for i in range(count)]
    fresh = count // 2
    rest = streams[fresh:]
    groups = [rest[i:i + REQUESTS_PER_REUSED_CONNECTION] for i in range(0, len(rest), REQUESTS_PER_REUSED_CONNECTION)]
    connections = [[stream] for stream in streams[:fresh]] + groups
    draw.shuffle(connections)
    return connections


def make_plans(server, connections, parallel, draw):
    """Plans for both clients: at most about `parallel` connections at a time."""
    lanes = [0.0] * parallel
    plans = {kind: [] for kind in clients.KINDS}
    for streams in connections:
        lane = lanes.index(min(lanes))
        requests = [clients.request(stream.tag, stream.scenario, wait_ms=draw.uniform(0, 30)) for stream in streams]
        kind = "aiohttp" if draw.random() < AIOHTTP_SHARE else "cpp"
        plans[kind].append(clients.connection(server.host, server.port, requests, start_ms=round(lanes[lane], 3)))
        lanes[lane] += sum(stream.length_ms + 40 for stream in streams) + draw.uniform(20, 60)
    return plans


def run_clients(plans, folder):
    """Both clients at once; returns {tag: log line}."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = [pool.submit(clients.run_plan, plan, kind=kind, folder=folder, timeout_s=900)
                   for kind, plan in plans.items() if plan]
        merged = {}
        for one in running:
            merged.update(one.result())
        return merged


def warm_up(server):
    """Requests that are not measured: the first ones of Node and Python take tens of milliseconds."""
    one = scenario(chunks=3, cadence_ms=2, ttft_ms=2)
    clients.run_plan([clients.connection(server.host, server.port, [
        clients.request(f"warm-up-{i}", one) for i in range(WARM_UPS)])])


def measure_server(kind, arguments, agent, folder, draw):
    """Plays this server's share of the streams; returns its rows."""
    folder.mkdir()
    count = -(-arguments.streams // len(arguments.servers))
    connections = make_connections(kind, count, draw, arguments.stream_ms)
    streams = {stream.tag: stream for group in connections for stream in group}
    with servers.Server(kind, folder=folder) as server, \
            Capture("lo", expression=f"tcp port {server.port}", path=folder / "capture.pcap") as capture:
        warm_up(server)
        offset_before = realtime_offset_ns()
        client_lines = run_clients(make_plans(server, connections, arguments.parallel, draw), folder)
        server_lines = {line["tag"]: line for line in server.log(requests=len(streams) + WARM_UPS)}
        offset = (offset_before + realtime_offset_ns()) // 2
        capture.stop()
        wanted = 2 * (len(streams) + WARM_UPS)
        agent.wait_for(lambda records: sum(ours(record, server.port) for record in records) >= wanted,
                       timeout_s=arguments.records_timeout_s)
        acknowledgments = Acknowledgments(capture.segments(), server.port)
        joiner = join.Joiner([record for record in agent.records() if ours(record, server.port)], agent.trace(), offset,
                             acknowledgments)
        rows = [joiner.measure(stream.scenario, server_lines[tag], client_lines[tag], stream.cadence_ms)
                for tag, stream in streams.items()]
        print(f"{kind}: {len(rows)} streams, {sum(bool(row.problems) for row in rows)} with mismatches", flush=True)
        return rows


def measure_path(faults, arguments, agent, seed):
    """Streams over a wire with faults: how many records of each role are exact, how many of the client's say `approximate`."""
    with Wire(delay_ms=2, seed=seed, log=False, **faults) as wire, \
            servers.Server("cpp", netns=wire.b, host=wire_rig.B_ADDRESS) as server:
        streams = {f"path-{i}": scenario(framing=("sse-lf", "sse-crlf", "ndjson")[i % 3], chunks=60, cadence_ms=8, ttft_ms=30,
                                         jitter=0.5, seed=seed + i) for i in range(arguments.path_streams)}
        connections = [clients.connection(server.host, server.port, [clients.request(tag, one)], start_ms=40 * i)
                       for i, (tag, one) in enumerate(streams.items())]
        lines = clients.run_plan(connections, netns=wire.a)
        seen = observe.gather(agent, streams, server, lines)
    result = {"faults": faults, "streams": len(seen), "server_exact": 0, "client_exact": 0, "client_approximate": 0}
    for one in seen.values():
        result["server_exact"] += not one.problems("server")
        if one.records.get("client", {}).get("approximate"):
            result["client_approximate"] += 1
        else:
            result["client_exact"] += not one.problems("client")
    print(f"path with {faults}: {result}", flush=True)
    return result


def ours(record, port):
    return port in (join.port_of(record["local"]), join.port_of(record["remote"]))


def path_verdicts(paths):
    return [("path", one["server_exact"] == one["streams"] == one["client_exact"] + one["client_approximate"],
             f"path with {one['faults'] or 'no faults'}: {one['server_exact']} of {one['streams']} records of the server exact; of "
             f"the client {one['client_exact']}, and {one['client_approximate']} marked approximate") for one in paths]


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                  if line.startswith("model name")), platform.machine())
    return {"kernel": platform.release(), "cpus": os.cpu_count(), "cpu": model}


def versions():
    def first_line(*argv):
        return run(argv, check=False).stdout.strip().split("\n")[0]
    python = ("import uvicorn, uvloop, starlette, aiohttp; import importlib.metadata as m;"
              "print(f'uvicorn {uvicorn.__version__}, uvloop {uvloop.__version__}, httptools {m.version(\"httptools\")}, "
              "Starlette {m.version(\"starlette\")}, aiohttp {aiohttp.__version__}')")
    return {"uvicorn": first_line("/usr/bin/python3", "-c", python), "node": "Node " + first_line("node", "--version"),
            "go": first_line("go", "version"), "cpp": "raw sockets"}


def missing():
    """Why this cannot run here, or None."""
    if os.geteuid() != 0:
        return "needs root: loads kernel programs and captures packets"
    absent = [name for name in ("tcpdump", "node") if shutil.which(name) is None]
    return f"needs {', '.join(absent)}" if absent else None


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default=agent_binary(), help="the inferwire program (default: of the build)")
    parser.add_argument("--streams", type=int, default=240, help="how many in all")
    parser.add_argument("--stream-ms", type=float, default=STREAM_MS, help="how long one lasts, about")
    parser.add_argument("--parallel", type=int, default=4, help="connections at a time; more measure the machine's scheduler")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--servers", default=",".join(servers.KINDS), type=lambda text: text.split(","))
    parser.add_argument("--out", help="folder for logs, records, captures and accuracy.json (default: none is kept)")
    parser.add_argument("--doc", help="render the report to this file (docs/accuracy.md)")
    parser.add_argument("--no-trace", action="store_true", help="only what records say")
    parser.add_argument("--path-streams", type=int, default=48, help="streams over each path with faults; 0: none")
    parser.add_argument("--records-timeout-s", type=float, default=20)
    parser.add_argument("--counts-only", action="store_true", help="the exit status judges counts, not times")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    reason = missing() or (None if arguments.agent else "inferwire is not built")
    if reason:
        print("skipped: " + reason)
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="iwrig-accuracy-") as temporary:
        out = pathlib.Path(arguments.out or temporary)
        if arguments.out and out.exists() and any(out.iterdir()):
            raise SystemExit(f"{out} is not empty")
        out.mkdir(parents=True, exist_ok=True)
        draw = random.Random(arguments.seed)
        rows = []
        with Agent(arguments.agent, trace=not arguments.no_trace, folder=out) as agent:
            for kind in arguments.servers:
                rows += measure_server(kind, arguments, agent, out / kind, draw)
            paths = [measure_path(faults, arguments, agent, arguments.seed) for faults in PATHS if arguments.path_streams]
        result = {"seed": arguments.seed, "streams": len(rows), "parallel": arguments.parallel,
                  "stream_ms": arguments.stream_ms, "machine": machine(), "versions": versions(),
                  "verdicts": join.verdicts(rows) + path_verdicts(paths), "paths": paths, "rows": [row.as_json() for row in rows]}
        (out / "accuracy.json").write_text(json.dumps(result), encoding="utf-8")
        if arguments.doc:
            others = report.sections(arguments.doc)
            pathlib.Path(arguments.doc).write_text(report.render(result, rows), encoding="utf-8")
            for name, text in others:
                report.write_section(arguments.doc, name, text)
        print(report.render_text(result, rows))
    judged = [passed for name, passed, _ in result["verdicts"] if name in ("exact", "path") or not arguments.counts_only]
    return 0 if all(judged) else 1


if __name__ == "__main__":
    sys.exit(main())
