#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A process that does with sockets what it is told: one JSON object a line on standard input, `{"act", "with"}`; one
answer a line on standard output, `{"result"}` or `{"error"}`. Sockets are numbers in both. All times CLOCK_MONOTONIC, ns.

    acts.py NAME        NAME becomes the process's name, by which the agent knows it
"""

import ctypes
import errno
import itertools
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import threading
import time

_PR_SET_NAME, _PR_SET_PDEATHSIG = 15, 1
_libc = ctypes.CDLL(None, use_errno=True)
_sockets = {}
_numbers = itertools.count(1)
_children = []
# include/uapi/linux/tcp.h, struct tcp_info, from its ninth byte on.
_INFO = ("rto ato snd_mss rcv_mss unacked sacked lost retrans fackets last_data_sent last_ack_sent last_data_recv "
         "last_ack_recv pmtu rcv_ssthresh rtt rttvar snd_ssthresh snd_cwnd advmss reordering rcv_rtt rcv_space "
         "total_retrans").split()
_INFO_64 = "pacing_rate max_pacing_rate bytes_acked bytes_received".split()
_INFO_REST = "segs_out segs_in notsent_bytes min_rtt data_segs_in data_segs_out".split()
_TCP_NAMES = {name: getattr(socket, name) for name in dir(socket) if name.startswith(("TCP_", "SO_"))}
_TCP_NAMES.setdefault("TCP_USER_TIMEOUT", 18)


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def set_name(name):
    _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def keep(one):
    number = next(_numbers)
    _sockets[number] = one
    return number


def _family(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _options(one, options):
    """{"TCP_NODELAY": 1, "SO_LINGER": [1, 0], "TCP_CONGESTION": "cubic"}"""
    for name, value in (options or {}).items():
        level = socket.IPPROTO_TCP if name.startswith("TCP_") else socket.SOL_SOCKET
        if isinstance(value, list):
            value = struct.pack("ii", *value)
        one.setsockopt(level, _TCP_NAMES[name], value.encode() if isinstance(value, str) else value)


def _why(error):
    return errno.errorcode.get(error.errno, str(error)) if isinstance(error, OSError) else str(error)


# ---- Acts ----

def listen(host="127.0.0.1", port=0, backlog=128, options=None):
    one = socket.socket(_family(host))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _options(one, options)
    one.bind((host, port))
    one.listen(backlog)
    return {"listener": keep(one), "port": one.getsockname()[1]}


def listen_again(listener, backlog):
    """listen() on a socket that listens already: changes its backlog."""
    _sockets[listener].listen(backlog)


def accept(listener, count=1, every_ms=0, timeout_s=10, greet=False):
    """Accepts so many; with `every_ms`, sleeps as long before each. `greet`: sends a byte at once."""
    accepted = []
    _sockets[listener].settimeout(timeout_s)
    for _ in range(count):
        if every_ms:
            time.sleep(every_ms / 1000)
        one, peer = _sockets[listener].accept()
        at_ns = now_ns()
        one.settimeout(20)
        if greet:
            one.sendall(b"!")
        accepted.append({"connection": keep(one), "peer_port": peer[1], "at_ns": at_ns})
    return accepted


def accept_waiting(listener):
    """Accepts what is in the queue now; how many."""
    _sockets[listener].setblocking(False)
    count = 0
    while True:
        try:
            keep(_sockets[listener].accept()[0])
            count += 1
        except BlockingIOError:
            return count


def connect(host, port, count=1, every_ms=0, timeout_s=10, options=None, wait_for_greeting=False, local=None):
    """Connects so many times, one after the other. Each {"connection", "port", "before_ns", "after_ns"} or {"error"}."""
    made = []
    for _ in range(count):
        one = socket.socket(_family(host))
        one.settimeout(timeout_s)
        _options(one, options)
        if local:
            one.bind((local, 0))
        before_ns = now_ns()
        try:
            one.connect((host, port))
            made.append({"connection": keep(one), "port": one.getsockname()[1], "before_ns": before_ns,
                         "after_ns": now_ns()})
            if wait_for_greeting:
                one.recv(1)
        except OSError as error:
            one.close()
            made.append({"error": "ETIMEDOUT" if isinstance(error, TimeoutError) else _why(error)})
        if every_ms:
            time.sleep(every_ms / 1000)
    return made


def start_connects(host, port, count=1, options=None, local=None):
    """Begins so many connects at once and waits for none."""
    begun = []
    for _ in range(count):
        one = socket.socket(_family(host))
        one.setblocking(False)
        _options(one, options)
        if local:
            one.bind((local, 0))
        try:
            one.connect((host, port))
        except BlockingIOError:
            pass
        except OSError as error:
            one.close()
            begun.append({"error": _why(error)})
            continue
        begun.append({"connection": keep(one)})
    return begun


def finish_connects(connections, timeout_s):
    """How each has ended by then: "ok", an error's name, or "pending"."""
    waiting = select.poll()
    of_fd = {}
    for number in connections:
        of_fd[_sockets[number].fileno()] = number
        waiting.register(_sockets[number], select.POLLOUT | select.POLLERR)
    ended = {}
    deadline = time.monotonic() + timeout_s
    while len(ended) < len(connections) and (left := deadline - time.monotonic()) > 0:
        for fd, _ in waiting.poll(left * 1000):
            error = _sockets[of_fd[fd]].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            ended[of_fd[fd]] = errno.errorcode[error] if error else "ok"
            _sockets[of_fd[fd]].settimeout(20)
            waiting.unregister(fd)
    return [ended.get(number, "pending") for number in connections]


