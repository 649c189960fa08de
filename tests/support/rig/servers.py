# SPDX-License-Identifier: Apache-2.0
"""Starts scripted servers and nginx, and reads their logs."""

import pathlib
import tempfile

from .build import SUPPORT, binary
from .logs import read_lines
from .process import Process, in_netns, run, wait_for

PYTHON = "/usr/bin/python3"  # Debian's: the one that has the packages
KINDS = ("uvicorn", "node", "go", "cpp")


def _command(kind):
    if kind == "uvicorn":
        return [PYTHON, str(SUPPORT / "servers" / "uvicorn_server.py")]
    if kind == "node":
        return ["node", str(SUPPORT / "servers" / "node_server.js")]
    return [binary({"go": "inferwire-go-server", "cpp": "inferwire-scripted-server"}[kind])]


class Server:
    """One scripted server. `flags`: more words of its command line (the C++ one has some)."""

    def __init__(self, kind, *, netns=None, host="127.0.0.1", port=0, folder=None, flags=()):
        self.kind, self.host = kind, host
        self.log_path = pathlib.Path(tempfile.mkstemp(prefix=f"iwrig-{kind}-", suffix=".jsonl", dir=folder)[1])
        self._keep_log = folder is not None
        self.process = Process(in_netns(netns, [*_command(kind), "--host", host, "--port", str(port),
                                                "--log", str(self.log_path), *map(str, flags)]), prompt=True)
        self.port = int(self.process.ready_line.split()[1])

    def log(self, requests=None, timeout_s=10):
        """The log's lines; with `requests`, once there are so many."""
        if requests is not None:
            wait_for(lambda: len(read_lines(self.log_path)) >= requests, timeout_s,
                     f"{requests} requests in the log of the {self.kind} server")
        return read_lines(self.log_path)

    def close(self):
        status = self.process.stop()
        if not self._keep_log:
            self.log_path.unlink(missing_ok=True)
        return status

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self.process.kill()
        self.close()


class Nginx:
    """nginx with one server block on a free port; `locations` is configuration text inside it."""

    def __init__(self, locations, *, netns=None, host="127.0.0.1", workers=1):
        self.folder = tempfile.TemporaryDirectory(prefix="iwrig-nginx-")
        root = pathlib.Path(self.folder.name)
        root.chmod(0o755)
        self.port = free_port(host, netns)
        (root / "nginx.conf").write_text(f"""
daemon off; master_process on; worker_processes {workers}; pid {root}/pid; error_log {root}/error.log warn;
events {{ worker_connections 8192; }}
http {{
  access_log off; default_type application/octet-stream; sendfile on; tcp_nodelay on; keepalive_requests 100000;
  client_body_temp_path {root}/body; proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u;
  scgi_temp_path {root}/s;
  server {{ listen {host}:{self.port}; {locations} }}
}}
""", encoding="utf-8")
        self.process = Process(in_netns(netns, ["nginx", "-p", str(root), "-c", str(root / "nginx.conf")]), ready=None)
        wait_for(lambda: (root / "pid").exists() and (root / "pid").read_text().strip(), 10, "nginx to start")
        self.root = root

    def close(self):
        self.process.stop()
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def free_port(host="127.0.0.1", netns=None):
    """A port that was free a moment ago, for programs that cannot bind port 0 and say which they got."""
    code = ("import socket,sys; s=socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET);"
            "s.bind((sys.argv[1],0)); print(s.getsockname()[1])")
    return int(run([PYTHON, "-c", code, host], netns=netns).stdout)
