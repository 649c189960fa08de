# SPDX-License-Identifier: Apache-2.0
"""Runs in the guest: every rung of every hook, then the kernel tests. Writes results.json and a line of progress each."""

import argparse
import json
import pathlib
import subprocess
import sys
import time

# Rungs that a kernel cannot have, and why. Another one that fails is a failure; so is one of these that works.
ABSENT = {
    "6.1": {
        "fexit__inet_csk_accept": "its arguments are other ones before 6.10",
        "tp_btf__sock_send_length": "since 6.3",
        "tp_btf__tcp_retransmit_skb_err": "since 6.17",
        "tp_btf__tcp_send_reset_reason": "since 6.10",
    },
    "6.12": {
        "fexit__inet_csk_accept_flags": "its arguments are other ones since 6.10",
        "tp_btf__tcp_retransmit_skb_err": "since 6.17",
    },
}

# Tests of CTest by name, with what makes them slow enough or short enough for an emulated processor.
CTESTS = ("packets_test", "observes_only_test", "e2e.handshakes", "e2e.stream_shapes", "kernel.records")
# Words of hooks.deny that put the tests on lower rungs.
SCENARIOS = "tests/e2e/tcp/truth.py"


class Guest:
    def __init__(self, options):
        self.options = options
        self.tests = []
        self.agent = options.build / "inferwire"

    def wanted(self, name):
        return not self.options.only or any(word in name for word in self.options.only.split(","))

    def told(self, name, why, seconds, verdict=None):
        """`why` is empty when the test has passed."""
        verdict = verdict or ("FAILED" if why else "ok")
        self.tests.append({"name": name, "verdict": verdict, "why": why, "seconds": round(seconds, 1)})
        with open(self.options.results / "progress", "a", encoding="utf-8") as out:
            out.write(f"{verdict:7}{name}{' (' + why.splitlines()[0][:200] + ')' if why else ''}\n")
        (self.options.results / "results.json").write_text(json.dumps({"tests": self.tests}), encoding="utf-8")

    def run(self, argv, timeout_s=900):
        """(exit status, output), the output also in a file."""
        try:
            done = subprocess.run([str(word) for word in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=timeout_s, check=False)
            return done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            return -1, f"took longer than {timeout_s} s\n" + (late.stdout or b"").decode(errors="replace")

    def keep(self, name, output):
        (self.options.results / (name.replace("/", "_") + ".log")).write_text(output, encoding="utf-8", errors="replace")

    def doctor(self, deny=()):
        argv = [self.agent, "doctor", "--json"] + (["--hooks.deny", ",".join(deny)] if deny else [])
        done = subprocess.run([str(word) for word in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        try:
            return json.loads(done.stdout)["hooks"]
        except (ValueError, KeyError):
            self.keep("doctor", done.stdout + done.stderr)
            return []

    def rungs(self):
        """Each program of each hook loads and attaches, the better ones being denied."""
        began = time.monotonic()
        hooks = self.doctor()
        if not hooks:
            self.told("rungs", "doctor tells nothing: doctor.log", time.monotonic() - began)
            return
        absent = ABSENT[self.options.kernel]
        better = {}
        for row in hooks:
            program, name = row["program"], "rung " + row["program"]
            denied = list(better.get(row["hook"], []))
            better.setdefault(row["hook"], []).append(program)
            if not self.wanted(name):
                continue
            began = time.monotonic()
            found = next((one for one in self.doctor(denied) if one["program"] == program), None) if denied else row
            works = found is not None and found["attaches"]
            reason = (found or {}).get("reason", "")
            if program in absent:
                self.told(name, f"works, but should not be there: {absent[program]}" if works else "", time.monotonic() - began,
                          None if works else "absent")
            else:
                self.told(name, "" if works else reason or "not chosen", time.monotonic() - began)

    def ctests(self):
        for name in CTESTS:
            if not self.wanted(name):
                continue
            began = time.monotonic()
            status, output = self.run(["ctest", "--test-dir", self.options.build, "-R", f"^{name}", "--output-on-failure", "--timeout",
                                       "800"])
            self.keep(name, output)
            none = "No tests were found" in output
            self.told(name, "" if status == 0 and not none else "see its log", time.monotonic() - began)

    def scenarios(self):
        if not pathlib.Path(SCENARIOS).exists() or not self.wanted("tcp"):
            return
        began = time.monotonic()
        raw = self.options.results / "tcp.json"
        status, output = self.run(["/usr/bin/python3", SCENARIOS, "--repetitions", str(self.options.repetitions), "--json", str(raw)],
                                  timeout_s=1800)
        self.keep("tcp", output)
        self.told("tcp scenarios", "" if status == 0 else "see its log", time.monotonic() - began)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernel", required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--only", default="")
    guest = Guest(parser.parse_args())
    guest.rungs()
    guest.ctests()
    guest.scenarios()
    sys.exit(0 if guest.tests and all(test["verdict"] != "FAILED" for test in guest.tests) else 1)


if __name__ == "__main__":
    main()
