# SPDX-License-Identifier: Apache-2.0
"""Scenarios: what a server is to write and when, as the script of tests/support/README.md.

A scenario is described by the functions here in the words of the field (TTFT, cadence, jitter, coalescing) and becomes
a script, which is plain data; `expected()` says what an observer must see of it.

Command line: `python3 -m rig.scenario --cadence-ms 20 --chunks 50` prints a request body for curl.
"""

import argparse
import dataclasses
import json
import random

CHUNK_KINDS = "cmtk"


def _sse(payload, newline):
    return f"data: {payload}{newline}{newline}"


def _compact(value):
    return json.dumps(value, separators=(",", ":"))


def _openai_chunk(delta, finish=None):
    return _compact({"id": "chatcmpl-rig", "object": "chat.completion.chunk", "created": 1700000000, "model": "rig-model",
                     "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]})


def openai_sse(output_tokens, input_tokens, pad=0, newline="\n"):
    """OpenAI chat completions over SSE, as vLLM writes it."""
    usage = {"prompt_tokens": input_tokens, "total_tokens": input_tokens + output_tokens,
             "completion_tokens": output_tokens}
    content = _openai_chunk({"content": " tok%i" + "x" * pad})
    head, comma, tail = content.partition(',"choices"')
    return {
        "r": _sse(_openai_chunk({"role": "assistant", "content": ""}), newline),
        "c": _sse(content, newline),
        "m": f"data: {head}{newline}data: {comma}{tail}{newline}{newline}",
        "t": _sse(_openai_chunk({"reasoning_content": " think%i" + "x" * pad}), newline),
        "k": _sse(_openai_chunk({"tool_calls": [{"index": 0, "function": {"arguments": "{\"a%i\":"}}]}), newline),
        "p": f": keep-alive{newline}{newline}",
        "P": f"event: ping{newline}data: {{\"type\":\"ping\"}}{newline}{newline}",
        "f": _sse(_openai_chunk({}, "stop"), newline),
        "u": _sse(_compact({"id": "chatcmpl-rig", "object": "chat.completion.chunk", "created": 1700000000,
                            "model": "rig-model", "choices": [], "usage": usage}), newline),
        "e": _sse(_compact({"error": {"message": "engine died", "type": "InternalServerError", "code": 500}}), newline),
        "d": _sse("[DONE]", newline),
    }


def ollama_ndjson(output_tokens, input_tokens, pad=0):
    """Ollama's /api/chat."""
    def line(message, **rest):
        return _compact({"model": "rig-model", "created_at": "2025-01-01T00:00:00.000000000Z", "message": message,
                         **rest}) + "\n"
    return {
        "r": line({"role": "assistant", "content": ""}, done=False),
        "c": line({"role": "assistant", "content": " tok%i" + "x" * pad}, done=False),
        "t": line({"role": "assistant", "content": "", "thinking": " think%i" + "x" * pad}, done=False),
        "e": _compact({"error": "engine died"}) + "\n",
        "d": line({"role": "assistant", "content": ""}, done=True, done_reason="stop", total_duration=5_000_000_000,
                  load_duration=1_000_000, prompt_eval_count=input_tokens, prompt_eval_duration=20_000_000,
                  eval_count=output_tokens, eval_duration=4_000_000_000),
    }


def openai_json(output_tokens, input_tokens, pad=0):
    """A non-streamed chat completion: the one kind `c` is the whole body."""
    return {"c": _compact({"id": "chatcmpl-rig", "object": "chat.completion", "created": 1700000000, "model": "rig-model",
                           "choices": [{"index": 0, "message": {"role": "assistant", "content": "tok" + "x" * pad},
                                        "finish_reason": "stop"}],
                           "usage": {"prompt_tokens": input_tokens, "total_tokens": input_tokens + output_tokens,
                                     "completion_tokens": output_tokens}})}


_DIALECTS = {
    "sse-lf": (openai_sse, "text/event-stream; charset=utf-8", "/v1/chat/completions"),
    "sse-crlf": (lambda o, i, pad: openai_sse(o, i, pad, "\r\n"), "text/event-stream; charset=utf-8",
                 "/v1/chat/completions"),
    "ndjson": (ollama_ndjson, "application/x-ndjson", "/api/chat"),
    "json": (openai_json, "application/json", "/v1/chat/completions"),
}


@dataclasses.dataclass
class Expected:
    """What is right for a script, by construction."""
    chunks: int
    output_tokens: int | None
    input_tokens: int | None
    outcome: str
    code: int
    stream: bool


@dataclasses.dataclass
class Scenario:
    path: str
    script: dict
    output_tokens: int
    input_tokens: int
    prompt_bytes: int = 0

    def body(self):
        """The request's body: a chat request with the script in it."""
        stream = self.script["content_type"] != "application/json"
        request = {"model": "rig-model", "script": self.script,
                   "messages": [{"role": "user", "content": "x" * self.prompt_bytes}], "stream": stream}
        if self.path == "/v1/chat/completions" and stream:
            request["stream_options"] = {"include_usage": True}
        return _compact(request)

    def kinds(self):
        return "".join(kinds for _, kinds in self.script["steps"])

    def expected(self):
        script, kinds = self.script, self.kinds()
        stream = script["content_type"] != "application/json"
        told = ("u" in kinds) or (script["content_type"] == "application/x-ndjson" and "d" in kinds) or not stream
        if "e" in kinds:
            outcome = "error_in_stream"
        elif script["end"] in ("fin", "rst"):
            outcome = "complete" if "d" in kinds and script["end"] == "fin" else (
                "truncated_abrupt" if script["end"] == "fin" and script["body"] != "close" else
                "truncated_clean" if script["end"] == "fin" else "reset")
        else:
            outcome = "complete" if "d" in kinds or not stream else "truncated_clean"
        return Expected(chunks=sum(kinds.count(kind) for kind in CHUNK_KINDS) if stream else 0,
                        output_tokens=self.output_tokens if told else None,
                        input_tokens=self.input_tokens if told else None,
                        outcome=outcome, code=script["status"], stream=stream)


def scenario(*, framing="sse-lf", ttft_ms=50.0, cadence_ms=20.0, chunks=20, gaps_ms=None, jitter=0.0, seed=1,
             role_early_ms=None, role=True, reasoning=0, comments_every_ms=None, comment="p", coalesce=1, tail="one_write",
             usage=True, done=True, error_at=None, die_at=None, end="clean", head="early", body="chunked", split="whole",
             status=200, tokens_per_chunk=1, input_tokens=17, pad=0, prompt_bytes=0, path=None, headers=None, **transport):
    """A stream: head, role chunk, `reasoning` chunks and then content, a cadence (or explicit `gaps_ms`), tail.

    jitter       each gap is scaled by a factor drawn from 1 - jitter to 1 + jitter
    role_early_ms  the role chunk leaves alone at this time; None: in one write with the first chunk
    comments_every_ms  a ping in every silence of at least this long, counted from the start
    coalesce     chunks per write
    tail         `one_write`: last chunk, finish, usage and end marker in one write; `separate`: a write each
    error_at     after this many chunks comes an error event instead of the rest (and the end marker, as vLLM does)
    die_at       after this many chunks the response ends as `end` says, with neither finish nor end marker
    """
    draw = random.Random(seed)
    make_texts, content_type, default_path = _DIALECTS[framing]
    output_tokens = chunks * tokens_per_chunk
    script = {"texts": make_texts(output_tokens, input_tokens, pad), "chunk_kinds": CHUNK_KINDS,
              "content_type": content_type, "status": status, "headers": headers or {}, "head": head, "body": body,
              "split": split, "end": end, **transport}
    if framing == "json":
        script["steps"] = [[ttft_ms, "c"]]
        return Scenario(path or default_path, script, output_tokens, input_tokens, prompt_bytes)

    kinds = ["t"] * reasoning + ["c"] * (chunks - reasoning)
    last = len(kinds)
    if error_at is not None:
        kinds = kinds[:error_at] + ["e"]
    elif die_at is not None:
        kinds = kinds[:die_at]
    writes = ["".join(kinds[i:i + coalesce]) for i in range(0, len(kinds), coalesce)]
    if gaps_ms is None:
        gaps_ms = [cadence_ms * (1 + jitter * draw.uniform(-1, 1)) for _ in range(max(0, last - 1))]
    due = [ttft_ms]
    for gap in gaps_ms[:len(writes) - 1]:
        due.append(due[-1] + gap)
    timed = list(zip(due, writes))

    if role and framing != "ndjson":
        if role_early_ms is None:
            timed[0] = (timed[0][0], "r" + timed[0][1])
        else:
            timed.insert(0, (role_early_ms, "r"))
    finish = "" if die_at is not None else (
        ("" if framing == "ndjson" or error_at is not None else "f") +
        ("u" if usage and framing != "ndjson" and error_at is None else "") +
        ("d" if done and not (error_at is not None and framing == "ndjson") else ""))
    if tail == "one_write":
        timed[-1] = (timed[-1][0], timed[-1][1] + finish)
    else:
        timed += [(timed[-1][0] + 1 + i, kind) for i, kind in enumerate(finish)]
    if comments_every_ms:
        busy = [at for at, _ in timed]
        at = comments_every_ms
        while at < busy[-1]:
            if all(abs(at - other) > 1 for other in busy):
                timed.append((at, comment))
            at += comments_every_ms
        timed.sort(key=lambda step: step[0])
    script["steps"] = _relative(timed)
    used = set("".join(kinds for _, kinds in script["steps"]))
    if unknown := used - script["texts"].keys():
        raise ValueError(f"{framing} has no events of the kinds {''.join(sorted(unknown))}")
    script["texts"] = {kind: text for kind, text in script["texts"].items() if kind in used}
    return Scenario(path or default_path, script, output_tokens, input_tokens, prompt_bytes)


def _relative(timed):
    steps, previous = [], 0.0
    for at, kinds in timed:
        steps.append([round(at - previous, 3), kinds])
        previous += steps[-1][0]
    return steps


def main():
    parser = argparse.ArgumentParser(description="Prints the request body of a scripted stream.")
    parser.add_argument("--framing", default="sse-lf", choices=_DIALECTS)
    parser.add_argument("--ttft-ms", type=float, default=50)
    parser.add_argument("--cadence-ms", type=float, default=20)
    parser.add_argument("--chunks", type=int, default=20)
    parser.add_argument("--jitter", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(scenario(framing=arguments.framing, ttft_ms=arguments.ttft_ms, cadence_ms=arguments.cadence_ms,
                   chunks=arguments.chunks, jitter=arguments.jitter, seed=arguments.seed).body())


if __name__ == "__main__":
    main()
