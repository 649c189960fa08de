# SPDX-License-Identifier: Apache-2.0
"""tcpdump captures as lists of TCP segments, and when the bytes of a stream were acknowledged in them."""

import dataclasses
import pathlib
import socket
import struct
import tempfile
import time

from .process import Process, in_netns

_ETHERNET, _RAW, _SLL, _SLL2 = 1, 101, 113, 276
_LINK_BYTES = {_ETHERNET: 14, _RAW: 0, _SLL: 16, _SLL2: 20}
SYN, FIN, RST, ACK = 2, 1, 4, 16


@dataclasses.dataclass(frozen=True)
class Segment:
    unix_ns: int
    source: str
    source_port: int
    destination: str
    destination_port: int
    sequence: int
    acknowledgment: int
    flags: int
    payload_bytes: int
    window: int = 0  # as in the header, not scaled


def _parse_ip(packet):
    """(source, destination, bytes of TCP header and payload by the IP header, offset of TCP) or None."""
    if not packet:
        return None
    if packet[0] >> 4 == 4 and len(packet) >= 20 and packet[9] == 6:
        header = (packet[0] & 15) * 4
        total = struct.unpack_from("!H", packet, 2)[0]
        return (socket.inet_ntop(socket.AF_INET, packet[12:16]), socket.inet_ntop(socket.AF_INET, packet[16:20]),
                total - header, header)
    if packet[0] >> 4 == 6 and len(packet) >= 40 and packet[6] == 6:
        return (socket.inet_ntop(socket.AF_INET6, packet[8:24]), socket.inet_ntop(socket.AF_INET6, packet[24:40]),
                struct.unpack_from("!H", packet, 4)[0], 40)
    return None


def _parse_segment(unix_ns, packet):
    ip = _parse_ip(packet)
    if ip is None or len(packet) < ip[3] + 20:
        return None
    source, destination, tcp_bytes, at = ip
    source_port, destination_port, sequence, acknowledgment, offset, flags, window = struct.unpack_from("!HHIIBBH", packet, at)
    return Segment(unix_ns, source, source_port, destination, destination_port, sequence, acknowledgment, flags,
                   max(0, tcp_bytes - (offset >> 4) * 4), window)


def read_pcap(path):
    """Every TCP segment of a capture, in its order. Microsecond and nanosecond files, this machine's byte order."""
    data = pathlib.Path(path).read_bytes()
    if len(data) < 24:
        return []
    magic, *_, link = struct.unpack_from("=IHHiIII", data)
    scale = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}.get(magic)
    if scale is None or link not in _LINK_BYTES:
        raise ValueError(f"{path}: not a capture that can be read here (magic {magic:x}, link {link})")
    segments, at = [], 24
    while at + 16 <= len(data):
        seconds, fraction, captured, _ = struct.unpack_from("=IIII", data, at)
        at += 16
        packet = data[at + _LINK_BYTES[link]:at + captured]
        at += captured
        segment = _parse_segment(seconds * 1_000_000_000 + fraction * scale, packet)
        if segment is not None:
            segments.append(segment)
    return segments


class Capture:
    """tcpdump on an interface, from ready to stop(); segments() afterwards."""

    def __init__(self, interface="lo", *, netns=None, expression="tcp", path=None, snap_bytes=128):
        self._temporary = None if path else tempfile.TemporaryDirectory(prefix="iwrig-capture-")
        self.path = pathlib.Path(path) if path else pathlib.Path(self._temporary.name) / "capture.pcap"
        self.process = Process(in_netns(netns, [
            "tcpdump", "-i", interface, "-s", str(snap_bytes), "-B", "65536", "--time-stamp-precision=nano", "-n",
            "--immediate-mode", "-U", "-Z", "root", "-w", str(self.path), *expression.split()]),
            ready="tcpdump: listening", stream="stderr")
        self.lost = None

    def stop(self):
        time.sleep(0.2)  # the last packets have left the kernel's buffer
        self.process.stop()
        for line in self.process.lines:
            if "dropped by kernel" in line:
                self.lost = int(line.split()[0])

    def segments(self):
        return read_pcap(self.path)

    def close(self):
        self.process.kill()
        if self._temporary:
            self._temporary.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Acknowledgments:
    """When the client's ACKs covered each byte that the server sent, for every connection of a capture."""

    def __init__(self, segments, server_port):
        self._connections = {}  # client port -> list of [server's first sequence number, [(unix_ns, acked bytes)]]
        for segment in segments:
            if segment.source_port == server_port and segment.flags & SYN:
                opened = self._connections.setdefault(segment.destination_port, [])
                if not opened or opened[-1][0] != segment.sequence:
                    opened.append([segment.sequence, []])
            elif segment.destination_port == server_port and segment.flags & ACK and not segment.flags & SYN:
                opened = self._connections.get(segment.source_port)
                if opened:
                    acked = (segment.acknowledgment - opened[-1][0] - 1) & 0xFFFFFFFF
                    times = opened[-1][1]
                    if acked < 1 << 31 and (not times or acked > times[-1][1]):
                        times.append((segment.unix_ns, acked))

    def of(self, client_port, near_unix_ns, ends):
        """Unix times at which the ACKs covered the first `end` bytes, for each of `ends`; None where they never did."""
        best = None
        for _, times in self._connections.get(client_port, []):
            if times and (best is None or times[0][0] <= near_unix_ns):
                best = times
        result = []
        for end in ends:
            result.append(next((at for at, acked in best or [] if acked >= end), None))
        return result
