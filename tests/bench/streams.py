# SPDX-License-Identifier: Apache-2.0
"""Many paced streams: what the agent loses, uses and does to their pace."""

import json
import os
import re
import tempfile
import threading
import time

import machine
from rig.process import Process, RigError  # states.py sets the path


class Load:
    """The generator's server, one port a worker; each run is one client."""

    def __init__(self, tools, workers):
        self._program = tools / "bench" / "inferwire-load"
        self._server = Process([self._program, "server", "--workers", str(workers)], ready="{", timeout_s=20)
        self.ports = json.loads(self._server.ready_line)["ports"]

    def run(self, connections, events, rate, seed, seconds):
        """One client; what it counted, with its CPU time."""
        client = Process([self._program, "client", "--ports", ",".join(map(str, self.ports)), "--traffic", "stream",
                          "--connections", str(connections), "--events", str(events), "--rate", str(rate),
                          "--stagger-ms", str(int(1000 / rate) if rate else 0), "--seconds", str(seconds),
                          "--seed", str(seed)], ready=None)
        client.popen.wait()
        if client.stop() != 0:
            raise RigError("the load failed:\n" + client.output())
        return json.loads(client.lines[-1])

    def close(self):
        """What the server counted in all its life."""
        self._server.stop()
        return json.loads(self._server.lines[-1])


class Watch(threading.Thread):
    """Highest resident memory and socket storage of a process while it runs."""

    def __init__(self, agent):
        super().__init__(daemon=True)
        self._agent, self._end = agent, threading.Event()
        self.resident, self.open_requests, self.maps = 0, 0, {}

    def run(self):
        while not self._end.wait(1.0):
            try:
                self.resident = max(self.resident, machine.resident_bytes(self._agent.process.popen.pid))
                self.maps = machine.maps_of(self._agent.process.popen.pid)
            except (OSError, ValueError, IndexError):
                return

    def end(self):
        self._end.set()
        self.join()


def _counter(text, family):
    """Sum of a family's values in a scrape; None if it has none."""
    values = [float(value) for value in re.findall(rf"^{family}(?:{{[^}}]*}})? (\S+)", text, re.M)]
    return sum(values) if values else None


def _one(tools, connections, events, rate, seed, longest):
    load = Load(tools, os.cpu_count() or 1)
    try:
        client = load.run(connections, events, rate, seed, longest)
    finally:
        server = load.close()
    return client, server, set(load.ports)


def _figures(client, server):
    """The generator's own account of one run."""
    return {
        "streams": client["requests"],
        "chunks": client["events"],
        "failed": client["failed"],
        "seconds": round(client["seconds"], 2),
        "chunks_per_second": round(client["events"] / client["seconds"]),
        "lag_us": server.get("lag_us"),
        "blocked_writes": server["blocked_writes"],
        "generator_cpu_us_per_chunk": round((client["cpu_seconds"] + server["cpu_seconds"]) * 1e6 / max(1, client["events"]), 3),
    }


def _port_of_server(record):
    """Whose load it was: other programs of this machine may make streams, too."""
    return int(record["local" if record.get("role") == "server" else "remote"].rsplit(":", 1)[1])


