# SPDX-License-Identifier: Apache-2.0
"""Runs a plan (see clients/main.cpp) with aiohttp, as vLLM's own benchmark reads streams, and logs when it read each event.

One session with one connection a planned connection. Knows `start_ms`, and of requests `tag path body headers wait_ms
abort_after_events timeout_ms`. It refuses a plan that asks for more.
"""

import argparse
import asyncio
import json
import time

import aiohttp

_CONNECTION_KEYS = {"host", "port", "start_ms", "requests"}
_REQUEST_KEYS = {"tag", "path", "body", "headers", "wait_ms", "abort_after_events", "timeout_ms"}


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def sse_kind(event):
    if event.startswith(":"):
        return "p"
    for mark, kind in (("event: ping", "P"), ("data: [DONE]", "d"), ('"error":', "e"), ('"usage":', "u"), ('"role":', "r"),
                       ('"reasoning_content":', "t"), ('"tool_calls":', "k"), ('"delta":{}', "f")):
        if mark in event:
            return kind
    return "c"


def ndjson_kind(line):
    for mark, kind in (('"error":', "e"), ('"done":true', "d"), ('"thinking":', "t"), ('"content":""', "r")):
        if mark in line:
            return kind
    return "c"


class Events:
    """Splits a body into events."""

    def __init__(self, content_type):
        self.sse = content_type.startswith("text/event-stream")
        self.ndjson = content_type.startswith("application/x-ndjson")
        self.rest = b""

    def feed(self, data):
        if not (self.sse or self.ndjson):
            return []
        # A CR may be cut from its LF: it is dropped only once the LF is there.
        self.rest = (self.rest + data).replace(b"\r\n", b"\n")
        *whole, self.rest = self.rest.split(b"\n\n" if self.sse else b"\n")
        kind = sse_kind if self.sse else ndjson_kind
        return [kind(event.decode()) for event in whole if event]


def tracing():
    """aiohttp's own marks, nearer to the socket than what is around a call: into the line given with each request."""
    trace = aiohttp.TraceConfig()

    async def connecting(_session, context, _params):
        context.trace_request_ctx["connect_ns"] = [now_ns(), None]

    async def connected(_session, context, _params):
        line = context.trace_request_ctx
        line["sent_first_ns"] = line["connect_ns"][1] = now_ns()

    async def reused(_session, context, _params):
        context.trace_request_ctx["sent_first_ns"] = now_ns()

    trace.on_connection_create_start.append(connecting)
    trace.on_connection_create_end.append(connected)
    trace.on_connection_reuseconn.append(reused)
    return trace


async def ask(session, connection, request, ordinal, log):
    url = f"http://{connection['host']}:{connection['port']}{request.get('path', '/v1/chat/completions')}"
    headers = {"content-type": "application/json", "x-tag": request["tag"], **request.get("headers", {})}
    line = {"client": "aiohttp", "tag": request["tag"], "local_port": None, "remote_port": connection["port"],
            "ordinal": ordinal, "connect_ns": None, "sent_first_ns": None, "sent_last_ns": None, "status": None,
            "reads": None, "events": [], "end_ns": None, "outcome": None, "body_bytes": 0, "body_hash": None}
    try:
        timeout = aiohttp.ClientTimeout(total=request.get("timeout_ms", 60_000) / 1e3)
        async with session.post(url, data=request.get("body", "").encode(), headers=headers, timeout=timeout,
                                trace_request_ctx=line) as response:
            line["status"] = response.status
            line["local_port"] = response.connection.transport.get_extra_info("sockname")[1]
            events = Events(response.headers.get("content-type", ""))
            while data := await response.content.readany():
                at = now_ns()
                line["body_bytes"] += len(data)
                line["events"] += [[at, kind, None] for kind in events.feed(data)]
                if 0 < request.get("abort_after_events", 0) <= len(line["events"]):
                    line["outcome"] = "aborted"
                    response.close()
                    break
            line["end_ns"] = now_ns()
            line["outcome"] = line["outcome"] or "complete"
    except asyncio.TimeoutError:
        line.update(outcome="timeout", end_ns=now_ns())
    except aiohttp.ClientError as error:
        line.update(outcome="rst" if "reset" in str(error).lower() else "fin", end_ns=now_ns(), error=str(error))
    log.write(json.dumps(line, separators=(",", ":")) + "\n")


async def run_connection(connection, log):
    await asyncio.sleep(connection.get("start_ms", 0) / 1e3)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1, keepalive_timeout=600),
                                     trace_configs=[tracing()]) as session:
        for ordinal, request in enumerate(connection["requests"], 1):
            await asyncio.sleep(request.get("wait_ms", 0) / 1e3)
            await ask(session, connection, request, ordinal, log)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plan", required=True)
    parser.add_argument("--log", required=True)
    arguments = parser.parse_args()
    with open(arguments.plan, encoding="utf-8") as file:
        plan = json.load(file)
    for connection in plan["connections"]:
        unknown = connection.keys() - _CONNECTION_KEYS
        for request in connection["requests"]:
            unknown |= request.keys() - _REQUEST_KEYS
        if unknown:
            raise SystemExit(f"this client cannot do: {', '.join(sorted(unknown))}")
    with open(arguments.log, "a", encoding="utf-8") as log:
        await asyncio.gather(*(run_connection(connection, log) for connection in plan["connections"]))


if __name__ == "__main__":
    asyncio.run(main())
