# SPDX-License-Identifier: Apache-2.0
"""First request bytes that reach the listener, before there is a connection, belong to the connection's first request."""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from rig import clients  # noqa: E402
from rig import wire as wire_rig  # noqa: E402
from rig.netns import Netns  # noqa: E402
from rig.observe import gather, play, start_agent  # noqa: E402
from rig.scenario import scenario  # noqa: E402
from rig.servers import Server  # noqa: E402
from rig.testing import main  # noqa: E402
from rig.wire import Wire  # noqa: E402

SCENARIOS = {f"s{i}": scenario(chunks=10, cadence_ms=5, ttft_ms=20, seed=i, jitter=0.3) for i in range(6)}
# From the client's clock to the server's socket; an emulated processor takes its time to copy the wire's packets.
TRANSIT_MS = 250 if os.environ.get("INFERWIRE_VM") else 10
HOSTS = (wire_rig.B_ADDRESS, wire_rig.B_ADDRESS6)


def setUpModule():
    global agent
    agent = start_agent()


class HandshakesTest(unittest.TestCase):
    def assert_right(self, seen):
        for name, one in seen.items():
            with self.subTest(name):
                self.assertEqual(one.client_line["outcome"], "complete")
                self.assertEqual(one.problems("server") + one.problems("client"), [])
                # The whole request was seen: its body, and its first byte at the moment it was sent.
                self.assertEqual(one.server["request_body_bytes"], len(one.scenario.body()))
                start = one.server["start_unix_ns"] - one.unix_offset_ns
                self.assertLess(abs(start - one.client_line["sent_first_ns"]) / 1e6, TRANSIT_MS)

    def test_a_deferred_accept(self):
        with Netns() as netns, Server("cpp", netns=netns, flags=["--defer-accept", 10]) as server:
            self.assert_right(play(agent, server, SCENARIOS, netns=netns, request_options={"wait_ms": 30}))

    def test_a_deferred_accept_and_a_request_in_two_parts(self):
        with Netns() as netns, Server("cpp", netns=netns, flags=["--defer-accept", 10]) as server:
            self.assert_right(play(agent, server, SCENARIOS, netns=netns, request_options={
                "wait_ms": 30, "piece_bytes": 700, "piece_gap_ms": 5}))

    def test_a_lost_third_ack(self):
        for host in HOSTS:
            with self.subTest(host), Wire(drop_third_ack=True) as wire, Server("cpp", netns=wire.b, host=host) as server:
                self.assert_right(play(agent, server, SCENARIOS, netns=wire.a))
                dropped = [line for line in wire.log() if line.get("reason") == "third_ack"]
                self.assertEqual(len(dropped), len(SCENARIOS))

    def test_syn_cookies(self):
        for host in HOSTS:
            with self.subTest(host), Wire() as wire:
                wire.b.sysctl("net.ipv4.tcp_syncookies", 2)
                with Server("cpp", netns=wire.b, host=host) as server:
                    self.assert_right(play(agent, server, SCENARIOS, netns=wire.a))

    def test_syn_cookies_whose_first_ack_carries_the_request(self):
        for host in HOSTS:
            with self.subTest(host), Wire(drop_third_ack=True) as wire:
                wire.b.sysctl("net.ipv4.tcp_syncookies", 2)
                with Server("cpp", netns=wire.b, host=host) as server:
                    self.assert_right(play(agent, server, SCENARIOS, netns=wire.a))
                    cookies = wire.b.run(["nstat", "-asz", "TcpExtSyncookiesRecv"]).stdout.split()[-2]
                    self.assertGreaterEqual(int(cookies), len(SCENARIOS))

    def test_a_request_that_comes_with_the_syn(self):
        for host in HOSTS:
            with self.subTest(host), Wire() as wire:
                for netns in (wire.a, wire.b):
                    # Fast open on both sides, without cookies, also for listeners that did not ask for it.
                    netns.sysctl("net.ipv4.tcp_fastopen", 0x1 | 0x2 | 0x4 | 0x200 | 0x400)
                with Server("cpp", netns=wire.b, host=host) as server:
                    self.assert_right(play(agent, server, SCENARIOS, netns=wire.a, fast_open=True))
                    passive = wire.b.run(["nstat", "-asz", "TcpExtTCPFastOpenPassive"]).stdout.split()[-2]
                    self.assertEqual(int(passive), len(SCENARIOS))

    def test_later_requests_of_such_a_connection_are_right_too(self):
        with Wire(drop_third_ack=True) as wire, Server("cpp", netns=wire.b, host=wire_rig.B_ADDRESS) as server:
            lines = clients.run_plan([clients.connection(server.host, server.port, [
                clients.request(name, one) for name, one in SCENARIOS.items()])], netns=wire.a)
            self.assert_right(gather(agent, SCENARIOS, server, lines))


if __name__ == "__main__":
    main()
