# SPDX-License-Identifier: Apache-2.0
"""The agent under test, and its records."""

import os
import pathlib
import re
import tempfile
import time
import urllib.request

from .build import agent_binary
from .logs import read_lines
from .process import Process, RigError, run, wait_for


class Agent:
    """`inferwire agent`, running from ready to SIGTERM, with its records and trace in files.

    Several agents may run at once: nothing of it has a fixed name or port. `netns`: the network namespace it runs in.
    `uid`: it runs as this user, with no capabilities but the three that it needs. `prefix`: a command that runs the agent.
    """

    CAPABILITIES = ("bpf", "perfmon", "net_admin")

    def __init__(self, binary=None, *, trace=False, folder=None, flags=(), env=None, timeout_s=60, netns=None, uid=None,
                 prefix=()):
        binary = binary or agent_binary()
        if binary is None:
            raise RigError("inferwire is not built")
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="iwrig-agent-")
        root = pathlib.Path(folder or self._temporary.name)
        self.records_path, self.trace_path = root / "records.jsonl", root / "trace.jsonl"
        argv = [*prefix, binary, "agent", "--records", self.records_path, "--listen", "127.0.0.1:0",
                "--socket", root / "agent.sock", *flags]
        if trace:
            argv += ["--trace-chunks", self.trace_path]
        if uid is not None:
            for path in (root, *root.iterdir()):
                os.chown(path, uid, uid)
            kept = ",".join("+" + name for name in self.CAPABILITIES)
            # A new user's process forgets that it was to end with its parent.
            argv = ["setpriv", "--pdeathsig", "KILL", "--reuid", uid, "--regid", uid, "--clear-groups",
                    "--bounding-set", "-all," + kept, "--inh-caps", "-all," + kept, "--ambient-caps", "-all," + kept, *argv]
        self._entry = ["nsenter", f"--net=/run/netns/{netns.name}"] if netns else []
        argv = [*self._entry, *argv]
        self.process = Process(argv, ready="ready", stream="stderr", timeout_s=timeout_s, env=env)

    def records(self, final=True):
        """The request records so far."""
        return [line for line in read_lines(self.records_path)
                if line.get("type") == "request" and (not final or line.get("final", True))]

    def trace(self):
        return read_lines(self.trace_path)

    def wait_for(self, condition, timeout_s=15, what="records"):
        """Waits until `condition(records)` is true and returns its value; None when it never is."""
        try:
            return wait_for(lambda: condition(self.records()), timeout_s, what, every_s=0.1)
        except RigError:
            return None

    def metrics_url(self):
        """Where /metrics is, as the agent's log says it."""
        for line in self.process.lines:
            found = re.search(r"(?:http://)?((?:127\.0\.0\.1|\[::1\]):\d+)", line)
            if found and not found.group(1).endswith(":0"):
                return f"http://{found.group(1)}"
        raise RigError("the agent did not say where it listens:\n" + self.process.output())

    def get(self, path="/metrics"):
        if self._entry:
            return run([*self._entry, "curl", "-sSf", self.metrics_url() + path]).stdout
        with urllib.request.urlopen(self.metrics_url() + path, timeout=10) as response:
            return response.read().decode()

    def stop(self):
        """SIGTERM; returns (exit status, seconds that it took)."""
        start = time.monotonic()
        status = self.process.stop()
        return status, time.monotonic() - start

    def close(self):
        try:
            status, _ = self.stop()
            if status != 0:
                raise RigError(f"the agent ended with {status}:\n{self.process.output()}")
        finally:
            if self._temporary:
                self._temporary.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.close()
        else:
            self.process.kill()
            if self._temporary:
                self._temporary.cleanup()