def interrupted_connect(host, port, after_ms):
    """A blocking connect that a signal interrupts; closed then. Which error it had."""
    def handler(*_):
        raise InterruptedError("interrupted")
    previous = signal.signal(signal.SIGALRM, handler)
    one = socket.socket(_family(host))
    signal.setitimer(signal.ITIMER_REAL, after_ms / 1000)
    try:
        one.connect((host, port))
        return "ok"
    except InterruptedError:
        return "EINTR"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        one.close()


def send(connections, data="x", repeat=1):
    """The same bytes on each; a list of "ok" or an error's name."""
    payload = data.encode() * repeat
    outcomes = []
    for number in connections:
        try:
            _sockets[number].settimeout(20)
            _sockets[number].sendall(payload)
            outcomes.append("ok")
        except OSError as error:
            outcomes.append(_why(error))
    return outcomes


def receive(connections, size=1, timeout_s=10):
    """At least one byte, at most `size`, of each: how many, or an error's name."""
    outcomes = []
    for number in connections:
        try:
            _sockets[number].settimeout(timeout_s)
            outcomes.append(len(_sockets[number].recv(size)))
        except TimeoutError:
            outcomes.append("ETIMEDOUT")
        except OSError as error:
            outcomes.append(_why(error))
    return outcomes


def receive_exactly(connection, size, timeout_s=30):
    _sockets[connection].settimeout(timeout_s)
    left = size
    while left and (got := len(_sockets[connection].recv(min(left, 1 << 18)))):
        left -= got
    return size - left


def close_sockets(connections):
    for number in connections:
        _sockets.pop(number).close()


def shut_down(connections):
    for number in connections:
        _sockets[number].shutdown(socket.SHUT_WR)


def set_options(connections, options):
    for number in connections:
        _options(_sockets[number], options)


def ports(connections):
    return [_sockets[number].getsockname()[1] for number in connections]


def info(connections):
    """struct tcp_info of each, as an object."""
    result = []
    for number in connections:
        raw = _sockets[number].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        one = {"state": raw[0]}
        one.update(zip(_INFO, struct.unpack_from("24I", raw, 8)))
        one.update(zip(_INFO_64, struct.unpack_from("4Q", raw, 104)))
        one.update(zip(_INFO_REST, struct.unpack_from("6I", raw, 136)))
        one["bytes_sent"], one["bytes_retrans"] = struct.unpack_from("2Q", raw, 200)
        result.append(one)
    return result


def push(connections, size, piece=1 << 16):
    """Sends `size` bytes on each, all at once, and waits until all of it is acknowledged."""
    def one_of(number):
        one = _sockets[number]
        one.settimeout(300)
        left, block = size, b"\0" * piece
        while left:
            left -= one.send(block[:min(left, piece)])
    pushing = [threading.Thread(target=one_of, args=(number,)) for number in connections]
    for thread in pushing:
        thread.start()
    for thread in pushing:
        thread.join()
    return wait_acknowledged(connections)


def wait_acknowledged(connections, timeout_s=300):
    deadline = time.monotonic() + timeout_s
    while any(one["unacked"] or one["notsent_bytes"] for one in info(connections)):
        if time.monotonic() > deadline:
            raise TimeoutError("not acknowledged")
        time.sleep(0.005)