def _with_agent(states, run):
    """A run beside the agent: the generator's account, and the agent's."""
    with states.hold("agent") as agent:
        pid = agent.process.popen.pid
        before = agent.get()
        watch = Watch(agent)
        watch.start()
        cpu_before, began = machine.run_ns(pid), time.monotonic()
        client, server, ports = run()
        cpu, wall = machine.run_ns(pid) - cpu_before, time.monotonic() - began
        time.sleep(1.5)  # the ring buffer is drained by a timer
        watch.end()
        after = agent.get()
        finals = [record for record in agent.records() if _port_of_server(record) in ports]
    roles = {}
    for record in finals:
        role = roles.setdefault(record.get("role", "?"), {"requests": 0, "chunks": 0})
        role["requests"] += 1
        role["chunks"] += record.get("chunks", 0)
    # Both ends of every stream are on this machine: two sockets, each with an element in every socket storage.
    sockets = 2 * client["requests"]
    elements = sum(machine.storage_element_bytes(entry["value_size"]) for entry in watch.maps.values()
                   if entry["type"] == machine.SK_STORAGE) * sockets
    fixed = sum(entry["memlock_bytes"] for entry in watch.maps.values())
    delta = {name: (_counter(after, family) or 0) - (_counter(before, family) or 0)
             for name, family in (("records", "inferwire_records_total"), ("records_lost", "inferwire_records_lost_total"))}
    return _figures(client, server), {
        "cpu_seconds": round(cpu * 1e-9, 3),
        "cpu_percent_of_one_core": round(cpu * 1e-7 / wall, 2),
        "cpu_us_per_chunk": round(cpu * 1e-3 / max(1, client["events"]), 4),
        "resident_bytes": watch.resident,
        "map_bytes": fixed,
        "socket_storage_bytes": elements,
        "memory_bytes": watch.resident + fixed + elements,
        "records": int(delta["records"]),
        "records_lost": int(delta["records_lost"]),
        "seen": roles,
    }


def _with_tcpdump(tools, connections, events, rate, seed, longest):
    """The same traffic, written to a file by tcpdump."""
    load = Load(tools, os.cpu_count() or 1)
    with tempfile.TemporaryDirectory(prefix="inferwire-bench-") as folder:
        path = os.path.join(folder, "capture.pcap")
        ports = " or ".join(f"tcp port {port}" for port in load.ports)
        capture = Process(["tcpdump", "-Z", "root", "-i", "lo", "-w", path, ports], ready="tcpdump: listening", stream="stderr")
        pid = capture.popen.pid
        cpu_before = machine.run_ns(pid)
        try:
            client = load.run(connections, events, rate, seed, longest)
            cpu = machine.run_ns(pid) - cpu_before
            resident = machine.resident_bytes(pid)
        finally:
            server = load.close()
            capture.stop()
        written = os.path.getsize(path)
    dropped = re.search(r"(\d+) packets dropped by kernel", capture.output())
    return _figures(client, server), {
        "cpu_seconds": round(cpu * 1e-9, 3),
        "cpu_us_per_chunk": round(cpu * 1e-3 / max(1, client["events"]), 4),
        "resident_bytes": resident,
        "written_bytes": written,
        "packets_dropped": int(dropped.group(1)) if dropped else None,
    }


def measure(states, tools, plan, seed, say):
    """Each load of `plan` (streams, chunks a second, seconds) with nothing, with two empty programs, with the agent, and
    beside tcpdump."""
    out = []
    for streams, rate, seconds in plan:
        events, longest = int(rate * seconds), 4 * seconds + 60
        entry = {"streams": streams, "rate": rate, "events": events}
        for state in ("none", "empty"):
            say(f"{streams} streams at {rate}/s: {state}")
            with states.hold(state):
                entry[state] = _figures(*_one(tools, streams, events, rate, seed, longest)[:2])
        say(f"{streams} streams at {rate}/s: agent")
        entry["agent"], entry["agent_use"] = _with_agent(states, lambda: _one(tools, streams, events, rate, seed, longest))
        say(f"{streams} streams at {rate}/s: tcpdump")
        entry["tcpdump"], entry["tcpdump_use"] = _with_tcpdump(tools, streams, events, rate, seed, longest)
        out.append(entry)
    return out


def best_rate(states, tools, streams, events, seed, say):
    """What the generator can do at most, by itself and beside the agent: streams without a pace."""
    out = {}
    for state in ("none", "agent"):
        say(f"the generator's best rate: {state}")
        with states.hold(state):
            out[state] = _figures(*_one(tools, streams, events, 0, seed, 120)[:2])
    return out
