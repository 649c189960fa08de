// SPDX-License-Identifier: Apache-2.0
// The scripted server on Node's http, without any dependency. Plays the scripts of
// tests/support/README.md, whose log it writes. Prints `ready PORT`; SIGTERM ends it with exit 0.
'use strict';
const fs = require('node:fs');
const http = require('node:http');
const { parseArgs } = require('node:util');

const { values: options } = parseArgs({
  options: {
    host: { type: 'string', default: '127.0.0.1' },
    port: { type: 'string', default: '0' },
    log: { type: 'string', default: '' },
  },
});

// hrtime is CLOCK_MONOTONIC; up to 2^53 ns (104 days of uptime) fits a double exactly.
const nowNs = () => Number(process.hrtime.bigint());
const logFd = options.log ? fs.openSync(options.log, 'a') : null;
const appendLog = (line) => {
  if (logFd !== null) fs.writeSync(logFd, JSON.stringify(line) + '\n');
};

const sleepUntil = (dueNs) =>
  new Promise((resolve) => {
    const wait = () => {
      const left = dueNs - nowNs();
      // Timers are whole milliseconds: the rest of the last one is given to the loop, not slept over.
      if (left <= 0) resolve();
      else if (left < 1e6) setImmediate(wait);
      else setTimeout(wait, Math.floor(left / 1e6));
    };
    wait();
  });

const readBody = async (request) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts).toString();
};

class Player {
  constructor(script, line, startNs) {
    this.script = script;
    this.line = line;
    this.startNs = startNs;
    this.number = 0;
  }

  text(kind) {
    const text = this.script.texts[kind];
    return this.script.chunk_kinds.includes(kind) ? text.replaceAll('%i', this.number++) : text;
  }

  pieces(kinds) {
    const texts = [...kinds].map((kind) => this.text(kind));
    if (typeof this.script.split !== 'number') return texts.map((text) => Buffer.from(text));
    const all = Buffer.from(texts.join(''));
    const pieces = [];
    for (let at = 0; at < all.length; at += this.script.split) pieces.push(all.subarray(at, at + this.script.split));
    return pieces;
  }

  dueSteps() {
    let due = this.startNs;
    const steps = this.script.steps.map(([waitMs, kinds]) => [(due += Math.round(waitMs * 1e6)), kinds]);
    if (this.script.split !== 'single' && this.script.body !== 'length') return steps;
    return [[due, steps.map(([, kinds]) => kinds).join('')]];
  }

  // Node joins the writes of one turn and hands them to TCP in its nextTick: so `after` is taken behind that.
  write(response, kinds) {
    const step = [nowNs(), null, kinds];
    this.line.steps.push(step);
    const pieces = this.pieces(kinds);
    if (this.script.body === 'length') {
      response.setHeader('content-length', pieces.reduce((sum, piece) => sum + piece.length, 0));
    }
    for (const piece of pieces) {
      this.line.body_bytes += piece.length;
      response.write(piece);
    }
    return new Promise((resolve) => {
      process.nextTick(() => {
        step[1] = nowNs();
        resolve();
      });
    });
  }

  async play(response) {
    const { script } = this;
    response.statusCode = script.status;
    response.setHeader('content-type', script.content_type);
    for (const [name, value] of Object.entries(script.headers)) response.setHeader(name, value);
    if (script.head === 'early' && script.body !== 'length') {
      const before = nowNs();
      response.flushHeaders();
      this.line.head_write = [before, nowNs()];
    }
    const steps = this.dueSteps();
    for (let i = 0; i < steps.length; i++) {
      const [due, kinds] = steps[i];
      await sleepUntil(due);
      if (response.destroyed) return;
      const written = this.write(response, kinds);
      // A handler that writes its tail and ends in one turn sends both in one write.
      if (i === steps.length - 1 && script.end === 'clean') response.end();
      await written;
    }
    if (script.end === 'rst') response.socket.resetAndDestroy();
    else if (script.end === 'fin') response.socket.end();
    this.line.end = script.end;
  }
}

const server = http.createServer(async (request, response) => {
  const headNs = nowNs();
  const { socket } = request;
  if (request.method === 'GET') {
    response.end('ok');
    return;
  }
  socket.rigOrdinal = (socket.rigOrdinal ?? 0) + 1;
  const line = {
    server: 'node', tag: request.headers['x-tag'] ?? '', local_port: socket.localPort, remote: socket.remoteAddress,
    remote_port: socket.remotePort, ordinal: socket.rigOrdinal,
    accepted_ns: socket.rigOrdinal === 1 ? socket.rigAcceptedNs : null, head_ns: headNs, request_read_ns: 0,
    status: 0, head_write: null, steps: [], end: 'aborted', end_ns: 0, body_bytes: 0, error: null,
  };
  try {
    const body = await readBody(request);
    line.request_read_ns = nowNs();
    const script = JSON.parse(request.headers['x-script'] ?? JSON.stringify(JSON.parse(body).script));
    line.status = script.status;
    if (script.body === 'close') {
      response.statusCode = 501;
      response.end('this server cannot stream until close');
      return;
    }
    await new Player(script, line, line.request_read_ns).play(response);
  } catch (error) {
    line.error = String(error);
    response.destroy();
  } finally {
    line.end_ns = nowNs();
    appendLog(line);
  }
});
server.on('connection', (socket) => {
  socket.rigAcceptedNs = nowNs();
  socket.on('error', () => {});
});
server.keepAliveTimeout = 600_000;
server.requestTimeout = 0;
server.listen(Number(options.port), options.host, () => console.log(`ready ${server.address().port}`));
process.on('SIGTERM', () => process.exit(0));
