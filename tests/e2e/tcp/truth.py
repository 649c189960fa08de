#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How right the TCP signals are, against the kernel's own counters (nstat, ss, TCP_INFO), captures, and what was made on purpose.

Each scenario drives real traffic in network namespaces of its own, with an agent of its own, which runs as another user with
no capabilities but BPF, PERFMON and NET_ADMIN, and compares what the agent says of that window with the truth.

  truth.py                                           every scenario, short
  truth.py --scenario loss,listeners --seed 7        some, by name or by group
  truth.py --long --repetitions 20 --place apart,inside,host --json FILE     what docs/accuracy.md is made from
  truth.py --from FILE --doc docs/accuracy.md        writes the section into the document

--place: `apart`: the agent runs in the machine's namespace, the traffic in others; `inside`: the agent runs in the namespace
whose counters are compared; `host`: both in the machine's own, over loopback (scenarios that need nothing else).

Exit status: 0 everything agrees, 1 something does not, 77 this machine cannot run it (it says why).
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import platform
import shutil
import signal
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from rig import report  # noqa: E402
from rig.build import agent_binary  # noqa: E402
from rig.disturbance import Disturbance  # noqa: E402
from rig.process import run  # noqa: E402
from rig.testing import SKIPPED  # noqa: E402

import connects  # noqa: E402
import listeners  # noqa: E402
import owners  # noqa: E402
import paths  # noqa: E402
import resets  # noqa: E402
import retransmits  # noqa: E402
import reuse  # noqa: E402
from stage import PLACES, Stage  # noqa: E402

GROUPS = {module.__name__: module for module in (retransmits, listeners, connects, paths, resets, reuse, owners)}
ATTEMPTS = 5
NEEDS = ("ip", "nft", "ss", "tcpdump", "setpriv", "curl")


def scenarios(wanted):
    """[(group, function)] by names of scenarios or groups; all without any."""
    known = [(group, play) for group, module in GROUPS.items() for play in module.SCENARIOS]
    if not wanted:
        return known
    names = {name for group, play in known for name in (group, play.__name__, f"{group}.{play.__name__}")}
    if unknown := set(wanted) - names:
        raise SystemExit(f"no such scenario: {', '.join(sorted(unknown))}; known: {', '.join(sorted(names))}")
    return [(group, play) for group, play in known if {group, play.__name__, f"{group}.{play.__name__}"} & set(wanted)]


def play_one(group, play, place, arguments):
    """Plays a scenario; again if it disagrees and the kernel has kept events from programs (rig/disturbance.py): that makes counts lower than
    the truth, and never lets them agree by chance."""
    for attempt in range(1, ATTEMPTS + 1):
        with Disturbance() as disturbance:
            result = play_once(group, play, place, arguments)
            result["hidden_events"] = disturbance.events()
        result["attempt"] = attempt
        if good(result) or not result["hidden_events"]:
            break
    return result


def play_once(group, play, place, arguments):
    began = time.monotonic()
    result = {"group": group, "scenario": play.__name__, "place": place, "text": " ".join((play.__doc__ or "").split()), "rows": []}
    try:
        with Stage(seed=arguments.seed, repetitions=arguments.repetitions, long=arguments.long, place=place, uid=arguments.uid,
                   flags=["--hooks.deny", arguments.deny] if arguments.deny else []) as stage:
            result["rows"] = [row.as_json() for row in play(stage)]
    except Exception:  # pylint: disable=broad-except  # the others are played all the same
        result["error"] = traceback.format_exc()
    result["seconds"] = round(time.monotonic() - began, 1)
    return result


def good(result):
    return "error" not in result and all(row["holds"] for row in result["rows"])


def shown(value):
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def claim(row):
    """The truth with its rule, as text."""
    truth = row["truth"]
    if row["rule"] == "<=":
        return f"at most {shown(truth)}"
    if row["rule"] == "within":
        return f"{shown(truth[0])} to {shown(truth[1])}" if isinstance(truth, list) else f"{shown(truth)} ± {shown(row['slack'])}"
    return shown(truth)


def print_result(result, verbose):
    verdict = "passed" if good(result) else "FAILED"
    hidden = f", attempt {result['attempt']}, {result['hidden_events']} events hidden" if result["attempt"] > 1 else ""
    print(f"{verdict}  {result['group']}.{result['scenario']} ({result['place']}, {len(result['rows'])} comparisons, {result['seconds']} s{hidden})",
          flush=True)
    for row in result["rows"]:
        if verbose or not row["holds"]:
            print(f"    {'  ' if row['holds'] else '! '}{row['what']}: {shown(row['ours'])}; {row['source']}: {claim(row)}")
    if "error" in result:
        print("    " + result["error"].replace("\n", "\n    "))


# ---- docs/accuracy.md ----

_INTRODUCTION = """## TCP, against the kernel's own counters

What the agent counts, beside what the kernel counted in the same window: `/proc/PID/net/netstat` and `snmp` (as `nstat` shows them), `ss`,
`TCP_INFO`, captures, the programs' own logs, or how it was made on purpose. Each scenario has namespaces of its own, and an agent of its own.
"""

_RULES = """- **all types and TCPRetransFail** = RetransSegs; **rto, syn and synack** = TCPSlowStartRetrans + TCPTimeouts where each timeout's resend worked;
  **tlp** is at most TCPLossProbes, since a probe may carry new data.
- **drops** = ListenDrops, **accept_queue_full** = ListenOverflows, **syn_queue_full** = TCPReqQFullDrop; **max_syn_backlog** has no counter of its own
  in the kernel: it is the rest. A SYN cookie (TCPReqQFullDoCookies) is no drop.
- A reset is counted once a connection: what the kernel sends for later segments of the same connection is in OutRsts alone. A firewall's reset
  that comes with the peer's own TTL from another machine cannot be told from the peer's. `memory` is not made here: it needs a node without memory for TCP.
- AttemptFails is no truth for connects: a router's answer that arrives while connect() still runs is told to the caller, and not counted there.
"""


