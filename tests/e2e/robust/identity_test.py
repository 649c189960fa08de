# SPDX-License-Identifier: Apache-2.0
"""Whose connection it is: cgroups as container runtimes and systemd make them, on the host's real cgroup file system, with
real processes in them, and the kubelet's log folders beside."""

import collections
import contextlib
import os
import pathlib
import re
import shutil
import sys
import time
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from rig.agent import Agent  # noqa: E402
from rig.build import agent_binary  # noqa: E402
from rig.cgroups import Tree, ask, hex_id, host_cgroup_root, serving  # noqa: E402
from rig.process import RigError, wait_for  # noqa: E402
from rig.testing import main  # noqa: E402

INTERPRETER = pathlib.Path(sys.executable).name[:15]  # the process name of the servers


class IdentityTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0 or agent_binary() is None:
            raise unittest.SkipTest("needs root and the built agent")

    def setUp(self):
        self.tree = self.enterContext(Tree())
        self.caller = self.tree.make("system.slice/caller.service")
        self.start()

    def start(self, prefix=()):
        flags = ["--pod-logs", str(self.tree.logs), "--partial-interval", "500ms"]
        self.agent = self.enterContext(Agent(flags=flags, prefix=prefix))

    def series(self, family, **labels):
        """Labels and value of each series that has these labels."""
        found = []
        for text, value in re.findall(rf"^{family}{{([^}}]*)}} (\S+)", self.agent.get(), re.M):
            has = dict(re.findall(r'(\w+)="([^"]*)"', text))
            if all(has.get(name) == wanted for name, wanted in labels.items()):
                found.append((has, float(value)))
        return found

    def record(self, port, role):
        def find(records):
            side = "local" if role == "server" else "remote"
            return [one for one in records if one["role"] == role and one[side].endswith(f":{port}")]

        found = self.agent.wait_for(find, what="the record")
        self.assertTrue(found)
        return found[-1]

    def who(self, port, role):
        """(namespace, workload, pod, container) of the record."""
        record = self.record(port, role)
        return tuple(record.get(key, "") for key in ("namespace", "workload", "pod", "container"))

    def assert_comes_to(self, value_of, expected, message=None):
        """Metrics follow within an interval of reading and one of publishing."""
        with contextlib.suppress(RigError):
            wait_for(lambda: value_of() == expected, 10, "the metrics", every_s=0.2)
        self.assertEqual(value_of(), expected, message)

    def test_what_runtimes_and_systemd_make(self):
        uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, "pod"))
        dashless = uid.replace("-", "_")
        ids = {name: hex_id(name) for name in ("containerd", "cgroupfs", "crio", "docker", "plain", "static",
                                                 "sidecar", "podman", "node")}
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
            f"machine.slice/libpod-{ids['podman']}.scope/container": ("", ids["podman"][:12], "", ids["podman"][:12]),
            # A cluster whose node is a container.
            f"system.slice/docker-{ids['node']}.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod"
            f"{dashless}.slice/cri-containerd-{ids['sidecar']}.scope":
                ("prod", "vllm", "vllm-6d4cf56db6-x7k2p", "proxy"),
            "system.slice/ollama.service": ("", "ollama.service", "", ""),
            "user.slice/user-1000.slice/session-1.scope": ("", INTERPRETER, "", ""),
            "user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-code-4242.scope": ("", INTERPRETER, "", ""),
        }
        for path, expected in cases.items():
            with self.subTest(path):
                with serving(self.tree.make(path)) as (port, _):
                    ask(self.caller, port)
                    self.assertEqual(self.who(port, "server"), expected)
                    # Both talk over 127.0.0.1, in one network namespace.
                    self.assertEqual(self.who(port, "client"), ("", "caller.service", "", ""))
        # The metrics have the same labels, those of the kernel's sums too.
        for family in ("inferwire_requests_total", "inferwire_tcp_connections_opened_total"):
            for expected in set(cases.values()):
                labels = dict(zip(("namespace", "workload", "pod", "container"), expected))
                if INTERPRETER in expected:
                    continue  # other tests' processes have that name too
                times = list(cases.values()).count(expected)
                self.assert_comes_to(lambda: sum(value for _, value in self.series(family, role="server", **labels)), times,
                                     (family, expected))

    def test_pods_that_live_for_a_moment(self):
        generated = "bcdfghjklm"
        for digit in generated:
            uid, identity = str(uuid.uuid4()), hex_id(f"moment-{digit}")
            name = f"probe-x7k2{digit}"
            with serving(self.tree.make("system.slice/model.service")) as (port, _):
                began = time.monotonic()
                self.tree.pod_logs("ci", name, uid, {"probe": identity})
                cgroup = self.tree.make(f"kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{identity}.scope")
                ask(cgroup, port)
                time.sleep(max(0, 0.2 - (time.monotonic() - began)))  # its whole life
                os.rmdir(cgroup)
                for folder, _, _ in os.walk(self.tree.logs / "pods" / f"ci_{name}_{uid}", topdown=False):
                    os.rmdir(folder)
                (self.tree.logs / "containers" / f"{name}_ci_probe-{identity}.log").unlink()
                self.assertEqual(self.who(port, "client"), ("ci", "probe", name, "probe"))
        # Long after they have gone their sums are still their own.
        self.assert_comes_to(lambda: {labels["pod"]: value for labels, value in self.series(
            "inferwire_tcp_connects_total", namespace="ci", workload="probe", container="probe", result="ok")},
                             {f"probe-x7k2{digit}": 1 for digit in generated})

    def test_without_the_right_to_open_by_handle_the_tree_is_walked(self):
        if not shutil.which("setpriv"):
            self.skipTest("needs setpriv (util-linux)")
        self.start(prefix=["setpriv", "--bounding-set=-dac_read_search"])
        for number in range(3):
            identity = hex_id(f"walk-{number}")
            with serving(self.tree.make(f"system.slice/docker-{identity}.scope")) as (port, _):
                ask(self.caller, port)
                self.assertEqual(self.who(port, "server"), ("", identity[:12], "", identity[:12]))

    def test_containers_in_v1_hierarchies_only(self):
        uid, pod_id, docker_id = str(uuid.uuid4()), hex_id("v1-pod"), hex_id("v1-docker")
        self.tree.pod_logs("prod", "sglang-1", uid, {"engine": pod_id})
        for unified in (self.tree.make("system.slice/containerd.service"), host_cgroup_root()):
            with serving(unified, *self.tree.make_v1(f"kubepods/burstable/pod{uid}/{pod_id}")) as (port, _):
                ask(self.caller, port)
                self.assertEqual(self.who(port, "server"), ("prod", "sglang", "sglang-1", "engine"))
            with serving(unified, *self.tree.make_v1(f"docker/{docker_id}")) as (port, _):
                ask(self.caller, port)
                self.assertEqual(self.who(port, "server"), ("", docker_id[:12], "", docker_id[:12]))

    def test_who_answers_owns_the_connection_not_who_made_the_socket(self):
        master, worker = self.tree.make("system.slice/master.service"), self.tree.make("system.slice/worker.service")
        for mode in ("prefork", "passed"):
            with self.subTest(mode), serving(master, mode=mode, second=worker) as (port, pid):
                ask(self.caller, port)
                record = self.record(port, "server")
                self.assertEqual((record["workload"], record["pid"]), ("worker.service", pid))
                self.assert_comes_to(lambda: [(labels["workload"], value) for labels, value in
                                              self.series("inferwire_requests_total", role="server", port=str(port))],
                                     [("worker.service", 1)])

    def test_servers_that_share_a_port(self):
        answers = collections.Counter()
        with contextlib.ExitStack() as stack:
            port = 0
            for number in range(4):
                cgroup = self.tree.make(f"system.slice/replica-{number}.service")
                port, _ = stack.enter_context(serving(cgroup, word=f"replica-{number}.service", port=port))
            for _ in range(24):
                answers[ask(self.caller, port)] += 1
            self.assertGreater(len(answers), 1)
            self.assert_comes_to(lambda: {labels["workload"]: value for labels, value in
                                          self.series("inferwire_requests_total", role="server", port=str(port))}, dict(answers))

    def test_a_pid_namespace_of_its_own_and_containers_that_share_it(self):
        # The second process is a sidecar in the first one's PID namespace.
        uid, server, proxy = str(uuid.uuid4()), hex_id("pidns-server"), hex_id("pidns-proxy")
        self.tree.pod_logs("prod", "vllm-2", uid, {"server": server, "proxy": proxy})
        pod = f"kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice"
        first, second = (self.tree.make(f"{pod}/cri-containerd-{one}.scope") for one in (server, proxy))
        unshare = ["unshare", "--pid", "--fork", "--kill-child"]
        with serving(first, prefix=unshare) as (port, pid):
            self.assertEqual(pid, 1)
            ask(self.caller, port)
            self.assertEqual(self.who(port, "server"), ("prod", "vllm", "vllm-2", "server"))
            record = self.record(port, "server")
            self.assertEqual(record["comm"], INTERPRETER)
            inside = pathlib.Path(f"/proc/{record['pid']}/status").read_text(encoding="utf-8")
            self.assertEqual(re.search(r"NSpid:.*\t(\d+)\n", inside).group(1), "1")
            enter = ["nsenter", "--pid", "--target", str(record["pid"])]
            with serving(second, prefix=enter) as (other_port, pid):
                self.assertLess(pid, 1000)
                ask(first, other_port)
                self.assertEqual(self.who(other_port, "server"), ("prod", "vllm", "vllm-2", "proxy"))
                self.assertEqual(self.who(other_port, "client"), ("prod", "vllm", "vllm-2", "server"))

    def test_pods_of_the_same_name_in_succession(self):
        for number in range(2):
            uid, identity = str(uuid.uuid4()), hex_id(f"succession-{number}")
            self.tree.pod_logs("prod", "vllm-0", uid, {"server": identity})
            cgroup = self.tree.make(f"kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/crio-{identity}.scope")
            with serving(cgroup) as (port, _):
                ask(self.caller, port)
                self.assertEqual(self.who(port, "server"), ("prod", "vllm", "vllm-0", "server"))
            os.rmdir(cgroup)

    def test_without_the_kubelets_folders_the_reason_is_told(self):
        uid, identity = str(uuid.uuid4()), hex_id("nameless")
        for folder in (self.tree.logs / "pods", self.tree.logs / "containers"):
            folder.rmdir()
        with serving(self.tree.make(f"kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/crio-{identity}.scope")) as (port, _):
            ask(self.caller, port)
            self.assertEqual(self.who(port, "server"), ("", uid, uid, identity[:12]))
        said = r'inferwire_signal_up\{signal="pod_names",reason="[^"]*pods: No such file or directory"\} 0'
        self.assert_comes_to(lambda: bool(re.search(said, self.agent.get())), True)


if __name__ == "__main__":
    main()
