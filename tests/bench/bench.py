#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the agent costs. Every figure is a ratio within this run, or a count; nothing passes or fails by a clock.

    bench.py --agent FILE --object FILE --tools DIR [--quick] [--seed N] [--only STAGE,...] [--out FILE]

Stages: programs (ns a packet), nginx, iperf3, streams, best (the generator's best rate). The result is one JSON file;
overhead_doc.py makes docs/overhead.md of it.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import machine
import states as states_of
import streams
import throughput

STAGES = ("programs", "nginx", "iperf3", "best", "streams")
FULL = {"rounds": 16, "slice": 2.0, "programs": [(1000, 30), (64, 50)], "blocks": 60, "block_slice": 1, "switches": 150, "switch_slice": 0.25,
        "streams": [(5000, 10, 25), (1000, 30, 25)],
        "best": (64, 6000)}
QUICK = {"rounds": 3, "slice": 1.0, "programs": [(1000, 30)], "blocks": 4, "block_slice": 1, "switches": 12, "switch_slice": 0.25,
         "streams": [(1000, 10, 5)], "best": (64, 1000)}


def programs(options, states, size, say):
    """One result for each number and rate of streams; the other traffic is in the first."""
    results = []
    for streams_open, rate in size["programs"]:
        say(f"cost of the programs a packet, {streams_open} streams with {rate} chunks a second each")
        done = subprocess.run(
            [options.tools / "bench" / "inferwire-program-cost", "measure", "--load", options.tools / "bench" / "inferwire-load",
             "--baseline", options.tools / "skeletons" / "inferwire_bench_skeletons" / "baseline.bpf.o",
             "--object", "agent=" + states.objects["followed"], "--rounds", str(size["rounds"]), "--seconds", str(size["slice"]),
             "--streams", str(streams_open), "--rate", str(rate), "--seed", str(options.seed)] +
            (["--traffic", "stream"] if results else []), stdout=subprocess.PIPE, check=True, text=True)
        results.append(json.loads(done.stdout))
    return results


def cost_rows(result):
    """(traffic, place, set, median ns, ns above empty, times base) of the packet programs."""
    rows = []
    for traffic, places in result["traffic"].items():
        for place, sets in places.items():
            if place == "chunks" or "empty" not in sets:
                continue
            median = {name: statistics.median(entry["ns"]) for name, entry in sets.items()}
            for name in ("empty", "base", "agent"):
                rows.append((traffic, place, name, median[name], median[name] - median["empty"], median[name] / median["base"]))
    return rows


def show(result):
    """The table of ratios."""
    lines = []
    for run in result.get("programs", []):
        lines += ["", f"{run['streams']} streams with {run['rate']:g} chunks a second each",
                  "ns a packet (kernel's account)            empty   base  agent   above empty   times base"]
        table = {}
        for traffic, place, name, ns, above, times in cost_rows(run):
            table.setdefault((traffic, place), {})[name] = (ns, above, times)
        for (traffic, place), sets in table.items():
            lines.append(f"  {traffic:7} {place:16}               {sets['empty'][0]:7.0f}{sets['base'][0]:7.0f}{sets['agent'][0]:7.0f}"
                         f"{sets['agent'][1]:14.0f}{sets['agent'][2]:13.2f}")
    for stage in ("nginx", "iperf3"):
        if stage not in result:
            continue
        lines += ["", f"{result[stage]['title']}: median ratio, 95 % interval"]
        for who in throughput.WHO:
            for what in ("throughput", "cpu_per_unit"):
                for name, entry in result[stage][who][what].items():
                    lines.append(f"  {who:9} {what:13} {name:16} {entry['ratio']:.4f}  [{entry['low']:.4f}, {entry['high']:.4f}]"
                                 f"  {entry['pairs']} pairs")
    for name, entry in result.get("best", {}).items():
        lines += ["", f"generator's best rate, {name}: {entry['chunks_per_second']} chunks/s"]
    for entry in result.get("streams", []):
        lines += ["", f"{entry['streams']} streams at {entry['rate']}/s   chunks/s   lag p50/p99 us   generator CPU us/chunk"]
        for state in ("none", "empty", "agent", "tcpdump"):
            run = entry[state]
            lag = run["lag_us"] or {"p50": 0, "p99": 0}
            lines.append(f"  {state:24}{run['chunks_per_second']:9}{lag['p50']:10.0f}/{lag['p99']:.0f}"
                         f"{run['generator_cpu_us_per_chunk']:20.2f}")
        use = entry["agent_use"]
        lines.append(f"  agent: records {use['records']}, lost {use['records_lost']}; CPU {use['cpu_percent_of_one_core']} % of a core, "
                     f"{use['cpu_us_per_chunk']} us/chunk; memory {use['memory_bytes'] / 2**20:.1f} MiB (resident "
                     f"{use['resident_bytes'] / 2**20:.1f}, maps {use['map_bytes'] / 2**20:.1f}, socket storage "
                     f"{use['socket_storage_bytes'] / 2**20:.1f})")
        lines.append(f"  seen: {use['seen']}; sent: {entry['agent']['streams']} streams, {entry['agent']['chunks']} chunks")
        dump = entry["tcpdump_use"]
        lines.append(f"  tcpdump: CPU {dump['cpu_us_per_chunk']} us/chunk, {dump['written_bytes'] / 2**20:.0f} MiB written, "
                     f"{dump['packets_dropped']} packets dropped")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agent", type=pathlib.Path, required=True)
    parser.add_argument("--object", type=pathlib.Path, required=True)
    parser.add_argument("--tools", type=pathlib.Path, required=True)
    parser.add_argument("--quick", action="store_true", help="under three minutes; wide intervals")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(STAGES), help="stages, separated by commas")
    parser.add_argument("--blocks", type=int, help="blocks of slices for nginx and iperf3")
    parser.add_argument("--out", type=pathlib.Path, help="the JSON file; build/bench/quick.json or build/bench/full.json")
    options = parser.parse_args()
    options.agent, options.object, options.tools = (path.resolve() for path in (options.agent, options.object, options.tools))
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(STAGES):
        parser.error(f"unknown stage {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")
    if os.geteuid() != 0:
        sys.exit("bench: needs root, for the kernel's program statistics and the root cgroup")
    size = QUICK if options.quick else FULL
    if options.blocks:
        size = {**size, "blocks": options.blocks}
    states = states_of.States(options.agent, options.tools, options.object)
    began = time.monotonic()

    def say(what):
        print(f"bench: {time.monotonic() - began:6.0f} s  {what}", flush=True)

    result = {"version": 1, "quick": options.quick, "seed": options.seed, "machine": machine.facts()}
    if "programs" in wanted:
        result["programs"] = programs(options, states, size, say)
    if "nginx" in wanted:
        result["nginx"] = throughput.measure(throughput.Nginx(), states, size, options.seed, say)
    if "iperf3" in wanted:
        result["iperf3"] = throughput.measure(throughput.Iperf(), states, size, options.seed, say)
    if "best" in wanted:
        result["best"] = streams.best_rate(states, options.tools, *size["best"], options.seed, say)
    if "streams" in wanted:
        result["streams"] = streams.measure(states, options.tools, size["streams"], options.seed, say)
    result["seconds"] = round(time.monotonic() - began)
    out = options.out or options.tools / ("quick.json" if options.quick else "full.json")
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(show(result))
    print(f"\nbench: raw figures in {out}; docs/overhead.md: tests/bench/overhead_doc.py {out}")


if __name__ == "__main__":
    main()
