// SPDX-License-Identifier: Apache-2.0
// Asks the demo's model through the real OpenAI SDK: several streams at once, and notes by its own clock what it got when.
//
//   node client.mjs --base-url URL --name NAME [--streams N] [--tokens N] [--start-at UNIX_MS] [--log FILE]
//
// Prints a line per stream. FILE gets a JSON line per stream; times are CLOCK_MONOTONIC in nanoseconds:
//   name, response_id, sent_ns (before and after the request went to the socket), role_ns, content_ns (one per chunk),
//   done_ns (the stream has ended), finish_reason, usage, and loop_delay_ns: how late the event loop was at worst, and
//   so by how much these times may be late
import { appendFileSync } from 'node:fs';
import { subscribe } from 'node:diagnostics_channel';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import OpenAI from 'openai';

const { values: options } = parseArgs({
  options: {
    'base-url': { type: 'string' },
    name: { type: 'string' },
    streams: { type: 'string', default: '1' },
    tokens: { type: 'string', default: '128' },
    'start-at': { type: 'string', default: '0' },
    log: { type: 'string' },
  },
});
const loop_delay = monitorEventLoopDelay({ resolution: 1 });
const now_ns = () => Number(process.hrtime.bigint());

// Node's fetch tells when it writes a request. Its type of `headers` differs between versions: text or a list.
const sent_ns = {};
for (const moment of ['undici:client:sendHeaders', 'undici:request:bodySent']) {
  subscribe(moment, ({ request }) => {
    const stream = /x-demo-stream(?:: |,)([\w-]+)/.exec(String(request.headers));
    if (stream) (sent_ns[stream[1]] ??= []).push(now_ns());
  });
}

const openai = new OpenAI({ baseURL: options['base-url'], apiKey: 'none', maxRetries: 0, timeout: 30_000 });
// A longer question each, so that the streams do not all start alike.
const question = (index) => 'is it all for the one '.repeat(2 + 8 * index).trim();

async function ask(index) {
  const name = `${options.name}-${index + 1}`;
  const log = { name, response_id: '', sent_ns: [], role_ns: 0, content_ns: [], done_ns: 0 };
  const stream = await openai.chat.completions.create(
    {
      model: 'inferwire-demo',
      messages: [{ role: 'user', content: question(index) }],
      max_tokens: Number(options.tokens),
      seed: index + 1,
      stream: true,
      stream_options: { include_usage: true },
    },
    { headers: { 'x-demo-stream': name } },
  );
  for await (const chunk of stream) {
    const at = now_ns();
    log.response_id = chunk.id;
    const choice = chunk.choices[0];
    if (choice?.delta.content) log.content_ns.push(at);
    else if (choice?.delta.role) log.role_ns = at;
    if (choice?.finish_reason) log.finish_reason = choice.finish_reason;
    if (chunk.usage) log.usage = chunk.usage;
  }
  log.done_ns = now_ns();
  log.sent_ns = sent_ns[name];
  log.loop_delay_ns = loop_delay.max;
  if (options.log) appendFileSync(options.log, `${JSON.stringify(log)}\n`);
  const ms = (ns) => `${((ns - log.sent_ns[0]) / 1e6).toFixed(1)} ms`;
  console.log(`${name}: ${log.content_ns.length} tokens, first after ${ms(log.content_ns[0])}, done after ${ms(log.done_ns)}`);
}

const wait_ms = Number(options['start-at']) - Date.now();
if (wait_ms > 0) await sleep(wait_ms);
loop_delay.enable();
await Promise.all(Array.from({ length: Number(options.streams) }, (_, index) => ask(index)));
process.exit(0); // do not wait for the SDK's idle connections