def pull(connections, size):
    """Receives `size` bytes on each, all at once."""
    taking = [threading.Thread(target=receive_exactly, args=(number, size, 300)) for number in connections]
    for thread in taking:
        thread.start()
    for thread in taking:
        thread.join()


def bursts(connection, count, size, pause_ms):
    """Sends `count` times `size` bytes in one write, each once the one before is acknowledged."""
    for _ in range(count):
        _sockets[connection].sendall(b"b" * size)
        wait_acknowledged([connection])
        time.sleep(pause_ms / 1000)


def ping(connection, size, count, every_ms):
    """Sends `size` bytes and waits for as many back, on the beat."""
    one = _sockets[connection]
    one.settimeout(30)
    due = time.monotonic()
    for _ in range(count):
        one.sendall(b"p" * size)
        receive_exactly(connection, size)
        due += every_ms / 1000
        time.sleep(max(0.0, due - time.monotonic()))


def echo(connection, size, count):
    for _ in range(count):
        receive_exactly(connection, size)
        _sockets[connection].sendall(b"e" * size)


def ping_until_told(connection, size, every_ms, path):
    """... until there is a file of this name."""
    while not os.path.exists(path):
        ping(connection, size, 5, every_ms)


def echo_until_closed(connection, size):
    while receive_exactly(connection, size) == size:
        _sockets[connection].sendall(b"e" * size)


def slow_reader(host, port, path, body, pause_s, buffer):
    """Asks, reads a little of the answer, nothing for a while, and then all of it."""
    one = socket.socket(_family(host))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    one.settimeout(60)
    one.connect((host, port))
    one.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body.encode())}\r\n\r\n{body}".encode())
    answer = one.recv(1000)
    time.sleep(pause_s)
    while not answer.endswith(b"\r\n0\r\n\r\n"):
        answer = answer[-16:] + one.recv(65536)
    one.close()


def _serve_each(listener, serve):
    """Every connection in a thread of its own, until the listener is closed."""
    while True:
        try:
            one, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=serve, args=(one,), daemon=True).start()


def _serve_in_background(listener, serve):
    _sockets[listener].settimeout(None)
    threading.Thread(target=_serve_each, args=(_sockets[listener], serve), daemon=True).start()


def answer_forever(listener):
    """Answers each byte with one, until the peer closes."""
    def serve(one):
        try:
            while data := one.recv(65536):
                one.sendall(data)
        except OSError:
            pass
        one.close()
    _serve_in_background(listener, serve)


def fork_workers(listener, names):
    """Prefork: children of these names that accept and answer. Their process ids."""
    _sockets[listener].settimeout(None)
    for name in names:
        child = os.fork()
        if child == 0:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            set_name(name)
            while True:
                one, _ = _sockets[listener].accept()
                while data := one.recv(65536):
                    one.sendall(data)
                one.close()
        _children.append(child)
    return _children


def pass_descriptor(connection, path):
    """Sends the socket to the process that waits at the Unix socket `path`, and closes it here."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(path)
        socket.send_fds(channel, [b"fd"], [_sockets[connection].fileno()])
        channel.recv(1)
    _sockets.pop(connection).close()


def await_descriptor(path):
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.bind(path + ".new")
        waiting.listen()
        os.rename(path + ".new", path)  # it is there once it can be connected to
        channel, _ = waiting.accept()
        with channel:
            _, fds, _, _ = socket.recv_fds(channel, 16, 1)
            channel.sendall(b".")
    one = socket.socket(fileno=fds[0])
    one.settimeout(20)
    return keep(one)


def spin(cpu, seconds):
    """A busy loop on one CPU."""
    os.sched_setaffinity(0, {cpu})
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pass


def pin(cpu):
    os.sched_setaffinity(0, {cpu})


# ---- Connections that are used again ----

def _answer_ended(answer, kind):
    """Whether this is a whole answer: of the opaque protocol eight bytes, of HTTP by its framing."""
    if kind == "opaque":
        return len(answer) >= 8
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"chunked" in head:
        return body.endswith(b"0\r\n\r\n")
    sizes = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(sizes) and len(body) >= int(sizes[0])


def _ask(one, request, kind):
    """"good", "fin", or an error's name."""
    answer = b""
    try:
        one.sendall(request)
        while not _answer_ended(answer, kind):
            more = one.recv(65536)
            if not more:
                return "fin"
            answer += more
    except OSError as error:
        return _why(error)
    return "good"


