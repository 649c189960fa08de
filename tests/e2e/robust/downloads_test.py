# SPDX-License-Identifier: Apache-2.0
"""The agent changes no byte: downloads through nginx have the hash of the file, and proxied streams are what was written."""

import concurrent.futures
import hashlib
import http.client
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from rig import clients  # noqa: E402
from rig.observe import FULL, start_agent  # noqa: E402
from rig.scenario import scenario  # noqa: E402
from rig.servers import Nginx, Server  # noqa: E402
from rig.testing import main  # noqa: E402

FILE_BYTES = 3_000_000
DOWNLOADS = 1000 if FULL else 60


def setUpModule():
    global agent
    agent = start_agent()


def download_many(port, path, count):
    """Hashes of `count` downloads over one kept-alive connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    hashes = []
    for _ in range(count):
        connection.request("GET", path)
        body = connection.getresponse().read()
        hashes.append(hashlib.sha256(body).hexdigest())
    connection.close()
    return hashes


class DownloadsTest(unittest.TestCase):
    def test_downloads_are_byte_identical(self):
        content = os.urandom(FILE_BYTES)
        # Under an LLM route too: there the agent reads along instead of looking away.
        with Nginx("location / { root html; } location /proxied/ { "
                   "rewrite ^/proxied(/.*)$ $1 break; proxy_pass http://127.0.0.1:$server_port; }") as nginx:
            (nginx.root / "html" / "v1").mkdir(parents=True)
            (nginx.root / "html").chmod(0o755)
            (nginx.root / "html" / "file").write_bytes(content)
            (nginx.root / "html" / "v1" / "completions").write_bytes(content)
            paths = ("/file", "/v1/completions", "/proxied/file", "/proxied/v1/completions")
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                futures = [pool.submit(download_many, nginx.port, path, DOWNLOADS // len(paths)) for path in paths]
                hashes = [one for future in futures for one in future.result()]
        self.assertEqual(len(hashes), DOWNLOADS)
        self.assertEqual(set(hashes), {hashlib.sha256(content).hexdigest()})

    def test_streams_through_a_proxy_arrive_as_they_were_written(self):
        with Server("cpp") as server, Nginx(f"location / {{ proxy_pass http://127.0.0.1:{server.port}; "
                                            "proxy_http_version 1.1; proxy_buffering off; }") as nginx:
            scenarios = {f"s{i}": scenario(chunks=20, cadence_ms=5, ttft_ms=20, seed=i) for i in range(8)}
            lines = clients.run_plan([clients.connection("127.0.0.1", nginx.port, [clients.request(name, one)])
                                      for name, one in scenarios.items()])
            written = {line["tag"]: line for line in server.log(requests=len(scenarios))}
            self.assertEqual({line["outcome"] for line in lines.values()}, {"complete"})
            self.assertEqual({name: line["body_bytes"] for name, line in lines.items()},
                             {name: line["body_bytes"] for name, line in written.items()})
            self.assertEqual(len({line["body_hash"] for line in lines.values()}), 1)


if __name__ == "__main__":
    main()
