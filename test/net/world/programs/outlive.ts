// Ranks that go on when the process that started them is gone, and when rank 0 has fallen. They write what they found into a folder.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { RankLostError } from '../../../../src/base/errors.js';
import { ProcessCircle } from '../../../../src/net/world/process-circle.js';

const [folder, lossTimeoutMs] = process.argv.slice(2) as [string, string];
const parent = process.ppid;
const circle = await ProcessCircle.join({ lossTimeoutMs: Number(lossTimeoutMs) });
writeFileSync(join(folder, `ready ${circle.rank}`), String(process.pid));
while (process.ppid === parent) await delay(20);
// The pipe says so to a write that comes after the first.
for (let i = 0; i < 4; i++) {
  console.log('nobody reads this any more');
  console.error('nor this');
  await delay(1);
}
await circle.barrier('without a launcher');
if (circle.rank === 0) process.kill(process.pid, 'SIGKILL');
const lost = await circle.barrier('without rank 0').catch((error: unknown) => error);
const next = await circle.regroup();
const parts = await next.allGather(Uint8Array.of(circle.rank));
writeFileSync(
  join(folder, `done ${circle.rank}`),
  JSON.stringify({
    lost: (lost as RankLostError).ranks,
    origins: next.origins,
    parts: parts.map((part) => part[0]),
  }),
);
