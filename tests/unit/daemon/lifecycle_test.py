# SPDX-License-Identifier: Apache-2.0
"""The built agent on this kernel: start, refusals with their fix, what is left after SIGKILL, what each denied hook
costs. Real programs are loaded: root and a kernel that allows them are needed."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

from rig import testing  # noqa: E402
from rig.agent import Agent  # noqa: E402
from rig.build import agent_binary  # noqa: E402

CHUNKS = 5
EVENT = b'data: {"model":"m","choices":[{"index":0,"delta":{"content":"word"}}]}\n\n'
PROGRAMS = ("cgroup_skb__ingress", "cgroup_skb__egress")


class StreamServer:
    """A real HTTP/1.1 server of SSE streams on a free port, in threads of this process."""

    def __init__(self, chunks=CHUNKS, pause_s=0.01):
        self.chunks, self.pause_s = chunks, pause_s
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, contextlib.suppress(OSError):
            request = b""
            while not request.endswith(b"\r\n\r\n{}"):  # unread bytes at close() would be a reset
                got = connection.recv(65536)
                if not got:
                    return
                request += got
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                               b"Transfer-Encoding: chunked\r\n\r\n")
            for event in [EVENT] * self.chunks + [b"data: [DONE]\n\n"]:
                connection.sendall(b"%x\r\n%s\r\n" % (len(event), event))
                time.sleep(self.pause_s)
            connection.sendall(b"0\r\n\r\n")

    def ask(self, path="/v1/chat/completions"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("POST", path, b"{}", {"Content-Type": "application/json"})
        body = connection.getresponse().read()
        connection.close()
        return body

    def close(self):
        self.listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def run_agent(*flags, prefix=(), env=None, timeout_s=30):
    """An agent that is expected to end by itself; (exit status, standard error)."""
    done = subprocess.run([*prefix, agent_binary(), "agent", "--listen", "127.0.0.1:0", "--socket", "", *flags],
                          capture_output=True, text=True, timeout=timeout_s, env=env, check=False)
    return done.returncode, done.stderr


def programs_loaded():
    """Ids of the packet programs that are loaded now, of whatever agent."""
    shown = subprocess.run([shutil.which("bpftool") or "/usr/sbin/bpftool", "-j", "prog", "show"],
                           capture_output=True, check=True)
    return {program["id"] for program in json.loads(shown.stdout)
            if any(name.startswith(program.get("name", "?")) for name in PROGRAMS)}


def held_by(pid):
    """Ids of programs and links that the process has open."""
    programs, links = set(), set()
    for entry in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            text = entry.read_text()
        except FileNotFoundError:  # closed since
            continue
        programs.update(int(found) for found in re.findall(r"^prog_id:\s+(\d+)", text, re.M))
        links.update(int(found) for found in re.findall(r"^link_id:\s+(\d+)", text, re.M))
    return programs, links


def ids(kind):
    shown = subprocess.run([shutil.which("bpftool") or "/usr/sbin/bpftool", "-j", kind, "show"],
                           capture_output=True, check=True)
    return {entry["id"] for entry in json.loads(shown.stdout)}


def await_true(condition, timeout_s=10):
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def sample(text, name, **labels):
    """Value of the one sample with these labels, or None."""
    for line in text.splitlines():
        if line.startswith(name + "{") and all(f'{key}="{value}"' in line for key, value in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    return None


def host_cgroup_root():
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ")
        if right.split()[0] == "cgroup2" and os.stat(left.split()[4]).st_ino == 1:
            return left.split()[4]
    raise unittest.SkipTest("no host cgroup v2 root here")


def ask_socket(path, request):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(request.encode() + b"\n")
        answer = b""
        while got := client.recv(65536):
            answer += got
    return json.loads(answer)


class AgentTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root: loads kernel programs")
        if agent_binary() is None:
            raise unittest.SkipTest("inferwire is not built")

    def records_of(self, agent, port, count=2):
        """The final records of the server on `port`, once there are `count`."""
        found = []

        def there():
            found[:] = [record for record in agent.records()
                        if port in (int(record["local"].rsplit(":", 1)[1]), int(record["remote"].rsplit(":", 1)[1]))]
            return len(found) >= count

        self.assertTrue(await_true(there), f"{len(found)} of {count} records")
        return found


class Running(AgentTest):
    def test_a_stream_is_seen_from_both_ends_and_the_agent_stops_cleanly(self):
        with StreamServer() as server, Agent() as agent:
            server.ask()
            records = self.records_of(agent, server.port)
            self.assertEqual(sorted(record["role"] for record in records), ["client", "server"])
            for record in records:
                self.assertEqual((record["chunks"], record["code"], record["outcome"], record["route"]),
                                 (CHUNKS, 200, "complete", "/v1/chat/completions"))
                self.assertEqual(record["workload"], record["comm"])
                self.assertEqual(record["pid"], os.getpid())
            status, seconds = agent.stop()
            self.assertEqual(status, 0)
            self.assertLess(seconds, 5)

    def test_ready_is_said_once_and_the_self_check_is_in_no_metric_and_no_record(self):
        with Agent() as agent:
            self.assertEqual(agent.get("/readyz"), "ready\n")
            self.assertEqual(agent.get("/healthz"), "ok\n")
            own = f'port="{agent.metrics_url().rsplit(":", 1)[1]}"'
            for _ in range(3):
                agent.get()
            time.sleep(6)  # one reading of the kernel's counts
            text = agent.get()
            self.assertNotIn("inferwire-check", text)
            self.assertIn(own, text, "as a listener")
            self.assertNotIn(own, "".join(line for line in text.splitlines() if "requests" in line))
            self.assertEqual(sample(text, "inferwire_signal_up", signal="self_check"), 1)
            self.assertEqual(sample(text, "inferwire_hook_info", hook="ingress", rung="cgroup_skb"), 1)
            self.assertNotIn("inferwire-check", agent.records_path.read_text())
            self.assertEqual(sum(line == "ready" for line in agent.process.lines), 1)

    def test_an_open_stream_is_seen_by_top_and_written_as_it_is_when_the_agent_stops(self):
        with StreamServer(chunks=400, pause_s=0.05) as server, tempfile.TemporaryDirectory() as folder:
            agent = Agent(folder=folder)
            with contextlib.closing(agent):
                threading.Thread(target=lambda: contextlib.suppress(Exception) and server.ask(), daemon=True).start()
                mine = []

                def open_now():
                    top = ask_socket(pathlib.Path(folder) / "agent.sock", "top")
                    mine[:] = [entry for entry in top["open"] if entry["local"].endswith(f":{server.port}")]
                    return mine and mine[0].get("chunks", 0) >= 3

                self.assertTrue(await_true(open_now))
                before = mine[0]["chunks"]
                self.assertTrue(await_true(lambda: open_now() and mine[0]["chunks"] > before))
                status = ask_socket(pathlib.Path(folder) / "agent.sock", "status")
                self.assertTrue(status["ready"])
                self.assertGreaterEqual(status["requests"]["open"], 2)
            partial = [record for record in agent.records(final=False)
                       if not record["final"] and record["local"].endswith(f":{server.port}")]
            self.assertEqual(len(partial), 1)
            self.assertGreater(partial[0]["chunks"], before)

    def test_hooks_on_every_read_and_send_are_there_only_while_connections_are_followed(self):
        def links(agent):
            return len(held_by(agent.process.popen.pid)[1])

        with StreamServer(chunks=40) as server, Agent(flags=["--idle-detach", "300ms"]) as agent:
            self.assertTrue(await_true(lambda: len({links(agent) for _ in range(20) if not time.sleep(0.05)}) == 1))
            idle = links(agent)
            asking = threading.Thread(target=server.ask)
            asking.start()
            self.assertTrue(await_true(lambda: links(agent) == idle + 2, 1), "they are back")
            asking.join()
            self.assertTrue(await_true(lambda: links(agent) == idle, 2), "they are gone again")
            server.ask()
            for record in self.records_of(agent, server.port, 4):
                # What such a request lacks is named; nothing is made up.
                self.assertEqual((record["chunks"], record["outcome"]), (40, "complete"))
                if record["role"] == "server":
                    self.assertNotEqual("read_wait" in record["phases_ns"], "read_wait" in record["phases_missing"])
        with StreamServer() as server, Agent() as agent:
            server.ask()
            for record in self.records_of(agent, server.port):
                self.assertNotIn("read_wait", record.get("phases_missing", []), "by default they stay a minute")

    def test_a_full_accept_queue_is_told_by_metrics_records_top_and_show(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as open_sockets:
            agent = Agent(folder=folder, flags=["--partial-interval", "500ms"])
            with contextlib.closing(agent):
                listener = open_sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1))
                port = str(listener.getsockname()[1])
                for _ in range(12):
                    client = open_sockets.enter_context(socket.socket())
                    client.setblocking(False)
                    client.connect_ex(("127.0.0.1", int(port)))

                def dropped():
                    return sample(agent.get(), "inferwire_tcp_listen_drops_total", port=port,
                                  reason="accept_queue_full") or 0

                self.assertTrue(await_true(lambda: dropped() > 10), "no drops were counted")
                self.assertEqual(sample(agent.get(), "inferwire_tcp_accept_queue_limit", port=port), 1)
                self.assertEqual(sample(agent.get(), "inferwire_tcp_accept_queue_length", port=port), 2)
                top = ask_socket(pathlib.Path(folder) / "agent.sock", "top")
                shown = [entry for entry in top["listeners"] if entry["listener"] == f"127.0.0.1:{port}"]
                self.assertEqual(shown[0]["pid"], os.getpid())
                self.assertGreater(shown[0]["drops"]["accept_queue_full"], 10)
                self.assertTrue(any(row["states"].get("syn_sent", 0) >= 9 for row in top["connections"]), top["connections"])
            records = [record for record in map(json.loads, agent.records_path.read_text().splitlines())
                       if record["type"] == "listen_drop" and record["listener"] == f"127.0.0.1:{port}"]
            self.assertEqual(sum(record["count"] for record in records), records[-1]["total"])
            self.assertEqual({(record["limit_name"], record["limit_value"]) for record in records}, {("backlog", 1)})
            show = subprocess.run([agent_binary(), "show", "--columns", "60", agent.records_path],
                                  capture_output=True, text=True, check=True).stdout
            self.assertIn("the application's backlog = 1.", " ".join(show.split()))
            self.assertLessEqual(max(map(len, show.splitlines())), 60)
            refused = subprocess.run([agent_binary(), "show", "--columns", "59", agent.records_path],
                                     capture_output=True, text=True, check=False)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("60", refused.stderr)

    def test_nothing_is_left_after_sigkill(self):
        agent = Agent()
        programs, links = held_by(agent.process.popen.pid)
        self.assertGreaterEqual(len(programs), 2)
        self.assertGreaterEqual(len(links), 2)
        self.assertLessEqual(programs, ids("prog"))
        agent.process.popen.send_signal(signal.SIGKILL)
        agent.process.popen.wait()
        self.assertTrue(await_true(lambda: not programs & ids("prog")), "programs are left")
        self.assertTrue(await_true(lambda: not links & ids("link")), "links are left")
        left = [path.name for path in pathlib.Path(host_cgroup_root()).glob(f"inferwire-*-{agent.process.popen.pid}")]
        self.assertEqual(left, [])

    def test_nothing_is_left_after_sigkill_in_the_middle_of_the_self_check(self):
        pattern = "inferwire-self-check-"
        root = pathlib.Path(host_cgroup_root())
        process = subprocess.Popen([agent_binary(), "agent", "--listen", "127.0.0.1:0", "--socket", ""],
                                   stderr=subprocess.DEVNULL)
        folder = root / f"{pattern}{process.pid}"
        self.assertTrue(await_true(folder.exists, 60))
        process.kill()
        process.wait()
        self.assertTrue(await_true(lambda: not folder.exists()), f"{folder} is left")

    def test_a_tiny_ring_buffer_loses_records_but_no_count(self):
        with StreamServer(chunks=1, pause_s=0) as server, \
                Agent(flags=["--ringbuf-bytes", "4096", "--drain-interval", "1000ms"]) as agent:
            requests = 60
            askers = [threading.Thread(target=lambda: [server.ask() for _ in range(requests // 6)]) for _ in range(6)]
            for asker in askers:
                asker.start()
            for asker in askers:
                asker.join()

            def counted():
                # The same text has everything: seen = exported + lost is exact at each scrape.
                text = agent.get()
                return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                           if line.startswith("inferwire_requests_total{") and f'port="{server.port}"' in line) == requests

            self.assertTrue(await_true(counted, 30), "requests are missing from inferwire_requests_total")
            text = agent.get()
            total = sample(text, "inferwire_records_total", kind="final")
            lost = sample(text, "inferwire_records_lost_total", kind="final", where="ring_buffer")
            self.assertGreater(lost, 0)
            agent.stop()
            self.assertEqual(total, len(agent.records()) + lost)


class Denied(AgentTest):
    def test_each_optional_hook_can_be_missing(self):
        for word, signal_name in [("getpeername", "accept"), ("inet_sock_set_state", "connection_state"),
                                  ("tcp_rcv_space_adjust", "read"), ("send", "hold"),
                                  ("tcp_retransmit_skb", "retransmits"), ("tcp_send_reset", "resets"),
                                  ("open_requests", "open_requests"), ("older_sockets", "older_sockets")]:
            with self.subTest(denied=word), StreamServer() as server, Agent(flags=["--hooks.deny", word]) as agent:
                server.ask()
                records = self.records_of(agent, server.port)
                self.assertEqual(sorted(record["role"] for record in records), ["client", "server"])
                self.assertEqual({record["chunks"] for record in records}, {CHUNKS})
                text = agent.get()
                self.assertEqual(sample(text, "inferwire_signal_up", signal=signal_name), 0)
                self.assertEqual(sample(text, "inferwire_signal_up", signal="requests"), 1)
                self.assertEqual(sample(text, "inferwire_mode", mode="degraded"), 1)
                self.assertEqual([line for line in text.splitlines() if line.startswith("inferwire_signal_up{")
                                  and line.endswith(" 1") and 'reason=""' not in line], [])

    def test_all_but_the_end_of_connections_at_once(self):
        # Without reads and without state changes nothing says that a client has its answer.
        with StreamServer() as server, \
                Agent(flags=["--hooks.deny", "tcp_rcv_space_adjust,send,tcp_retransmit_skb,getpeername",
                             "--hooks.deny", "open_requests"]) as agent:
            server.ask()
            self.assertEqual({record["chunks"] for record in self.records_of(agent, server.port)}, {CHUNKS})

    def test_a_required_hook_cannot_be_denied(self):
        status, errors = run_agent("--hooks.deny", "ingress")
        self.assertEqual(status, 1)
        self.assertIn("cgroup_skb__ingress: denied by configuration (ingress)", errors)


class Refused(AgentTest):
    def test_an_unknown_key_flag_and_variable(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("listen: 127.0.0.1:0\nhooks:\n  dney: [x]\n")
            file.flush()
            status, errors = run_agent("--config", file.name)
        self.assertEqual(status, 2)
        self.assertIn(f"{file.name}:3: unknown key 'hooks.dney'; did you mean 'hooks.deny'?", errors)
        status, errors = run_agent("--lisen", "x")
        self.assertEqual(status, 2)
        self.assertIn("unknown flag --lisen; did you mean --listen?", errors)
        status, errors = run_agent(env={**os.environ, "INFERWIRE_DRAIN_INTERVAL": "soon"})
        self.assertEqual(status, 2)
        self.assertIn("environment variable INFERWIRE_DRAIN_INTERVAL", errors)

    def test_a_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            status, errors = run_agent("--listen", f"127.0.0.1:{port}")
        self.assertEqual(status, 1)
        self.assertRegex(errors, f"127.0.0.1:{port}: Address already in use")
        self.assertIn("--listen", errors)

    def test_each_missing_capability_by_name(self):
        if not shutil.which("setpriv"):
            self.skipTest("needs setpriv (util-linux)")
        for capability in ("bpf", "perfmon", "net_admin"):
            with self.subTest(capability=capability):
                status, errors = run_agent(prefix=["setpriv", f"--bounding-set=-{capability},-sys_admin"])
                self.assertEqual(status, 1)
                self.assertIn(f"missing capability CAP_{capability.upper()};", errors)

    def test_an_unprivileged_user(self):
        if not shutil.which("setpriv"):
            self.skipTest("needs setpriv (util-linux)")
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            binary = shutil.copy(agent_binary(), folder)
            done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", binary, "agent",
                                   "--listen", "127.0.0.1:0"], capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("missing capabilities CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN", done.stderr)

    def test_the_three_capabilities_are_enough(self):
        if not shutil.which("setpriv"):
            self.skipTest("needs setpriv (util-linux)")
        keep = "-all,+bpf,+perfmon,+net_admin"
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            os.chmod(root, 0o755)
            binary = shutil.copy(agent_binary(), folder)
            process = subprocess.Popen(
                ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", f"--inh-caps={keep}",
                 f"--ambient-caps={keep}", f"--bounding-set={keep}", binary, "agent", "--listen", "127.0.0.1:0",
                 "--socket", ""], stderr=subprocess.PIPE, text=True)
            try:
                lines = iter(process.stderr.readline, "")
                said = []
                for line in lines:
                    said.append(line)
                    if line == "ready\n":
                        break
                self.assertEqual(said[-1:], ["ready\n"], "".join(said))
            finally:
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(10), 0)
                process.stderr.close()


class CgroupNamespace(AgentTest):
    """As a container has it: a cgroup of its own, a cgroup namespace, and that namespace's view mounted."""

    def setUp(self):
        self.root = pathlib.Path(host_cgroup_root())
        self.cgroup = self.root / f"inferwire-lifecycle-test-{os.getpid()}"
        self.cgroup.mkdir()
        self.addCleanup(self.cgroup.rmdir)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.host_view = pathlib.Path(self.folder.name) / "host"
        self.host_view.mkdir()

    def inside(self, *flags):
        """Command line that becomes the agent inside the namespaces; the host's hierarchy is at self.host_view."""
        agent = " ".join([agent_binary(), "agent", "--listen", "127.0.0.1:0", "--socket", f"{self.folder.name}/agent.sock",
                          "--records", f"{self.folder.name}/records.jsonl", *map(str, flags)])
        mounts = f"mount --rbind {self.root} {self.host_view} && umount -l {self.root} && " \
                 f"mount -t cgroup2 none {self.root} && exec {agent}"
        return ["sh", "-c", f"echo $$ > {self.cgroup}/cgroup.procs && exec unshare -C -m sh -c '{mounts}'"]

    def test_the_private_root_is_refused_with_the_fix(self):
        done = subprocess.run(self.inside("--cgroup-root", self.root), capture_output=True, text=True, timeout=30,
                              check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("it is not the host's root (inode ", done.stderr)
        self.assertIn("--cgroup-root DIR", done.stderr)
        self.assertNotIn("ready", done.stderr)

    def test_told_nothing_it_refuses_and_names_the_hosts_root_that_it_can_see(self):
        done = subprocess.run(self.inside(), capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("the agent runs in a cgroup namespace of its own", done.stderr)
        self.assertIn(f"pass --cgroup-root {self.host_view}", done.stderr)

    def test_given_the_hosts_hierarchy_it_sees_streams_of_other_cgroups(self):
        with StreamServer() as server:
            process = subprocess.Popen(self.inside("--cgroup-root", self.host_view), stderr=subprocess.PIPE, text=True)
            try:
                said = []
                for line in iter(process.stderr.readline, ""):
                    said.append(line)
                    if line == "ready\n":
                        break
                self.assertEqual(said[-1:], ["ready\n"], "".join(said))
                server.ask()
                time.sleep(1)
            finally:
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(10), 0)
                process.stderr.close()
            records = [json.loads(line) for line in
                       pathlib.Path(self.folder.name, "records.jsonl").read_text().splitlines()]
            mine = [record for record in records if f":{server.port}" in record["local"] + record["remote"]]
            self.assertEqual(sorted(record["role"] for record in mine), ["client", "server"])


class Doctor(AgentTest):
    def test_it_says_hook_by_hook_what_works(self):
        done = subprocess.run([agent_binary(), "doctor", "--json"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        report = json.loads(done.stdout)
        self.assertTrue(report["works"])
        self.assertEqual(report["checks"]["self-check"]["verdict"], "ok", report["checks"])
        self.assertTrue(all(hook["loads"] and hook["attaches"] for hook in report["hooks"] if hook["required"]))

    def test_it_fails_and_says_what_is_missing(self):
        if not shutil.which("setpriv"):
            self.skipTest("needs setpriv (util-linux)")
        done = subprocess.run(["setpriv", "--bounding-set=-net_admin", agent_binary(), "doctor"], capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("missing capability CAP_NET_ADMIN", done.stdout)
        self.assertIn("mend: run as root, or grant", done.stdout)


if __name__ == "__main__":
    testing.main()
