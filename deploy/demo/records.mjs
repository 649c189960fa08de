// SPDX-License-Identifier: Apache-2.0
// Waits until the agent has exported the records of all requests that the demo's clients made.
//
//   node records.mjs RECORDS CLIENT_LOG PER_REQUEST SECONDS     exit 0: they are there; 1: not in time
//
// Prints how many there are, and how many final records of other requests (the agent sees the whole machine).
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const [records, client_log, per_request, seconds] = process.argv.slice(2);

function objects(file) {
  const lines = readFileSync(file, 'utf8').split('\n');
  lines.pop(); // empty, or still being written
  return lines.map((line) => JSON.parse(line));
}

const ours = new Set(objects(client_log).map((request) => request.response_id));
const wanted = ours.size * Number(per_request);

function count() {
  const final = objects(records).filter((record) => record.type === 'request' && record.final);
  const found = final.filter((record) => ours.has(record.response_id)).length;
  return { found, others: final.length - found };
}

const deadline = Date.now() + Number(seconds) * 1000;
while (count().found < wanted && Date.now() < deadline) await sleep(100);
const { found, others } = count();
console.log(found, others);
process.exit(found >= wanted ? 0 : 1);
