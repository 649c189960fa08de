# SPDX-License-Identifier: Apache-2.0
"""The wire does to packets what it was told to, and nothing else."""

import contextlib
import ctypes
import os
import pathlib
import socket
import statistics
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from rig import wire as wire_rig  # noqa: E402
from rig.process import wait_for  # noqa: E402
from rig.testing import main, require_root  # noqa: E402
from rig.wire import Wire  # noqa: E402

CLONE_NEWNET = 0x40000000


@contextlib.contextmanager
def inside(netns):
    """This thread in another network namespace: sockets made here belong to it for good."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{netns.name}", os.O_RDONLY)
    try:
        _setns(there)
        yield
    finally:
        _setns(home)
        os.close(home)
        os.close(there)


def _setns(fd):
    if ctypes.CDLL(None, use_errno=True).setns(fd, CLONE_NEWNET) != 0:
        raise OSError("setns failed")


def listener(wire, family=socket.AF_INET):
    with inside(wire.b):
        server = socket.socket(family)
        server.bind((wire_rig.B_ADDRESS if family == socket.AF_INET else wire_rig.B_ADDRESS6, 0))
        server.listen()
        server.settimeout(10)
        return server


def connect(wire, server):
    with inside(wire.a):
        client = socket.socket(server.family)
        client.settimeout(10)
        client.connect(server.getsockname()[:2])
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client


def receive_exactly(sock, count):
    parts = bytearray()
    while len(parts) < count:
        part = sock.recv(count - len(parts))
        if not part:
            raise AssertionError(f"closed after {len(parts)} of {count} bytes")
        parts += part
    return bytes(parts)


def transfer(wire, server, payload, reverse=False):
    """Sends `payload` a to b (or b to a) and returns what arrived."""
    client = connect(wire, server)
    accepted, _ = server.accept()
    accepted.settimeout(30)
    client.settimeout(30)
    source, sink = (accepted, client) if reverse else (client, accepted)
    sender = threading.Thread(target=source.sendall, args=(payload,))
    sender.start()
    received = receive_exactly(sink, len(payload))
    sender.join()
    client.close()
    accepted.close()
    return received


def actions(wire, action):
    return [line for line in wire.log() if line["action"] == action]


class WireTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        require_root()

    def test_a_clean_wire_changes_nothing_in_both_families(self):
        payload = os.urandom(300_000)
        with Wire() as wire:
            for family in (socket.AF_INET, socket.AF_INET6):
                with listener(wire, family) as server:
                    self.assertEqual(transfer(wire, server, payload), payload)
                    self.assertEqual(transfer(wire, server, payload, reverse=True), payload)
            self.assertEqual([line for line in wire.log() if line["action"] != "end"], [])

    def test_delay_adds_to_the_round_trip_with_little_jitter(self):
        with Wire(delay_ms=10) as wire, listener(wire) as server:
            client = connect(wire, server)
            accepted, _ = server.accept()
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def echo():
                while byte := accepted.recv(1):
                    accepted.sendall(byte)

            echoer = threading.Thread(target=echo)
            echoer.start()
            round_trips_ms = []
            for _ in range(60):
                before = time.monotonic_ns()
                client.sendall(b"x")
                receive_exactly(client, 1)
                round_trips_ms.append((time.monotonic_ns() - before) / 1e6)
            client.close()
            echoer.join()
            accepted.close()
            self.assertGreaterEqual(min(round_trips_ms), 20.0)
            # The test's own threads are in this figure too, so only the middle of it is a promise.
            self.assertLess(statistics.median(round_trips_ms), 21.0)

    def test_the_nth_data_segment_of_one_direction_is_lost_and_tcp_repairs_it(self):
        payload = os.urandom(100_000)
        with Wire(drop_nth=["a2b:3", "a2b:10"]) as wire, listener(wire) as server:
            self.assertEqual(transfer(wire, server, payload), payload)
            self.assertEqual([(line["dir"], line["n"]) for line in actions(wire, "drop")], [("a2b", 3), ("a2b", 10)])

    def test_the_third_ack_is_lost_and_the_connection_still_works(self):
        with Wire(drop_third_ack=True) as wire, listener(wire) as server:
            self.assertEqual(transfer(wire, server, b"first bytes ride on the ACK"), b"first bytes ride on the ACK")
            drops = actions(wire, "drop")
            self.assertEqual([line["reason"] for line in drops], ["third_ack"])
            self.assertEqual(drops[0]["payload_bytes"], 0)

    def test_loss_duplication_reordering_and_corruption_happen_and_the_bytes_survive(self):
        payload = os.urandom(1_000_000)
        cases = {"loss": "drop", "duplicate": "duplicate", "reorder": "reorder", "corrupt": "corrupt"}
        for option, action in cases.items():
            with self.subTest(option), Wire(**{option: "a2b:0.05", "delay_ms": 1}) as wire, listener(wire) as server:
                self.assertEqual(transfer(wire, server, payload), payload)
                touched = [line for line in actions(wire, action) if line.get("payload_bytes")]
                # 1 MB is about 690 segments: 5 % is some 35.
                self.assertGreater(len(touched), 10)
                self.assertTrue(all(line["dir"] == "a2b" for line in touched))

    def test_corrupted_segments_are_refused_by_the_receivers_checksum(self):
        with Wire(corrupt="a2b:0.2", delay_ms=1) as wire, listener(wire) as server:
            payload = os.urandom(100_000)
            self.assertEqual(transfer(wire, server, payload), payload)
            errors = int(wire.b.run(["nstat", "-asz", "TcpInCsumErrors"]).stdout.split("TcpInCsumErrors")[1].split()[0])
            self.assertEqual(errors, len(actions(wire, "corrupt")))

    def test_reordered_packets_are_really_overtaken(self):
        with Wire(reorder="a2b:0.25") as wire, listener(wire) as server:
            payload = os.urandom(300_000)
            self.assertEqual(transfer(wire, server, payload), payload)
            queued = int(wire.b.run(["nstat", "-asz", "TcpExtTCPOFOQueue"]).stdout.split("TcpExtTCPOFOQueue")[1].split()[0])
            self.assertGreater(queued, 10)

    def test_the_same_seed_treats_the_same_packets_alike(self):
        def fate_of_the_first_packets():
            with Wire(loss="a2b:0.3", duplicate="a2b:0.3", seed=7) as wire:
                # UDP to a closed port: one packet each, none of them TCP's to repeat.
                with inside(wire.a), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                    for _ in range(50):
                        with contextlib.suppress(ConnectionRefusedError):
                            sender.sendto(b"x", (wire_rig.B_ADDRESS, 9))
                wait_for(lambda: len(wire.log()) >= 20, 5, "20 packets to be touched")
                return [line["action"] for line in wire.log()][:20]
        first = fate_of_the_first_packets()
        self.assertIn("drop", first)
        self.assertIn("duplicate", first)
        self.assertEqual(first, fate_of_the_first_packets())

    def test_a_black_hole_holds_everything_until_it_is_lifted(self):
        with Wire(control=True) as wire, listener(wire) as server:
            client = connect(wire, server)
            accepted, _ = server.accept()
            wire.black_hole(True)
            time.sleep(0.05)
            client.sendall(b"x")
            accepted.settimeout(0.3)
            with self.assertRaises(TimeoutError):
                accepted.recv(1)
            wire.black_hole(False)
            accepted.settimeout(10)
            self.assertEqual(accepted.recv(1), b"x")
            client.close()
            accepted.close()

    def test_the_delay_changes_while_it_runs(self):
        with Wire(control=True, delay_ms=2) as wire, listener(wire) as server:
            client = connect(wire, server)
            accepted, _ = server.accept()
            accepted.settimeout(10)

            def there_s():
                began = time.monotonic()
                client.sendall(b"x")
                accepted.recv(1)
                return time.monotonic() - began
            self.assertLess(there_s(), 0.05)
            wire.set_delay_ms(100)
            time.sleep(0.1)
            self.assertGreaterEqual(there_s(), 0.1)
            client.close()
            accepted.close()

    def test_sigterm_ends_it_with_zero_and_no_namespace_is_left(self):
        wire = Wire()
        names = (wire.a.name, wire.b.name)
        self.assertEqual(wire.close(), 0)
        self.assertFalse(any(os.path.exists(f"/run/netns/{name}") for name in names))


if __name__ == "__main__":
    main()
