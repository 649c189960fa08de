#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/overhead.md from a result of ./run bench.

    overhead_doc.py RESULT.json > docs/overhead.md
"""

import json
import pathlib
import sys

import bench
import throughput

PLACES = {
    "server egress": "server sends",
    "server ingress": "server receives",
    "client egress": "client sends",
    "client ingress": "client receives",
}
TRAFFIC = {
    "stream": "an LLM stream: chunks from server to client, ACKs back",
    "echo": "a protocol that is not HTTP: 64 bytes there and back",
    "small": "small HTTP answers of a route that is no LLM route",
}


def _size(count):
    return f"{count / 2**20:.1f} MiB"


def _interval(entry):
    return f"{entry['ratio']:.3f} [{entry['low']:.3f}, {entry['high']:.3f}]"


def _programs(result):
    size = result["programs"][0]
    yield "## A packet\n"
    yield (f"Nanoseconds by the kernel's own account (`bpf_stats`, which adds about 50 ns to each figure), medians of {size['rounds']} "
           f"slices of {size['seconds']:g} s. *Empty* does nothing; "
           "*base* does the least that any program must that knows its stream: headers, storage look-up, clock, one histogram "
           "bucket, for packets with payload. Each set of programs is attached alone, in random order, to the same load, with instances "
           "of its own for either end. Base does nothing for a packet without payload: for ACKs its figure is that of reading the headers.\n")
    yield "| traffic | packet | empty | base | agent | agent above empty | agent / base |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    table = {}
    for run in result["programs"]:
        for traffic, place, name, ns, above, times in bench.cost_rows(run):
            load = f"{run['streams']:,} streams, {run['rate']:g}/s" if traffic == "stream" else traffic
            table.setdefault((load, place), {})[name] = (ns, above, times)
    for (traffic, place), sets in table.items():
        agent = sets["agent"]
        yield (f"| {traffic} | {PLACES.get(place, place)} | {sets['empty'][0]:.0f} | {sets['base'][0]:.0f} | {agent[0]:.0f} "
               f"| {agent[1]:.0f} | {agent[2]:.2f} |")
    yield ""
    for name, what in TRAFFIC.items():
        yield f"- *{name}*: {what}"
    chunks = [run["traffic"]["stream"]["chunks"]["agent"] for run in result["programs"]]
    sent, counted = (sum(sum(one[which]) for one in chunks) for which in ("sent", "counted"))
    yield f"\nChunks sent in these slices: {sent}; counted by the programs: {counted}."
    yield ""


def _throughput(result):
    stages = [result[name] for name in ("nginx", "iperf3") if name in result]
    if not stages:
        return
    yield "## Full load\n"
    yield ("Both ends on this machine, each on a CPU of its own. *idle* and *followed*: the agent's kernel programs without its "
           "process, as they are attached while no LLM connection is open on the node, and while there are some (then two hooks "
           "on every read and send are there too), switched under one client that goes on all the time: empty, idle, followed, "
           f"empty, nothing, each for {stages[0]['idle']['slice_seconds']:g} s. *agent*: the agent itself, idle, started for each slice of "
           f"{stages[0]['agent']['slice_seconds']:g} s, between slices with the two empty programs. A ratio compares with the mean of "
           "the two slices around it; the control compares these two with each other. Medians, with 95 % intervals by bootstrap. CPU is "
           "that of both ends and of the kernel's soft interrupt threads.\n")
    yield "| load | what | figure | over empty | control | empty over nothing | pairs |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: |"
    for stage in stages:
        for who in throughput.WHO:
            unit = stage[who]["unit"]
            for metric, what in (("throughput", f"{unit} a second"), ("cpu_per_unit", f"CPU time per {unit[:-1]}")):
                entry = stage[who][metric]
                nothing = _interval(entry["empty_over_none"]) if "empty_over_none" in entry else ""
                yield (f"| {stage['title']} | {who} | {what} | {_interval(entry['over_empty'])} | {_interval(entry['control'])} "
                       f"| {nothing} | {entry['over_empty']['pairs']} |")
    yield ""


def _streams(result):
    if "best" in result:
        best = result["best"]
        yield "## The generator\n"
        yield (f"Without a pace it makes {best['none']['chunks_per_second']} chunks a second by itself, and "
               f"{best['agent']['chunks_per_second']} beside the agent, on the same processors as its clients. *Lag* below is how "
               "much later than due a chunk was written.\n")
    for entry in result.get("streams", []):
        use, dump = entry["agent_use"], entry["tcpdump_use"]
        yield f"## {entry['streams']} open streams, {entry['rate']} chunks a second each\n"
        yield "| beside | chunks a second | lag p50 | lag p99 | CPU of generator and clients per chunk | streams that failed |"
        yield "| --- | ---: | ---: | ---: | ---: | ---: |"
        for state, title in (("none", "nothing"), ("empty", "two empty programs"), ("agent", "the agent"),
                             ("tcpdump", "tcpdump, to a file")):
            run = entry[state]
            lag = run["lag_us"] or {"p50": 0, "p99": 0}
            yield (f"| {title} | {run['chunks_per_second']} | {lag['p50'] / 1000:.2f} ms | {lag['p99'] / 1000:.2f} ms "
                   f"| {run['generator_cpu_us_per_chunk']:.2f} us | {run['failed']} |")
        seen = "; ".join(f"{role}: {count['requests']} requests, {count['chunks']} chunks" for role, count in sorted(use["seen"].items()))
        yield ""
        yield (f"- Sent: {entry['agent']['streams']} streams, {entry['agent']['chunks']} chunks. Records of each role: {seen}. Records made "
               f"{use['records']}, lost {use['records_lost']}.")
        yield f"- The agent's process: {use['cpu_percent_of_one_core']} % of one core, {use['cpu_us_per_chunk']} us a chunk."
        yield (f"- Memory: {_size(use['memory_bytes'])} = resident {_size(use['resident_bytes'])} + kernel maps {_size(use['map_bytes'])} + "
               f"socket storage {_size(use['socket_storage_bytes'])} (two sockets a stream: both ends are on this machine).")
        yield (f"- tcpdump on the same traffic: {dump['cpu_us_per_chunk']} us of its own CPU a chunk, {_size(dump['written_bytes'])} written, "
               f"{dump['packets_dropped']} packets dropped.\n")


def document(result, name):
    facts = result["machine"]
    yield "<!-- Generated by tests/bench/overhead_doc.py. Do not edit. -->"
    yield "# Overhead\n"
    yield ("What the agent costs the machine that it watches. Made by `./run bench`; ratios are of slices of one run, taken in turns, since "
           f"absolute figures drift with the machine. Raw figures: `{name}`.\n")
    yield (f"Machine: {facts['cpu']}, {facts['cpus']} CPUs{', virtual' if facts['virtual'] else ''}, "
           f"{facts['memory_bytes'] / 2**30:.0f} GiB, Linux {facts['kernel']} ({facts['architecture']}), revision {facts['revision']}, "
           f"{facts['date']}, seed {result['seed']}, load before the run {facts['load_before']}"
           f"{', quick run: wide intervals' if result['quick'] else ''}.\n")
    if "programs" in result:
        yield from _programs(result)
    yield from _throughput(result)
    yield from _streams(result)


def main():
    path = pathlib.Path(sys.argv[1]).resolve()
    root = pathlib.Path(__file__).resolve().parents[2]
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    text = "\n".join(document(json.loads(path.read_text(encoding="utf-8")), name)).rstrip("\n")
    print(text)


if __name__ == "__main__":
    main()
