# SPDX-License-Identifier: Apache-2.0
"""Whose connection it is: cgroups as container runtimes and systemd make them, on the host's real cgroup file system, with
real processes in them, and the kubelet's log folders beside."""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from rig.agent import Agent  # noqa: E402
from rig.build import agent_binary  # noqa: E402
from rig.testing import main  # noqa: E402

SERVER = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
event = b'data: {"choices":[{"index":0,"delta":{"content":"word"}}]}\\n\\n'
while True:
    connection, _ = listener.accept()
    while not connection.recv(65536).endswith(b"{}"):
        pass
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\nConnection: close\\r\\n\\r\\n")
    for piece in [event] * 3 + [b"data: [DONE]\\n\\n"]:
        connection.sendall(piece)
    connection.close()
"""


def host_cgroup_root():
    for line in pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, right = line.split(" - ")
        if right.split()[0] == "cgroup2" and os.stat(left.split()[4]).st_ino == 1:
            return pathlib.Path(left.split()[4])
    raise unittest.SkipTest("no host cgroup v2 root here")


def hex_id(seed):
    return (uuid.uuid5(uuid.NAMESPACE_OID, seed).hex + uuid.uuid5(uuid.NAMESPACE_URL, seed).hex)[:64]


def within(cgroup, argv, **options):
    """A process that is in the cgroup before it makes its first socket."""
    return subprocess.Popen(["/bin/sh", "-c", f'echo $$ > "{cgroup}/cgroup.procs" && exec "$@"', "sh", *argv], **options)


class Tree:
    """Cgroups below one of our own, and the kubelet's folders; both go away at the end."""

    def __init__(self):
        self.root = host_cgroup_root() / f"inferwire-test-{os.getpid()}"
        self.root.mkdir()
        self._logs = tempfile.TemporaryDirectory(prefix="inferwire-logs-")
        self.logs = pathlib.Path(self._logs.name)
        (self.logs / "pods").mkdir()
        (self.logs / "containers").mkdir()

    def make(self, path):
        folder = self.root / path
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def pod_logs(self, namespace, pod, uid, containers):
        """`containers`: id by name."""
        for name, identity in containers.items():
            (self.logs / "pods" / f"{namespace}_{pod}_{uid}" / name).mkdir(parents=True, exist_ok=True)
            (self.logs / "containers" / f"{pod}_{namespace}_{name}-{identity}.log").touch()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _ in range(50):
            with contextlib.suppress(OSError):
                for folder, _, _ in os.walk(self.root, topdown=False):
                    os.rmdir(folder)
                break
            time.sleep(0.1)
        self._logs.cleanup()


