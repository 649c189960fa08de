# SPDX-License-Identifier: Apache-2.0
"""Child processes that announce themselves with a line, and that always end with the test."""

import contextlib
import ctypes
import functools
import os
import signal
import subprocess
import threading
import time

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _prepare(prompt):
    """In the child: it ends with its parent. `prompt`: it runs before everything that is not real-time, so that its clock
    readings do not wait for a CPU, as far as the machine allows: a rig that waits gives wrong ground truth."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if prompt:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


class RigError(Exception):
    """A rig did not do its own part; says nothing about what is being tested."""


class Process:
    """A process whose `stream` ("stdout" or "stderr") is watched for a line that starts with `ready`."""

    def __init__(self, argv, *, ready="ready", stream="stdout", timeout_s=20.0, env=None, stdin=None, cwd=None, prompt=False):
        self.argv = [str(word) for word in argv]
        self.lines = []
        self._ready_word, self._ready = ready, threading.Event()
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        # PDEATHSIG follows the thread that forks: start rigs from a thread that outlives them.
        self.popen = subprocess.Popen(self.argv, stdin=stdin if stdin is not None else subprocess.DEVNULL,
                                      env=env, cwd=cwd, preexec_fn=functools.partial(_prepare, prompt), **pipes)
        self.ready_line = None
        self._readers = [threading.Thread(target=self._drain, args=(getattr(self.popen, name), name == stream),
                                          daemon=True) for name in pipes]
        for reader in self._readers:
            reader.start()
        if ready is not None:
            self._await_ready(timeout_s)

    def _drain(self, pipe, may_be_ready):
        for raw in pipe:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            self.lines.append(line)
            if may_be_ready and self._ready_word and self.ready_line is None and line.startswith(self._ready_word):
                self.ready_line = line
                self._ready.set()
        pipe.close()

    def _await_ready(self, timeout_s):
        deadline = time.monotonic() + timeout_s
        while not self._ready.wait(0.02):
            if self.popen.poll() is not None:
                raise RigError(f"{self.argv[0]} ended with {self.popen.returncode} before it was ready:\n{self.output()}")
            if time.monotonic() > deadline:
                self.kill()
                raise RigError(f"{self.argv[0]} was not ready within {timeout_s} s:\n{self.output()}")

    def output(self, last=40):
        return "\n".join(self.lines[-last:])

    def alive(self):
        return self.popen.poll() is None

    def stop(self, timeout_s=10.0):
        """SIGTERM, then the exit status; SIGKILL and an error if it does not end in time."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
        try:
            status = self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RigError(f"{self.argv[0]} ignored SIGTERM for {timeout_s} s") from None
        for reader in self._readers:
            reader.join(2)
        if self.popen.stdin:
            self.popen.stdin.close()
        return status

    def kill(self):
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.stop()
        else:
            self.kill()


def wait_for(condition, timeout_s, what, every_s=0.02):
    """Returns the first true value of `condition()`; raises RigError after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise RigError(f"timed out after {timeout_s} s waiting for {what}")
        time.sleep(every_s)


def run(argv, *, netns=None, timeout_s=60, check=True, env=None, input_text=None, prompt=False):
    """Runs a command to its end and returns the CompletedProcess (text)."""
    argv = in_netns(netns, argv)
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, timeout=timeout_s, env=env,
                          input=input_text, check=False, preexec_fn=functools.partial(_prepare, prompt))
    if check and done.returncode != 0:
        raise RigError(f"{' '.join(map(str, argv))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def in_netns(netns, argv):
    """`argv` run inside a named network namespace (None: the test's own)."""
    if netns is None:
        return list(argv)
    return ["ip", "netns", "exec", getattr(netns, "name", netns), *argv]

