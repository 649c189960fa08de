# SPDX-License-Identifier: Apache-2.0
"""The watch of the node's pods, against an HTTPS server that lists and watches as the API server does."""

import contextlib
import http.server
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from rig.agent import Agent  # noqa: E402
from rig.build import agent_binary  # noqa: E402
from rig.cgroups import Tree, ask, hex_id, serving  # noqa: E402
from rig.process import wait_for  # noqa: E402
from rig.testing import main  # noqa: E402

NODE = "gpu-node-1"


class Api:
    """Pods by version, to list and to watch; what goes wrong is set by the test."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.ca, key = self.folder / "ca.crt", self.folder / "server.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
                        "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", self.ca],
                       check=True, capture_output=True)
        self.token = self.folder / "token"
        self.set_token("first")
        self.lock = threading.Condition()
        self.version, self.oldest, self.pods, self.events = 100, 0, {}, []
        self.gone_by_status = False  # how a watch from an old version is refused: else by an event in it
        self.refusal = None  # (status, message)
        self.requests = []   # (path, query)
        self.watches = set()
        self.closed = False
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca, key)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"https://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with self.lock:
            self.closed = True
            self.lock.notify_all()
        self.server.shutdown()
        self.server.server_close()

    def set_token(self, token):
        self.accepted = token
        self.token.write_text(token + "\n", encoding="utf-8")

    def put(self, kind, pod):
        """ADDED, MODIFIED, DELETED."""
        with self.lock:
            self.version += 1
            pod = json.loads(json.dumps(pod))
            pod["metadata"]["resourceVersion"] = str(self.version)
            self.pods[pod["metadata"]["uid"]] = pod
            if kind == "DELETED":
                del self.pods[pod["metadata"]["uid"]]
            self.events.append((self.version, kind, pod))
            self.lock.notify_all()

    def bookmark(self):
        with self.lock:
            self.version += 10
            self.events.append((self.version, "BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(self.version)}}))
            self.lock.notify_all()

    def compact(self):
        """What has happened until now cannot be watched any more."""
        with self.lock:
            self.oldest = self.version + 1
            self.version += 1

    def cut(self):
        with self.lock:
            for connection in self.watches:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self.watches.clear()
            self.lock.notify_all()

    def asked(self, **wanted):
        """The queries that had these values."""
        with self.lock:
            return [query for _, query in self.requests if all(query.get(name) == value for name, value in wanted.items())]

    def _handler(api):  # noqa: N805
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, body):
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_GET(self):  # noqa: N802
                parts = urllib.parse.urlsplit(self.path)
                query = dict(urllib.parse.parse_qsl(parts.query))
                with api.lock:
                    api.requests.append((parts.path, query))
                    refusal = api.refusal
                if self.headers.get("Authorization") != "Bearer " + api.accepted:
                    return self.answer(401, {"kind": "Status", "message": "Unauthorized"})
                if refusal:
                    return self.answer(refusal[0], {"kind": "Status", "message": refusal[1]})
                if parts.path == "/pods":
                    with api.lock:
                        return self.answer(200, {"kind": "PodList", "metadata": {}, "items": list(api.pods.values())})
                if parts.path != "/api/v1/pods" or query.get("fieldSelector") != f"spec.nodeName={NODE}":
                    return self.answer(404, {"kind": "Status", "message": "not found"})
                if "watch" in query:
                    with api.lock:
                        gone = api.gone_by_status and int(query["resourceVersion"]) < api.oldest
                    if gone:
                        return self.answer(410, {"kind": "Status", "code": 410, "message": "too old resource version"})
                    return self.watch(int(query["resourceVersion"]))
                with api.lock:
                    return self.answer(200, {"kind": "PodList", "metadata": {"resourceVersion": str(api.version)},
                                             "items": list(api.pods.values())})

            def chunk(self, text):
                self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")

            def watch(self, version):
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                with api.lock:
                    api.watches.add(self.connection)
                    too_old = version < api.oldest
                if too_old:
                    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
                    self.chunk(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
                    self.chunk(b"")
                    return None
                with contextlib.suppress(OSError):
                    while True:
                        with api.lock:
                            new = [event for event in api.events if event[0] > version]
                            if not new and self.connection in api.watches and not api.closed:
                                api.lock.wait(5)
                                continue
                            if self.connection not in api.watches or api.closed:
                                break
                        text = b"".join(json.dumps({"type": kind, "object": pod}).encode() + b"\n" for _, kind, pod in new)
                        version = new[-1][0]
                        # Chunks end anywhere.
                        self.chunk(text[:100])
                        self.chunk(text[100:])
                self.close_connection = True
                return None

        return Handler


def pod(name, uid, owner=None, labels=None, containers=None, namespace="prod", annotations=None):
    owners = [{"apiVersion": "v1", "kind": owner[0], "name": owner[1], "uid": "1", "controller": True}] if owner else []
    statuses = [{"name": one, "containerID": f"containerd://{identity}"} for one, identity in (containers or {}).items()]
    return {"kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "labels": labels or {}, "ownerReferences": owners,
                         "annotations": annotations or {}, "managedFields": [{"manager": "kubelet"}]},
            "spec": {"nodeName": NODE, "containers": [{"name": "a", "env": [{"name": "A", "value": "kept by nobody " * 200}]}]},
            "status": {"containerStatuses": statuses}}


class PodWatchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0 or agent_binary() is None:
            raise unittest.SkipTest("needs root and the built agent")

    def setUp(self):
        self.tree = self.enterContext(Tree())
        self.caller = self.tree.make("system.slice/caller.service")
        self.api = self.enterContext(Api(self.enterContext(tempfile.TemporaryDirectory(prefix="inferwire-api-"))))

    def start(self, mode, ca=None):
        self.agent = self.enterContext(Agent(flags=[
            "--pod-logs", str(self.tree.logs), "--partial-interval", "500ms", "--node", NODE, "--kubernetes.pod-watch", mode,
            "--kubernetes.url", self.api.url, "--kubernetes.token-file", str(self.api.token),
            "--kubernetes.ca-file", str(ca or self.api.ca)]))

    def signal(self, name):
        """(up, reason)."""
        found = re.search(rf'^inferwire_signal_up{{signal="{name}",reason="([^"]*)"}} (\d)$', self.agent.get(), re.M)
        return (found.group(2) == "1", found.group(1)) if found else None

    def wait_for_signal(self, up):
        """Its reason."""
        def is_so():
            found = self.signal("pod_watch")
            return found if found and found[0] is up and found[1] != "no answer yet" else None

        return wait_for(is_so, 20, f"pod_watch to be {'up' if up else 'down'}", every_s=0.2)[1]

    def who(self, uid, identity):
        """(namespace, workload, pod, container) of a request that is answered in that pod and container."""
        pod_slice = f"kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice"
        with serving(self.tree.make(f"{pod_slice}/cri-containerd-{identity}.scope")) as (port, _):
            ask(self.caller, port)
            found = self.agent.wait_for(lambda records: [one for one in records if one["role"] == "server" and
                                                         one["local"].endswith(f":{port}")], what="the record")
        self.assertTrue(found)
        return tuple(found[-1].get(key, "") for key in ("namespace", "workload", "pod", "container"))

    def named(self, uid, identity, expected):
        """The watch tells within a moment: asks until it has."""
        try:
            wait_for(lambda: self.who(uid, identity) == expected, 15, "the pod to be named", every_s=0.2)
        except Exception:
            self.assertEqual(self.who(uid, identity), expected)

    def test_owners_come_from_the_list_and_the_watch(self):
        bare, deployed, late = (str(uuid.uuid4()) for _ in range(3))
        first, second, third = (hex_id(f"watch-{number}") for number in range(3))
        # By its name it would be of a StatefulSet `gpu`.
        self.api.put("ADDED", pod("gpu-8", bare, containers={"server": first}))
        for folder in ("pods", "containers"):
            (self.tree.logs / folder).rmdir()
        self.start("pods")
        self.wait_for_signal(True)
        self.assertEqual(self.who(bare, first), ("prod", "gpu-8", "gpu-8", "server"))
        self.assertEqual(self.api.asked()[0].get("resourceVersion"), "0")

        self.api.put("ADDED", pod("vllm-0-6d4cf56db6-x7k2p", deployed, ("ReplicaSet", "vllm-0-6d4cf56db6"),
                                  {"pod-template-hash": "6d4cf56db6", "app.kubernetes.io/name": "another"}))
        self.named(deployed, second, ("prod", "vllm-0", "vllm-0-6d4cf56db6-x7k2p", second[:12]))
        self.api.put("MODIFIED", pod("vllm-0-6d4cf56db6-x7k2p", deployed, ("ReplicaSet", "vllm-0-6d4cf56db6"),
                                     {"pod-template-hash": "6d4cf56db6"}, {"engine": second}))
        self.named(deployed, second, ("prod", "vllm-0", "vllm-0-6d4cf56db6-x7k2p", "engine"))

        # Gone is not forgotten.
        self.api.put("DELETED", pod("gpu-8", bare, containers={"server": first}))
        # A connection that is cut goes on from the last bookmark.
        self.api.bookmark()
        version = str(self.api.version)
        self.api.put("ADDED", pod("embed-28904520-x7k2p", late, ("Job", "embed-28904520"), containers={"embed": third}))
        self.named(late, third, ("prod", "embed", "embed-28904520-x7k2p", "embed"))
        self.api.cut()
        wait_for(lambda: self.api.asked(watch="1", resourceVersion=str(int(version) + 1)), 20, "another watch", every_s=0.1)
        self.assertEqual(len(self.api.asked(watch=None)), 1, "listed once")
        self.assertEqual(self.who(bare, first), ("prod", "gpu-8", "gpu-8", "server"))
        # The folders are not missed while the watch names pods.
        wait_for(lambda: self.signal("pod_names"), 10, "the next snapshot", every_s=0.2)
        self.assertEqual((self.signal("pod_watch"), self.signal("pod_names")), ((True, ""), (True, "")))

    def test_a_version_that_is_too_old_is_listed_again(self):
        self.check_too_old(by_status=False)

    def test_a_watch_that_is_refused_as_too_old_is_listed_again(self):
        self.check_too_old(by_status=True)

    def check_too_old(self, by_status):
        missed, identity = str(uuid.uuid4()), hex_id("missed")
        self.api.gone_by_status = by_status
        self.start("pods")
        self.wait_for_signal(True)
        with self.api.lock:
            self.api.refusal = (503, "not now")
        self.api.cut()
        self.wait_for_signal(False)
        self.api.put("ADDED", pod("sglang-0", missed, ("LeaderWorkerSet", "sglang"), containers={"engine": identity}))
        self.api.compact()
        with self.api.lock:
            self.api.refusal = None
        self.wait_for_signal(True)
        self.named(missed, identity, ("prod", "sglang", "sglang-0", "engine"))
        self.assertTrue([query for query in self.api.asked(watch=None) if "resourceVersion" not in query], "a fresh list")

    def test_without_the_right_names_come_from_the_folders(self):
        uid, identity = str(uuid.uuid4()), hex_id("forbidden")
        self.tree.pod_logs("prod", "vllm-0", uid, {"server": identity})
        self.api.put("ADDED", pod("vllm-0", uid, ("Worker", "vllm-workers")))
        self.api.refusal = (403, "pods is forbidden: User cannot list resource")
        self.start("pods")
        self.assertEqual(self.wait_for_signal(False), "HTTP 403: pods is forbidden: User cannot list resource")
        self.assertEqual(self.who(uid, identity), ("prod", "vllm", "vllm-0", "server"))
        self.assertIn('inferwire_mode{mode="degraded"} 1', self.agent.get())
        with self.api.lock:
            self.api.refusal = None
        self.wait_for_signal(True)
        # The watch says whose it is, the folder what the container is called.
        self.assertEqual(self.who(uid, identity), ("prod", "vllm-workers", "vllm-0", "server"))

    def test_a_token_that_is_renewed_is_read_again(self):
        self.start("pods")
        self.wait_for_signal(True)
        self.api.accepted = "second"
        self.api.cut()
        self.assertEqual(self.wait_for_signal(False), "HTTP 401: Unauthorized")
        self.api.set_token("second")
        self.wait_for_signal(True)

    def test_a_server_that_another_has_signed_is_not_told_the_token(self):
        other = self.enterContext(Api(self.enterContext(tempfile.TemporaryDirectory(prefix="inferwire-api-"))))
        self.start("pods", ca=other.ca)
        self.assertRegex(self.wait_for_signal(False), "certificate")
        self.assertEqual(self.api.requests, [])

    def test_the_kubelet_is_polled(self):
        uid, identity = uuid.uuid4().hex, hex_id("static")
        self.api.put("ADDED", pod(f"gateway-{NODE}", str(uuid.uuid4()), ("Node", NODE), containers={"gateway": identity},
                                  namespace="kube-system", annotations={"kubernetes.io/config.hash": uid}))
        self.start("kubelet")
        self.wait_for_signal(True)
        self.assertEqual(self.who(uid, identity), ("kube-system", "gateway", f"gateway-{NODE}", "gateway"))
        self.assertEqual({path for path, _ in self.api.requests}, {"/pods"})


if __name__ == "__main__":
    main()