@contextlib.contextmanager
def serving(cgroup):
    """The port of a server in the cgroup."""
    process = within(cgroup, [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ask(cgroup, port):
    done = within(cgroup, ["curl", "-sS", "--max-time", "10", "-d", "{}", f"http://127.0.0.1:{port}/v1/chat/completions"],
                  stdout=subprocess.PIPE)
    text = done.communicate(timeout=20)[0]
    assert b"[DONE]" in text, text


class IdentityTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0 or agent_binary() is None:
            raise unittest.SkipTest("needs root and the built agent")

    def setUp(self):
        self.tree = self.enterContext(Tree())
        self.agent = self.enterContext(Agent(flags=["--pod-logs", str(self.tree.logs), "--partial-interval", "500ms"]))

    def who(self, port, role):
        """(namespace, workload, pod, container) of the record."""
        def find(records):
            side = "local" if role == "server" else "remote"
            return [one for one in records if one["role"] == role and one[side].endswith(f":{port}")]

        found = self.agent.wait_for(find, what="the record")
        self.assertTrue(found)
        return tuple(found[-1].get(key, "") for key in ("namespace", "workload", "pod", "container"))

    def test_what_runtimes_and_systemd_make(self):
        uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, "pod"))
        dashless = uid.replace("-", "_")
        ids = {name: hex_id(name) for name in ("containerd", "cgroupfs", "crio", "docker", "plain", "static", "sidecar")}
        self.tree.pod_logs("prod", "vllm-6d4cf56db6-x7k2p", uid, {"server": ids["containerd"], "proxy": ids["sidecar"]})
        crio_uid, static_uid, cgroupfs_uid = str(uuid.uuid4()), uuid.uuid4().hex, str(uuid.uuid4())
        self.tree.pod_logs("prod", "sglang-0", crio_uid, {"engine": ids["crio"]})
        self.tree.pod_logs("kube-system", "gateway-" + os.uname().nodename, static_uid, {"gateway": ids["static"]})
        self.tree.pod_logs("batch", "embed-28904520-x7k2p", cgroupfs_uid, {"embed": ids["cgroupfs"]})
        slice_of = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{dashless}.slice"
        cases = {
            f"{slice_of}/cri-containerd-{ids['containerd']}.scope": ("prod", "vllm", "vllm-6d4cf56db6-x7k2p", "server"),
            f"{slice_of}/cri-containerd-{ids['sidecar']}.scope": ("prod", "vllm", "vllm-6d4cf56db6-x7k2p", "proxy"),
            f"kubepods/burstable/pod{cgroupfs_uid}/{ids['cgroupfs']}": ("batch", "embed", "embed-28904520-x7k2p", "embed"),
            f"kubepods.slice/kubepods-pod{crio_uid.replace('-', '_')}.slice/crio-{ids['crio']}.scope":
                ("prod", "sglang", "sglang-0", "engine"),
            f"kubepods.slice/kubepods-pod{static_uid}.slice/cri-containerd-{ids['static']}.scope":
                ("kube-system", "gateway", "gateway-" + os.uname().nodename, "gateway"),
            f"system.slice/docker-{ids['docker']}.scope": ("", ids["docker"][:12], "", ids["docker"][:12]),
            f"docker/{ids['plain']}": ("", ids["plain"][:12], "", ids["plain"][:12]),
            "system.slice/ollama.service": ("", "ollama.service", "", ""),
            "user.slice/user-1000.slice/session-1.scope": ("", pathlib.Path(sys.executable).name[:15], "", ""),
        }
        client = self.tree.make("system.slice/caller.service")
        for path, expected in cases.items():
            with self.subTest(path):
                with serving(self.tree.make(path)) as port:
                    ask(client, port)
                    self.assertEqual(self.who(port, "server"), expected)
                    # Both talk over 127.0.0.1, in one network namespace.
                    self.assertEqual(self.who(port, "client"), ("", "caller.service", "", ""))
        # The kernel's sums go to the same workloads.
        time.sleep(2)
        opened = dict(re.findall(r'^inferwire_tcp_connections_opened_total\{[^}]*workload="([^"]*)"[^}]*role="server"[^}]*\} (\d+)',
                                 self.agent.get(), re.M))
        for workload in ("sglang", "embed", "gateway", ids["docker"][:12], "ollama.service"):
            self.assertEqual(opened.get(workload), "1", opened)

    def test_a_pod_that_lives_for_a_moment(self):
        server = self.tree.make("system.slice/model.service")
        uid, identity = str(uuid.uuid4()), hex_id("moment")
        with serving(server) as port:
            began = time.monotonic()
            self.tree.pod_logs("ci", "probe-x7k2p", uid, {"probe": identity})
            cgroup = self.tree.make(f"kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{identity}.scope")
            ask(cgroup, port)
            time.sleep(max(0, 0.2 - (time.monotonic() - began)))
            os.rmdir(cgroup)
            for folder, _, _ in os.walk(self.tree.logs / "pods" / f"ci_probe-x7k2p_{uid}", topdown=False):
                os.rmdir(folder)
            self.assertEqual(self.who(port, "client"), ("ci", "probe", "probe-x7k2p", "probe"))
            time.sleep(2)  # long after it has gone its sums are still its own
            self.assertRegex(self.agent.get(), r'inferwire_tcp_connects_total\{namespace="ci",workload="probe",container="probe",'
                                               r'pod="probe-x7k2p".*result="ok"\} 1')

    def test_pods_of_the_same_name_in_succession(self):
        client = self.tree.make("system.slice/caller.service")
        for number in range(2):
            uid, identity = str(uuid.uuid4()), hex_id(f"succession-{number}")
            self.tree.pod_logs("prod", "vllm-0", uid, {"server": identity})
            cgroup = self.tree.make(f"kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/crio-{identity}.scope")
            with serving(cgroup) as port:
                ask(client, port)
                self.assertEqual(self.who(port, "server"), ("prod", "vllm", "vllm-0", "server"))
            os.rmdir(cgroup)

    def test_without_the_kubelets_folders_the_reason_is_told(self):
        uid, identity = str(uuid.uuid4()), hex_id("nameless")
        for folder in (self.tree.logs / "pods", self.tree.logs / "containers"):
            folder.rmdir()
        with serving(self.tree.make(f"kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/crio-{identity}.scope")) as port:
            ask(self.tree.make("system.slice/caller.service"), port)
            self.assertEqual(self.who(port, "server"), ("", uid, uid, identity[:12]))
        time.sleep(1.2)
        self.assertRegex(self.agent.get(), r'inferwire_signal_up\{signal="pod_names",reason="[^"]*pods: No such file or directory"\} 0')


if __name__ == "__main__":
    main()
