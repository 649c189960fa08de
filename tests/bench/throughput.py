# SPDX-License-Identifier: Apache-2.0
"""Full load of small answers (wrk, nginx) and of bulk data (iperf3), in blocks of interleaved slices."""

import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time
import urllib.request

import machine
from rig.process import Process, RigError, wait_for  # states.py sets the path
from statistics_of_pairs import compare

NGINX = """
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  keepalive_requests 100000000;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{ default_type text/plain; return 200 "hello world\\n"; }}
    location = /status {{ stub_status; }}
  }}
}}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _accepts(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _children(pid):
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _on_cpu(number, argv):
    """Each end on a CPU of its own: left to the scheduler, throughput jumps between two levels."""
    return ["taskset", "-c", str(number), *argv] if (os.cpu_count() or 1) > number else argv


def _run_timed(argv):
    """Runs a command; (its standard output, its CPU seconds)."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RigError(f"{argv[0]} failed:\n{output}")
    return output, usage.ru_utime + usage.ru_stime


class Nginx:
    """One worker, kept at full load by wrk."""

    title = "nginx, small answers (wrk)"
    unit = "requests"

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="inferwire-bench-")
        self._port = free_port()
        config = pathlib.Path(self._folder.name) / "nginx.conf"
        config.write_text(NGINX.format(folder=self._folder.name, port=self._port), encoding="utf-8")
        self._server = Process(_on_cpu(0, ["nginx", "-p", self._folder.name, "-c", str(config), "-g", "daemon off;"]), ready=None)
        wait_for(lambda: _accepts(self._port), 10, "nginx")
        self.worker = wait_for(lambda: _children(self._server.popen.pid), 10, "nginx's worker")[0]
        return self

    def __exit__(self, *_):
        self._server.stop()
        self._folder.cleanup()

    def start(self, seconds):
        """A client that goes on for this long."""
        return Process(_on_cpu(1, ["wrk", "-t1", "-c32", f"-d{round(seconds)}s", f"http://127.0.0.1:{self._port}/"]), ready=None)

    def done(self):
        """Units of work so far."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/status", timeout=5) as response:
            return int(response.read().split()[9])

    def slice(self, seconds):
        """(units of work, seconds, CPU seconds of the client)."""
        began = time.monotonic()
        output, cpu = _run_timed(_on_cpu(1, ["wrk", "-t1", "-c32", f"-d{max(1, round(seconds))}s",
                                             f"http://127.0.0.1:{self._port}/"]))
        found = re.search(r"(\d+) requests in ([\d.]+)(m?s)", output)
        if not found or "Non-2xx" in output:
            raise RigError("wrk says:\n" + output)
        spent = float(found.group(2)) * (0.001 if found.group(3) == "ms" else 1)
        return int(found.group(1)), spent or time.monotonic() - began, cpu


class Iperf:
    """One bulk connection over loopback."""

    title = "bulk data (iperf3)"
    unit = "bytes"

    def __enter__(self):
        self._port = free_port()
        self._server = Process(_on_cpu(0, ["iperf3", "-s", "-p", str(self._port), "-B", "127.0.0.1"]), ready=None)
        wait_for(lambda: _accepts(self._port), 10, "iperf3")
        self.worker = self._server.popen.pid
        return self

    def __exit__(self, *_):
        self._server.kill()

    def start(self, seconds):
        time.sleep(0.3)  # the server is still busy with the last one
        return Process(_on_cpu(1, ["iperf3", "-c", "127.0.0.1", "-p", str(self._port), "-t", str(round(seconds))]), ready=None)

    def done(self):
        """Bytes over loopback; what others send there is little beside it."""
        for line in pathlib.Path("/proc/net/dev").read_text(encoding="utf-8").splitlines():
            if line.strip().startswith("lo:"):
                return int(line.split(":", 1)[1].split()[0])
        raise RigError("there is no loopback device")

    def slice(self, seconds):
        for attempt in range(5):
            try:
                output, cpu = _run_timed(_on_cpu(1, ["iperf3", "-c", "127.0.0.1", "-p", str(self._port), "-t",
                                                     str(max(1, round(seconds))), "-J"]))
                break
            except RigError:
                if attempt == 4:
                    raise
                time.sleep(0.2)  # the server is still busy with the probe or the last slice
        total = json.loads(output)["end"]["sum_received"]
        return total["bytes"], total["seconds"], cpu


# What is compared with two empty programs.
WHO = {
    "idle": "the agent's kernel programs, without its process, as they are while it follows no connection",
    "followed": "all of them, as while it follows some",
    "agent": "the agent, following none",
}


def _cpu_ns(pids):
    return sum(machine.run_ns(pid) for pid in pids)


def _rounded(blocks):
    return [{name: {key: round(value, 3) for key, value in entry.items()} for name, entry in block.items()} for block in blocks]


def _result(workload, blocks, who, seconds, seed):
    return {
        "unit": workload.unit,
        "slice_seconds": seconds,
        "throughput": compare(blocks, who, "per_second", seed),
        "cpu_per_unit": compare(blocks, who, "cpu_ns_per_unit", seed),
        "blocks": _rounded(blocks),
    }


def with_agent(workload, states, blocks, seconds, seed, say):
    """Blocks of A1 (two empty programs), B (the agent, started anew), A2 (empty): a client for each slice."""
    soft = machine.soft_interrupt_threads()
    result = []
    workload.slice(1)  # warms up

    def run(state):
        with states.hold(state):
            time.sleep(0.2)
            before = _cpu_ns([workload.worker, *soft])
            units, spent, client_cpu = workload.slice(seconds)
            cpu = client_cpu + (_cpu_ns([workload.worker, *soft]) - before) * 1e-9
        return {"per_second": units / spent, "cpu_ns_per_unit": cpu * 1e9 / units}

    for index in range(blocks):
        result.append({"a1": run("empty"), "agent": run("agent"), "a2": run("empty")})
        if (index + 1) % 10 == 0 or index + 1 == blocks:
            say(f"{workload.title}: agent, block {index + 1} of {blocks}")
    return _result(workload, result, "agent", seconds, seed)


def with_programs(workload, states, blocks, seconds, seed, say):
    """Blocks of A1 (empty), B (the agent's programs, without its process: one set, then the other), A2 (empty), N (nothing),
    switched under one client that goes on all the time: short slices, hence many."""
    soft = machine.soft_interrupt_threads()
    result = []
    began = time.monotonic()
    with states.switch() as switch:
        client = workload.start(blocks * 5 * (seconds + 0.4) + 20)
        try:
            time.sleep(1)
            pids = [workload.worker, client.popen.pid, *soft]

            def run(state):
                switch.to(state)
                time.sleep(0.02)
                units, cpu, start = workload.done(), _cpu_ns(pids), time.monotonic()
                time.sleep(seconds)
                units, cpu, spent = workload.done() - units, _cpu_ns(pids) - cpu, time.monotonic() - start
                return {"per_second": units / spent, "cpu_ns_per_unit": cpu / max(1, units)}

            for _ in range(blocks):
                if not client.alive():
                    raise RigError(f"{client.argv[0]} ended early:\n{client.output()}")
                result.append({"a1": run("empty"), "idle": run("idle"), "followed": run("followed"), "a2": run("empty"),
                               "none": run("none")})
        finally:
            client.kill()
    say(f"{workload.title}: programs, {blocks} blocks in {time.monotonic() - began:.0f} s")
    return {who: _result(workload, result, who, seconds, seed) for who in ("idle", "followed")}


def measure(workload, states, size, seed, say):
    with workload:
        return {
            "title": workload.title,
            **with_programs(workload, states, size["switches"], size["switch_slice"], seed, say),
            "agent": with_agent(workload, states, size["blocks"], size["block_slice"], seed, say),
        }
