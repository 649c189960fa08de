#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A server and a client that make many requests, each exactly as a plan says. Two programs, so that each end is a
process of its own:

    flood.py serve NAME            prints "ready PORT"
    flood.py ask NAME PORT PLAN    runs the plan (a JSON file), prints "done REQUESTS"

NAME becomes the process's name. A plan is a list of connections, a connection a list of requests one after the other:

    {"path", "kind", "code", "chunks", "pause_ms", "output_tokens", "input_tokens"}

kind: `stream` (SSE with end marker), `cut` (the connection ends inside the stream), `json` (one body), `get`.
"""

import asyncio
import ctypes
import json
import sys

_PR_SET_NAME = 15
_REASONS = {200: "OK", 429: "Too Many Requests", 500: "Internal Server Error"}


def _event(payload):
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"


def _chunked(block):
    return b"%x\r\n%s\r\n" % (len(block), block)


def _usage(plan):
    return {"prompt_tokens": plan["input_tokens"], "completion_tokens": plan["output_tokens"]}


async def _answer(plan, writer):
    """Returns whether the connection goes on."""
    status = f"HTTP/1.1 {plan['code']} {_REASONS[plan['code']]}\r\n".encode()
    if plan["kind"] in ("json", "get"):
        body = json.dumps({"model": "flood", "usage": _usage(plan)} if plan["kind"] == "json" else {}).encode()
        writer.write(status + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        return True
    writer.write(status + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for number in range(plan["chunks"]):
        writer.write(_chunked(_event({"model": "flood", "choices": [{"index": 0, "delta": {"content": f"word{number}"}}]})))
        await writer.drain()
        if plan["pause_ms"]:
            await asyncio.sleep(plan["pause_ms"] / 1000)
    if plan["kind"] == "cut":
        return False
    tail = _event({"model": "flood", "choices": [], "usage": _usage(plan)}) + b"data: [DONE]\n\n"
    writer.write(_chunked(tail) + b"0\r\n\r\n")
    await writer.drain()
    return True


async def _read_message(reader):
    """Head and body of a request or response; None at the end of the connection. The body of a cut stream is short."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    if fields.get(b"transfer-encoding") != b"chunked":
        return head, await reader.readexactly(int(fields.get(b"content-length", 0)))
    body = b""
    try:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
    except asyncio.IncompleteReadError:
        pass
    return head, body


async def _serve_one(reader, writer):
    while message := await _read_message(reader):
        head, body = message
        plan = json.loads(body) if body else {"kind": "get", "code": 200}
        if not await _answer(plan, writer):
            break
    writer.close()


async def serve():
    server = await asyncio.start_server(_serve_one, "127.0.0.1", 0, backlog=256)
    print("ready", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _ask_connection(port, requests):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for plan in requests:
        body = b"" if plan["kind"] == "get" else json.dumps(plan).encode()
        method = b"GET" if plan["kind"] == "get" else b"POST"
        fields = b"" if plan["kind"] == "get" else b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
        writer.write(method + b" " + plan["path"].encode() + b" HTTP/1.1\r\nHost: flood\r\n" + fields + b"\r\n" + body)
        await writer.drain()
        head, answer = await _read_message(reader)
        if int(head.split()[1]) != plan["code"]:
            raise RuntimeError(f"asked for {plan}, got {head!r}")
        if plan["kind"] in ("stream", "cut") and answer.count(b"word") != plan["chunks"]:
            raise RuntimeError(f"asked for {plan}, got {answer!r}")
    if requests[-1]["kind"] == "cut":
        await reader.read()  # the server's FIN
    writer.close()
    await writer.wait_closed()
    return len(requests)


async def ask(port, plan):
    print("done", sum(await asyncio.gather(*(_ask_connection(port, requests) for requests in plan))), flush=True)


def main():
    command, name = sys.argv[1], sys.argv[2]
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
    if command == "serve":
        asyncio.run(serve())
    else:
        with open(sys.argv[4], encoding="utf-8") as file:
            plan = json.load(file)
        asyncio.run(ask(int(sys.argv[3]), plan))


if __name__ == "__main__":
    main()
