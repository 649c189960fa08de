# SPDX-License-Identifier: Apache-2.0
"""Renders the result of tests/e2e/accuracy.py: docs/accuracy.md, and a text for the terminal."""

import pathlib
import re

from .join import MEASURES, MS, summarize

_INTRODUCTION = """# Accuracy

<!-- Written by tests/e2e/accuracy.py --doc; do not edit. -->

How far the agent's times and counts are from clocks that are not its own: servers that log when they wrote each event and
clients that log when they read it, both with CLOCK_MONOTONIC, and ACKs in a tcpdump capture. Nothing of the servers and clients is shared
with the agent.
"""

_DEFINITIONS = """## What is compared

- **TTFT, server view**: first content event handed to TCP minus last request byte in; the log's: before the write of the first event with
  content minus the moment the application had the whole request. The log's start is later than the packet by the application's wake-up, which the row
  *outside what both logs allow* takes out: there an error counts only beyond the interval that the clocks before and after each call leave open.
- **Sent gaps**: between chunks that left in different writes. Events of one write are one delivery, not gaps of zero.
- **Client role**: when the bytes came in, against the moment after the client's `recv` returned (aiohttp: after its event loop had passed
  the bytes on), so the agent is early by the client's wake-up.
- **Delivered, server role**: known from ACKs, which a receiver may delay by 40 ms and more; records say whether their delivered times are
  `exact` or `estimated`.
- Servers and clients run at real-time priority, so that their clock readings do not wait for a CPU; the agent runs at the usual one.
- An error is the agent's time minus the log's. *p50*, *p99* and *max* are of absolute values, *mean* is signed.

TTFT as other tools measure it: vLLM's own `time_to_first_token_seconds` starts when its API process has tokenised the prompt and ends when that process has the
first token, so accept queue, upload, parsing and the socket write are outside of it. Clients (openai SDKs, `vllm bench serve`, GenAI-Perf) start before the request is
sent, on a new connection before the handshake, and end when the first event with content has been parsed: the *user* view, plus the client's own time.
Tools that stop at the first byte or at the first event measure the response head or a role-only chunk on servers that send these early.
"""


def _ms(ns):
    return f"{ns / MS:.3f}"


def _table(summary):
    lines = ["| what | n | p50 ms | p99 ms | max ms | mean ms | bound at p99 |", "| --- | ---: | ---: | ---: | ---: | ---: | --- |"]
    for key, measured in summary.items():
        text, bound = MEASURES[key]
        verdict = "" if bound is None else f"{bound / MS:g} ms: {'met' if measured['p99'] <= bound else '**not met**'}"
        lines.append(f"| {text} | {measured['count']} | {_ms(measured['p50'])} | {_ms(measured['p99'])} | "
                     f"{_ms(measured['max'])} | {_ms(measured['mean'])} | {verdict} |")
    return "\n".join(lines)


def _groups(rows):
    groups = {}
    for row in rows:
        groups.setdefault((row.server, "first" if row.ordinal == 1 else "later"), []).append(row)
    return groups


def _group_table(rows):
    """p99 by server and by place on the connection, of the measures that have a bound or tell about delivery."""
    keys = [key for key in summarize(rows) if MEASURES[key][1] is not None or key.startswith("delivered")]
    lines = ["| server | request | n | " + " | ".join(f"`{key}`" for key in keys) + " |",
             "| --- | --- | ---: |" + " ---: |" * len(keys)]
    for (server, place), members in sorted(_groups(rows).items()):
        summary = summarize(members)
        cells = [_ms(summary[key]["p99"]) if key in summary else "" for key in keys]
        lines.append(f"| {server} | {place} | {len(members)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _path_table(paths):
    lines = ["## Paths with faults", "",
             "The same streams over a wire with 2 ms of delay each way; exact: chunks, tokens, bytes, outcome and code.", "",
             "| fault | streams | server exact | client exact | client marked `approximate` |",
             "| --- | ---: | ---: | ---: | ---: |"]
    for one in paths:
        fault = ", ".join(f"{name} {share:.0%}" for name, share in one["faults"].items()) or "none"
        lines.append(f"| {fault} | {one['streams']} | {one['server_exact']} | {one['client_exact']} | "
                     f"{one['client_approximate']} |")
    return "\n".join(lines)


def _problems(rows, limit=20):
    lines = [f"- `{row.tag}` ({row.server}, request {row.ordinal}): {problem}" for row in rows for problem in row.problems]
    more = [f"- ... and {len(lines) - limit} more"] if len(lines) > limit else []
    return "\n".join(lines[:limit] + more)


def render(result, rows):
    """docs/accuracy.md as text."""
    machine = result["machine"]
    command = (f"tests/e2e/accuracy.py --streams {result['streams']} --parallel {result['parallel']} "
               f"--stream-ms {result['stream_ms']:g} --seed {result['seed']} --out DIR --doc docs/accuracy.md")
    estimated = sum(row.delivered == "estimated" for row in rows)
    parts = [
        _INTRODUCTION,
        f"Made by `{command}` on kernel {machine['kernel']}, {machine['cpus']} CPUs ({machine['cpu']}); servers: "
        + "; ".join(f"{kind}: {version}" for kind, version in result["versions"].items())
        + ". DIR then holds every log, the records, the trace, the captures and `accuracy.json` with each single error.\n",
        "## Exactness\n\n" + "\n".join(f"- {text}." for name, _, text in result["verdicts"] if name == "exact")
        + f"\n- {estimated} of {len(rows)} requests say that their delivered times are `estimated`."
        + f"\n- {sum(row.approximate for row in rows)} requests are marked `approximate`.\n" + _problems(rows),
        "## All streams\n\n" + _table(summarize(rows)),
        "## First requests of a connection\n\n" + _table(summarize(rows, lambda row: row.ordinal == 1)),
        "## Later requests of a connection\n\n" + _table(summarize(rows, lambda row: row.ordinal > 1)),
        "## By server: p99 in ms\n\n" + _group_table(rows),
        *([_path_table(result["paths"])] if result.get("paths") else []),
        _DEFINITIONS,
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _marks(name):
    return f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"


def sections(path):
    """The document's sections that others write, with their marks."""
    path = pathlib.Path(path)
    return re.findall(r"<!-- (\w+): begin -->\n(.*?)<!-- \1: end -->\n", path.read_text(encoding="utf-8") if path.exists() else "", re.DOTALL)


def write_section(path, name, text):
    """Puts a section into a document, between marks, in the place of the one that was there; new ones go to the end."""
    path = pathlib.Path(path)
    document = path.read_text(encoding="utf-8") if path.exists() else ""
    begin, end = _marks(name)
    before, found, rest = document.partition(begin)
    after = rest.partition(end)[2] if found else ""
    path.write_text((before if found else document.rstrip("\n") + "\n\n") + begin + text.rstrip("\n") + "\n" + end + after,
                    encoding="utf-8")


def render_text(result, rows):
    """The same for a terminal, short."""
    lines = [f"{len(rows)} streams, seed {result['seed']}"]
    for key, measured in summarize(rows).items():
        lines.append(f"  {key:22} n {measured['count']:6}  p50 {_ms(measured['p50']):>9}  p99 {_ms(measured['p99']):>9}  "
                     f"max {_ms(measured['max']):>9} ms  mean {_ms(measured['mean']):>9}")
    for _, passed, text in result["verdicts"]:
        lines.append(("passed  " if passed else "FAILED  ") + text)
    problems = _problems(rows, 30)
    return "\n".join(lines + ([problems] if problems else []))
