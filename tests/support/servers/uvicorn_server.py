# SPDX-License-Identifier: Apache-2.0
"""The scripted server on vLLM's HTTP stack: uvicorn, uvloop, httptools, Starlette's StreamingResponse.

Plays the scripts of tests/support/README.md, whose log it writes. Prints `ready PORT`; SIGTERM ends it with exit 0.
"""

import argparse
import asyncio
import itertools
import json
import os
import signal
import socket
import struct
import sys
import time

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Connections:
    """What uvicorn does not tell a handler: when its connection was accepted, and the request's number on it."""

    def __init__(self):
        self.by_client = {}

    def opened(self, transport):
        self.by_client[transport.get_extra_info("peername")[:2]] = {
            "accepted_ns": now_ns(), "ordinals": itertools.count(1), "transport": transport}


CONNECTIONS = Connections()


class Protocol(HttpToolsProtocol):
    def connection_made(self, transport):
        CONNECTIONS.opened(transport)
        super().connection_made(transport)


class Log:
    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if path else None

    def append(self, line):
        if self.fd is not None:
            os.write(self.fd, (json.dumps(line, separators=(",", ":")) + "\n").encode())


def parse_script(request, body):
    if "x-script" in request.headers:
        return json.loads(request.headers["x-script"])
    return json.loads(body)["script"]


class CutShort(Exception):
    """The script ends the response in its middle."""


class Player:
    """Plays one script as the body of one response."""

    def __init__(self, script, line, log, transport, start_ns):
        self.script, self.line, self.log, self.transport, self.start_ns = script, line, log, transport, start_ns
        self.numbers = itertools.count()
        self.loop = asyncio.get_running_loop()

    def texts(self, kinds):
        for kind in kinds:
            text = self.script["texts"][kind]
            if kind in self.script["chunk_kinds"]:
                text = text.replace("%i", str(next(self.numbers)))
            yield text.encode()

    def pieces(self, kinds):
        split = self.script["split"]
        if isinstance(split, int):
            data = b"".join(self.texts(kinds))
            return [data[i:i + split] for i in range(0, len(data), split)]
        return list(self.texts(kinds))

    def due_steps(self):
        """(due time, kinds); with split `single` all kinds at the time of the last."""
        due, steps = self.start_ns, []
        for wait_ms, kinds in self.script["steps"]:
            due += int(wait_ms * 1e6)
            steps.append((due, kinds))
        if self.script["split"] == "single":
            return [(due, "".join(kinds for _, kinds in steps))]
        return steps

    @staticmethod
    async def sleep_until(due_ns):
        while (left := due_ns - now_ns()) > 0:
            await asyncio.sleep(left / 1e9)

    def mark_step(self, kinds):
        # uvloop writes at the end of this tick; the callback runs at the start of the next.
        step = [now_ns(), None, kinds]
        self.line["steps"].append(step)
        self.loop.call_soon(lambda: step.__setitem__(1, now_ns()))

    async def events(self):
        try:
            for due, kinds in self.due_steps():
                await self.sleep_until(due)
                self.mark_step(kinds)
                for piece in self.pieces(kinds):
                    self.line["body_bytes"] += len(piece)
                    yield piece
            self.line["end"] = self.script["end"]
            self.die()
        finally:
            self.line["end_ns"] = now_ns()
            # Behind the marks of the last step, and behind the writes of this tick.
            self.loop.call_soon(lambda: self.loop.call_soon(self.log.append, self.line))

    def die(self):
        if self.script["end"] == "clean":
            return
        if self.script["end"] == "rst":
            linger = struct.pack("ii", 1, 0)
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.transport.abort()
        else:
            raise CutShort  # uvicorn closes the connection without the body's end, as when a handler fails


def make_app(log):
    async def play(request: Request):
        head_ns = now_ns()
        connection = CONNECTIONS.by_client[tuple(request.client)]
        ordinal = next(connection["ordinals"])
        body = await request.body()
        read_ns = now_ns()
        line = {"server": "uvicorn", "tag": request.headers.get("x-tag", ""), "local_port": request.scope["server"][1],
                "remote": request.client.host, "remote_port": request.client.port, "ordinal": ordinal,
                "accepted_ns": connection["accepted_ns"] if ordinal == 1 else None, "head_ns": head_ns,
                "request_read_ns": read_ns, "status": 0, "head_write": None, "steps": [], "end": "aborted", "end_ns": 0,
                "body_bytes": 0, "error": None}
        script = parse_script(request, body)
        line["status"] = script["status"]
        player = Player(script, line, log, connection["transport"], read_ns)
        headers = {"content-type": script["content_type"], **script["headers"]}
        if script["body"] == "close":
            return PlainTextResponse("this server cannot stream until close", status_code=501)
        if script["head"] == "first" or script["body"] == "length":
            await player.sleep_until(player.due_steps()[0][0])
        if script["body"] == "length":
            # The whole body goes through one response, and is written as soon as it is asked for.
            [(due, kinds)] = player.due_steps()[-1:]
            await player.sleep_until(due)
            kinds = "".join(kinds for _, kinds in player.due_steps())
            data = b"".join(player.texts(kinds))
            line.update(body_bytes=len(data), end="clean")
            player.mark_step(kinds)
            line["end_ns"] = now_ns()
            player.loop.call_soon(lambda: player.loop.call_soon(log.append, line))
            return Response(data, status_code=script["status"], headers=headers)
        return StreamingResponse(player.events(), status_code=script["status"], headers=headers)

    async def health(_request):
        return PlainTextResponse("ok")

    return Starlette(routes=[Route("/health", health), Route("/{path:path}", play, methods=["POST"])])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", default="")
    parser.add_argument("--keep-alive-s", type=int, default=600)
    arguments = parser.parse_args()

    listener = socket.socket(socket.AF_INET6 if ":" in arguments.host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((arguments.host, arguments.port))
    config = uvicorn.Config(make_app(Log(arguments.log)), http=Protocol, loop="uvloop", lifespan="off",
                            access_log=False, log_level="critical", timeout_keep_alive=arguments.keep_alive_s,
                            backlog=2048)
    server = uvicorn.Server(config)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    class Announcing(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets=sockets)
            print("ready", listener.getsockname()[1], flush=True)

    server.__class__ = Announcing
    server.run(sockets=[listener])


if __name__ == "__main__":
    main()
