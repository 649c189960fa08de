# SPDX-License-Identifier: Apache-2.0
"""Runs plans (clients/main.cpp) and reads the clients' logs."""

import json
import pathlib
import tempfile

from .build import SUPPORT, binary
from .logs import read_lines
from .process import in_netns, run

KINDS = ("cpp", "aiohttp")


def request(tag, scenario, **more):
    """One request of a plan, for a scenario (rig.scenario)."""
    return {"tag": tag, "path": scenario.path, "body": scenario.body(), **more}


def connection(host, port, requests, **more):
    return {"host": host, "port": port, "requests": list(requests), **more}


def run_plan(connections, *, kind="cpp", netns=None, timeout_s=300, folder=None):
    """Runs the connections of a plan to their end; returns {tag: log line}."""
    with tempfile.TemporaryDirectory(prefix="iwrig-client-") as temporary:
        root = pathlib.Path(folder or temporary)
        plan, log = root / f"plan-{kind}.json", root / f"client-{kind}.jsonl"
        plan.write_text(json.dumps({"connections": list(connections)}), encoding="utf-8")
        program = [binary("inferwire-client")] if kind == "cpp" else [
            "/usr/bin/python3", str(SUPPORT / "clients" / "aiohttp_client.py")]
        run(in_netns(netns, [*program, "--plan", str(plan), "--log", str(log)]), timeout_s=timeout_s, prompt=True)
        return {line["tag"]: line for line in read_lines(log)}
