// SPDX-License-Identifier: Apache-2.0
// Waits until the agent has exported the records of all requests that the demo's clients made, and picks them: the agent
// sees the whole machine, which may have other things to do. Lines are picked as they are.
//
//   node records.mjs RECORDS CLIENT_LOG PER_REQUEST SECONDS OUT     exit 0: they are there; 1: not in time
//
// Prints how many there are, and how many final records of other requests. OUT gets all lines of the demo's connections.
import { readFileSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const [records, client_log, per_request, seconds, out] = process.argv.slice(2);

function lines_of(file) {
  const lines = readFileSync(file, 'utf8').split('\n');
  lines.pop(); // empty, or still being written
  return lines.map((text) => ({ text, ...JSON.parse(text) }));
}

const ours = new Set(lines_of(client_log).map((request) => request.response_id));
const wanted = ours.size * Number(per_request);

function pick() {
  const lines = lines_of(records);
  const final = lines.filter((line) => line.type === 'request' && line.final);
  const found = final.filter((line) => ours.has(line.response_id));
  const connections = new Set(found.map((line) => line.conn_id));
  const others = final.filter((line) => !connections.has(line.conn_id)).length;
  return { found: found.length, others, picked: lines.filter((line) => connections.has(line.conn_id)) };
}

const deadline = Date.now() + Number(seconds) * 1000;
while (pick().found < wanted && Date.now() < deadline) await sleep(100);
const { found, others, picked } = pick();
writeFileSync(out, picked.map((line) => `${line.text}\n`).join(''));
console.log(found, others);
process.exit(found >= wanted ? 0 : 1);