def render(result):
    places = {"apart": "agent in the machine's namespace, traffic in others", "inside": "agent in the namespace whose counters are compared",
              "host": "both in the machine's own, over loopback"}
    command = (f"tests/e2e/tcp/truth.py --seed {result['seed']} --repetitions {result['repetitions']}{' --long' if result['long'] else ''}"
               f" --uid {result['uid']} --place {','.join(result['places'])} --json FILE")
    results = result["results"]
    rows = sum(len(one["rows"]) for one in results)
    agreed = sum(row["holds"] for one in results for row in one["rows"])
    lines = [_INTRODUCTION,
             f"Made by `{command}`, then `tests/e2e/tcp/truth.py --from FILE --doc docs/accuracy.md`, on kernel {result['kernel']}, {result['cpus']} CPUs; "
             f"the agent as user {result['uid']} with the capabilities BPF, PERFMON and NET_ADMIN alone. {sum(map(good, results))} of {len(results)} "
             f"scenarios and {agreed} of {rows} comparisons agree.\n", _RULES]
    for place in result["places"]:
        lines.append(f"### {place.capitalize()}: {places[place]}\n")
        lines += ["| scenario | what | the agent | the truth | from |", "| --- | --- | ---: | ---: | --- |"]
        for one in (one for one in results if one["place"] == place):
            if "error" in one:
                lines.append(f"| `{one['scenario']}` | did not end | | | |")
            for number, row in enumerate(one["rows"]):
                name = f"`{one['scenario']}`" if not number else ""
                mark = "" if row["holds"] else " **differs**"
                lines.append(f"| {name} | {row['what']} | {shown(row['ours'])}{mark} | {claim(row)} | {row['source']} |".replace("  ", " "))
        lines.append("")
    return "\n".join(lines)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="", help="names of scenarios or groups, separated by commas")
    parser.add_argument("--list", action="store_true", help="names all scenarios and ends")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=1, help="how often that which is made on purpose is made (times a scenario's own number)")
    parser.add_argument("--long", action="store_true", help="100 MB where others send 8")
    parser.add_argument("--place", default="apart", help="apart, inside, host, or several")
    parser.add_argument("--uid", type=int, default=65534, help="the agent's user; 0: root, with every capability")
    parser.add_argument("--jobs", type=int, default=1, help="scenarios at a time, of those that do not mind")
    parser.add_argument("--deny", default="", help="hooks, rungs or programs that the agent is not to use (hooks.deny)")
    parser.add_argument("--json", help="write all comparisons to this file")
    parser.add_argument("--from", dest="source", help="play nothing: take them from such a file")
    parser.add_argument("--doc", help="write the section into this document (docs/accuracy.md)")
    parser.add_argument("--verbose", action="store_true", help="show also what agrees")
    return parser.parse_args()


def missing():
    """Why this cannot run here, or None."""
    if os.geteuid() != 0:
        return "needs root: makes network namespaces"
    if not os.path.exists("/dev/net/tun"):
        return "needs /dev/net/tun"
    if absent := [name for name in NEEDS if shutil.which(name) is None]:
        return f"needs {', '.join(absent)}"
    if run(["setpriv", "--bounding-set", "-all,+bpf", "true"], check=False).returncode != 0:
        return "needs a setpriv that knows CAP_BPF"
    return None if agent_binary() else "inferwire is not built"


def play_all(arguments):
    places = arguments.place.split(",")
    if unknown := set(places) - set(PLACES):
        raise SystemExit(f"no such place: {', '.join(unknown)}; known: {', '.join(PLACES)}")
    wanted = [(group, play, place) for place in places for group, play in scenarios(list(filter(None, arguments.scenario.split(","))))
              if place != "host" or getattr(play, "over_loopback", False)]

    def play(which):
        result = play_one(*which, arguments)
        print_result(result, arguments.verbose)
        return result
    results = {}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        together = [which for which in wanted if which[2] != "host" and not getattr(which[1], "alone", False)]
        for which, result in zip(together, pool.map(play, together)):
            results[which] = result
    for which in wanted:
        if which not in results:
            results[which] = play(which)
    return {"seed": arguments.seed, "repetitions": arguments.repetitions, "long": arguments.long, "uid": arguments.uid, "places": places,
            "kernel": platform.release(), "cpus": os.cpu_count(), "results": [results[which] for which in wanted]}


def main():
    arguments = parse_arguments()
    if arguments.list:
        print("\n".join(f"{group}.{play.__name__}: {' '.join((play.__doc__ or '').split())}" for group, play in scenarios([])))
        return 0
    if arguments.uid == 0:
        arguments.uid = None
    if arguments.source:
        result = json.loads(pathlib.Path(arguments.source).read_text(encoding="utf-8"))
    else:
        if reason := missing():
            print("skipped: " + reason)
            return SKIPPED
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leaves no namespace behind
        result = play_all(arguments)
        print(f"{sum(map(good, result['results']))} of {len(result['results'])} scenarios agree with the truth, seed {result['seed']}")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(result, indent=1), encoding="utf-8")
    if arguments.doc:
        report.write_section(arguments.doc, "tcp", render(result))
    return 0 if result["results"] and all(map(good, result["results"])) else 1


if __name__ == "__main__":
    sys.exit(main())
