// SPDX-License-Identifier: Apache-2.0
// Waits until the agent has exported all records of the demo's requests.
//
//   node records.mjs FILE COUNT SECONDS     exit 0: they are there; 1: not in time. Prints how many there are.
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const [file, wanted, seconds] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];

function is_final_answer(line) {
  try {
    const record = JSON.parse(line);
    return record.type === 'request' && record.final === true && record.route === '/v1/chat/completions';
  } catch {
    return false; // a line that is being written
  }
}

const count = () => readFileSync(file, 'utf8').split('\n').filter(is_final_answer).length;

const deadline = Date.now() + seconds * 1000;
while (count() < wanted && Date.now() < deadline) await sleep(100);
console.log(count());
process.exit(count() >= wanted ? 0 : 1);
