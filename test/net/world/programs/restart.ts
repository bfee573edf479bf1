/** Rank 1 is killed in the middle of its work, the first time; the world that begins anew does its round. */
import { existsSync, writeFileSync } from 'node:fs';
import { World } from '../../../../src/net/world/index.js';
import { roundOf } from './round.js';

const [mark] = process.argv.slice(2) as [string];

await World.join({}, async (world) => {
  await world.barrier('all have come');
  if (world.rank === 1 && !existsSync(mark)) {
    writeFileSync(mark, '');
    process.kill(process.pid, 'SIGKILL');
  }
  console.log(`${world.rank} of ${world.ranks}: ${await roundOf(world)}`);
});