def ask_each(connections, request):
    """The same HTTP request on each, one after the other."""
    for number in connections:
        _sockets[number].settimeout(20)
        if (end := _ask(_sockets[number], request.encode(), "http")) != "good":
            raise RuntimeError(f"a request ended with {end}")


def reuse(host, port, kind, request, connections, lanes, low_ms, high_ms, seed):
    """On each connection a request, a pause between `low_ms` and `high_ms`, and another request; so many `lanes` at a time.
    Each [local port, how the second one ended]."""
    draw = random.Random(seed)
    plans = [draw.uniform(low_ms, high_ms) / 1000 for _ in range(connections)]
    ends = []

    def lane(number):
        time.sleep(number * 0.013)
        for pause_s in plans[number::lanes]:
            one = socket.create_connection((host, port), timeout=20)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if _ask(one, request.encode(), kind) != "good":
                raise RuntimeError("the first request failed")
            time.sleep(pause_s)
            ends.append([one.getsockname()[1], _ask(one, request.encode(), kind)])
            one.close()
    running = [threading.Thread(target=lane, args=(number,)) for number in range(lanes)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return ends


def serve_until_idle(listener, idle_s):
    """The opaque protocol: eight bytes for eight bytes, and the connection is closed when it was idle so long."""
    def serve(one):
        one.settimeout(idle_s)
        try:
            while len(one.recv(8)) == 8:
                one.sendall(b"\x01answer\x02")
        except OSError:
            pass
        one.close()
    _serve_in_background(listener, serve)


def serve_then_close(listener):
    """HTTP: answers the first request of a connection, reads the second, and closes without a word."""
    def serve(one):
        one.settimeout(20)
        for number in range(2):
            request = b""
            while not _answer_ended(request, "http"):
                request += one.recv(65536)
            if not number:
                one.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        one.close()
    _serve_in_background(listener, serve)


# ---- Packets that no socket would send ----

def _sum16(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _segment(source, destination, source_port, destination_port, sequence, acknowledgment, flags, payload=b""):
    """An IP packet with one TCP segment. MSS option on a SYN."""
    options = struct.pack("!BBH", 2, 4, 1460) if flags & 2 else b""
    header = struct.pack("!HHIIBBHHH", source_port, destination_port, sequence, acknowledgment,
                         (20 + len(options)) // 4 << 4, flags, 64240, 0, 0) + options
    if ":" in source:
        ends = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, destination)
        pseudo = ends + struct.pack("!II", len(header) + len(payload), 6)
        ip = struct.pack("!IHBB", 6 << 28, len(header) + len(payload), 6, 64) + ends
    else:
        ends = socket.inet_aton(source) + socket.inet_aton(destination)
        pseudo = ends + struct.pack("!BBH", 0, 6, len(header) + len(payload))
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(header) + len(payload), 0, 0, 64, 6, 0) + ends
    check = _sum16(pseudo + header + payload)
    return ip + header[:16] + struct.pack("!H", check) + header[18:] + payload


def _raw(host):
    if ":" in host:
        return socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)


def flood(host, port, count, sources, seed, pause_every=0, pause_ms=0):
    """SYNs from addresses under `sources` ("198.18." or "fd99::"), each from another port and address."""
    draw = random.Random(seed)
    raw = _raw(host)
    for number in range(count):
        if ":" in sources:
            source = f"{sources}{draw.randrange(1, 1 << 16):x}:{draw.randrange(1, 1 << 16):x}"
        else:
            source = f"{sources}{draw.randrange(256)}.{draw.randrange(1, 255)}"
        raw.sendto(_segment(source, host, draw.randrange(1024, 65536), port, draw.randrange(1 << 32), 0, 2),
                   (host, 0))
        if pause_every and number % pause_every == pause_every - 1:
            time.sleep(pause_ms / 1000)
    raw.close()


def forge(source, host, source_port, port, sequence=1, acknowledgment=1, flags=0x10, payload=""):
    """One segment, as given."""
    raw = _raw(host)
    raw.sendto(_segment(source, host, source_port, port, sequence, acknowledgment, flags, payload.encode()), (host, 0))
    raw.close()


def main():
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    set_name(sys.argv[1])
    print(json.dumps({"result": "ready"}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": globals()[request["act"]](**request.get("with", {}))}
        except Exception as error:  # pylint: disable=broad-except  # whatever it is, the test is told
            answer = {"error": f"{request['act']}: {type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    for child in _children:
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
