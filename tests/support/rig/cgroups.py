# SPDX-License-Identifier: Apache-2.0
"""Cgroups as container runtimes and systemd make them, on the host's real cgroup file system, with real processes in them,
and the kubelet's log folders beside."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

# A server, by itself or in two processes: the second one in the cgroup that is named.
#   alone                  listens, accepts and answers
#   prefork CGROUP         the first process listens, the second accepts and answers
#   passed CGROUP          the first process accepts, the second gets the descriptor and answers
# Says its port and the pid of who answers. WORD is what it answers.
SERVER = """
import os, socket, sys
word, port, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
listener = socket.create_server(("127.0.0.1", port), reuse_port=True)
ours, theirs = socket.socketpair()
if mode != "alone":
    first = os.fork()
    if first == 0:
        with open(sys.argv[4] + "/cgroup.procs", "w") as members:
            members.write(str(os.getpid()))
if mode == "alone" or first == 0:
    print(listener.getsockname()[1], os.getpid(), flush=True)
event = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\\n\\n' % word.encode()

def accept():
    if mode == "passed":
        _, descriptors, _, _ = socket.recv_fds(theirs, 1, 1)
        return socket.socket(fileno=descriptors[0])
    return listener.accept()[0]

while mode != "alone" and first != 0:
    if mode == "prefork":
        os.waitpid(first, 0)
        break
    connection, _ = listener.accept()
    socket.send_fds(ours, [b"x"], [connection.fileno()])
    connection.close()
while mode == "alone" or first == 0:
    connection = accept()
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


def within(cgroups, argv, **options):
    """A process that is in the cgroups (one of each hierarchy) before it makes its first socket."""
    enter = "".join(f'echo $$ > "{cgroup}/cgroup.procs" && ' for cgroup in cgroups)
    return subprocess.Popen(["/bin/sh", "-c", enter + 'exec "$@"', "sh", *argv], **options)


class Tree:
    """Cgroups below one of our own, and the kubelet's folders; both go away at the end."""

    def __init__(self):
        self._name = f"inferwire-test-{os.getpid()}"
        self.root = host_cgroup_root() / self._name
        self.root.mkdir()
        self._roots = [self.root]
        self._logs = tempfile.TemporaryDirectory(prefix="inferwire-logs-")
        self.logs = pathlib.Path(self._logs.name)
        (self.logs / "pods").mkdir()
        (self.logs / "containers").mkdir()

    def make(self, path):
        folder = self.root / path
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def make_v1(self, path):
        """In each of the v1 hierarchies that container runtimes use and this host has."""
        roots = [root / self._name for root in (pathlib.Path("/sys/fs/cgroup") / name for name in ("systemd", "memory"))
                 if (root / "cgroup.procs").exists()]
        if not roots:
            raise unittest.SkipTest("no cgroup v1 hierarchies here")
        self._roots += roots
        for root in roots:
            (root / path).mkdir(parents=True, exist_ok=True)
        return [root / path for root in roots]

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
                for root in self._roots:
                    for folder, _, _ in os.walk(root, topdown=False):
                        os.rmdir(folder)
                break
            time.sleep(0.1)
        self._logs.cleanup()


@contextlib.contextmanager
def serving(*cgroups, word="word", port=0, mode="alone", second=None, prefix=()):
    """(port, pid) of a server in the cgroups; the pid is as its own namespace has it."""
    argv = [*prefix, sys.executable, "-c", SERVER, word, str(port), mode]
    process = within(cgroups, [*argv, str(second)], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield tuple(int(number) for number in process.stdout.readline().split())
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def ask(cgroup, port):
    """What the server answered."""
    done = within([cgroup], ["curl", "-sS", "--max-time", "10", "-d", "{}", f"http://127.0.0.1:{port}/v1/chat/completions"],
                  stdout=subprocess.PIPE)
    text = done.communicate(timeout=20)[0]
    assert b"[DONE]" in text, text
    return re.search(rb'"content":"([^"]*)"', text).group(1).decode()
