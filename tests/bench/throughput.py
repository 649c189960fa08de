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


def measure(workload, states, blocks, seconds, seed, say):
    """Blocks of A1 (two empty programs), B (the agent), A2 (empty), N (nothing attached)."""
    soft = machine.soft_interrupt_threads()
    result = []
    with workload:
        workload.slice(1)  # warms up

        def run(state):
            with states.hold(state):
                before = machine.run_ns(workload.worker) + sum(machine.run_ns(pid) for pid in soft)
                units, spent, client_cpu = workload.slice(seconds)
                after = machine.run_ns(workload.worker) + sum(machine.run_ns(pid) for pid in soft)
            cpu = client_cpu + (after - before) * 1e-9
            return {"per_second": units / spent, "cpu_ns_per_unit": cpu * 1e9 / units}

        for index in range(blocks):
            result.append({"a1": run("empty"), "b": run("agent"), "a2": run("empty"), "none": run("none")})
            say(f"{workload.title}: block {index + 1} of {blocks}")
    return {
        "unit": workload.unit,
        "slice_seconds": seconds,
        "blocks": [{name: {key: round(value, 3) for key, value in entry.items()} for name, entry in block.items()}
                   for block in result],
        "throughput": compare(result, "per_second", seed),
        "cpu_per_unit": compare(result, "cpu_ns_per_unit", seed),
    }
