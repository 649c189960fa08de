#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a small llama model with random weights as a GGUF (version 3) file.

The demo needs a real model without a download. This one has the architecture, the tokenizer and
the attention of a llama model, at 490 KB; only its weights are noise, so what it says makes no sense.

usage: mkgguf.py FILE [SEED]

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (little endian).
"""
import random
import struct
import sys

EMBEDDING, LAYERS, HEADS, FEED_FORWARD, CONTEXT = 64, 2, 4, 128, 2048
ALIGNMENT = 32

# SentencePiece marks a word's leading space with U+2581.
WORDS = ["\u2581" + word for word in
         "the a of to in and is it for on as be at by we you he she they not all can one was".split()]
PIECES = list("etaoinsrhdlucmfpgwybvkxjqz.,\u2581") + ["ing", "ed", "er"]
CONTROL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
TOKENS = CONTROL + BYTES + WORDS + PIECES

UNKNOWN, NORMAL, CONTROL_TYPE, BYTE = 2, 1, 3, 6  # llama token types
TOKEN_TYPES = [UNKNOWN, CONTROL_TYPE, CONTROL_TYPE] + [BYTE] * 256 + [NORMAL] * len(WORDS + PIECES)

# Dimension 0 of the residual stream is the same for every token and no layer writes to it, so that
# the output layer can use it as a bias: it keeps byte and control tokens from being sampled. A byte
# token may be half a character, and the server would have to hold it back: one token, one chunk.
BIAS_DIMENSION, NEVER = 0, -50.0

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # GGUF value types
SCALAR_FORMAT = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}


def string(text):
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def scalar(kind, value):
    return string(value) if kind == STRING else struct.pack(SCALAR_FORMAT[kind], value)


def entry(key, kind, value):
    return string(key) + struct.pack("<I", kind) + scalar(kind, value)


def array_entry(key, kind, values):
    head = string(key) + struct.pack("<IIQ", ARRAY, kind, len(values))
    return head + b"".join(scalar(kind, value) for value in values)


def metadata():
    llama, tokenizer = "llama.", "tokenizer.ggml."
    return [
        entry("general.architecture", STRING, "llama"),
        entry("general.name", STRING, "inferwire-demo"),
        entry(llama + "context_length", U32, CONTEXT),
        entry(llama + "embedding_length", U32, EMBEDDING),
        entry(llama + "block_count", U32, LAYERS),
        entry(llama + "feed_forward_length", U32, FEED_FORWARD),
        entry(llama + "attention.head_count", U32, HEADS),
        entry(llama + "attention.head_count_kv", U32, HEADS),
        entry(llama + "attention.layer_norm_rms_epsilon", F32, 1e-5),
        entry(llama + "rope.dimension_count", U32, EMBEDDING // HEADS),
        entry(llama + "vocab_size", U32, len(TOKENS)),
        entry(tokenizer + "model", STRING, "llama"),
        array_entry(tokenizer + "tokens", STRING, TOKENS),
        array_entry(tokenizer + "scores", F32, [-float(rank) for rank in range(len(TOKENS))]),
        array_entry(tokenizer + "token_type", I32, TOKEN_TYPES),
        entry(tokenizer + "unknown_token_id", U32, 0),
        entry(tokenizer + "bos_token_id", U32, 1),
        entry(tokenizer + "eos_token_id", U32, 2),
        entry(tokenizer + "add_bos_token", BOOL, True),
        entry(tokenizer + "add_eos_token", BOOL, False),
    ]


def tensors(rng):
    """Yields (name, rows). A tensor's rows are its outputs, as GGUF stores them."""
    def noise(rows, columns):
        return [[rng.gauss(0, 0.08) for _ in range(columns)] for _ in range(rows)]

    def residual_update(columns):  # what a layer adds to the residual stream: nothing to the bias
        rows = noise(EMBEDDING, columns)
        rows[BIAS_DIMENSION] = [0.0] * columns
        return rows

    ones = [[1.0] * EMBEDDING]
    embedding = noise(len(TOKENS), EMBEDDING)
    output = noise(len(TOKENS), EMBEDDING)
    for token, row in enumerate(embedding):
        row[BIAS_DIMENSION] = 0.5
        output[token][BIAS_DIMENSION] = NEVER if TOKEN_TYPES[token] != NORMAL else 0.0
    yield "token_embd.weight", embedding
    yield "output_norm.weight", ones
    yield "output.weight", output
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        yield block + "attn_norm.weight", ones
        for name in ("attn_q", "attn_k", "attn_v"):
            yield f"{block}{name}.weight", noise(EMBEDDING, EMBEDDING)
        yield block + "attn_output.weight", residual_update(EMBEDDING)
        yield block + "ffn_norm.weight", ones
        for name in ("ffn_gate", "ffn_up"):
            yield f"{block}{name}.weight", noise(FEED_FORWARD, EMBEDDING)
        yield block + "ffn_down.weight", residual_update(FEED_FORWARD)


def padded(content):
    return content + b"\0" * (-len(content) % ALIGNMENT)


def gguf(seed):
    entries, descriptions, weights, offset = metadata(), [], [], 0
    for name, rows in tensors(random.Random(seed)):
        shape = [len(rows[0])] if len(rows) == 1 else [len(rows[0]), len(rows)]
        content = padded(b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows))
        descriptions.append(string(name) + struct.pack("<I", len(shape))
                            + struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", 0, offset))
        weights.append(content)
        offset += len(content)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(descriptions), len(entries))
    return padded(head + b"".join(entries + descriptions)) + b"".join(weights)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: mkgguf.py FILE [SEED]")
    with open(sys.argv[1], "wb") as file:
        file.write(gguf(int(sys.argv[2]) if len(sys.argv) == 3 else 1))


if __name__ == "__main__":
    main()
