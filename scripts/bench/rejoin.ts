/**
 * How long the others wait for a rank that comes back: `npm run bench:rejoin [times]` prints the table of
 * docs/results/2026-11-23-cpu-rejoin.md.
 */
import { createServer } from 'node:net';
import { performance } from 'node:perf_hooks';
import { RankMaskedError } from '../../src/base/errors.js';
import { ExpertParallel, type ExpertParallelOptions } from '../../src/moe/index.js';
import { World } from '../../src/net/world/index.js';
import { layerOf, shapeOfRounds } from '../../src/verify/testing/index.js';

const shape = shapeOfRounds({ ranks: 4, experts: 8, topK: 3, maxTokens: 3, hidden: 16, dtype: 'bf16' });
const leaves = 2;
const times = Number(process.argv[2] ?? 21);

async function comeAndGo(world: World, how: Partial<ExpertParallelOptions>, took: number[]): Promise<void> {
  await ExpertParallel.create(world, layerOf(shape, { ...how, onLoss: 'mask' }));
  for (let time = 0; time < times; time++) {
    if (world.rank === leaves) {
      await world.mask([leaves]).catch((error: unknown) => {
        if (!(error instanceof RankMaskedError)) throw error;
      });
      await world.rejoin();
      continue;
    }
    await world.mask([leaves]);
    for (let came = 0; came === 0; ) {
      await new Promise(setImmediate);
      const start = performance.now();
      came = (await world.admit()).length;
      if (came > 0) took.push(performance.now() - start);
    }
  }
}

const freePort = () =>
  new Promise<number>((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });

const windows = { family: 'one-sided' } as const;
const messages = { family: 'hybrid' } as const;

async function row(name: string, run: (took: number[]) => Promise<unknown>): Promise<void> {
  const took: number[] = [];
  await run(took);
  took.sort((a, b) => a - b);
  const at = (part: number) => ms(took[Math.ceil(part * took.length) - 1]!);
  const ms = (time: number) => `${time.toFixed(time < 10 ? 1 : 0)} ms`;
  console.log(`| ${name} | ${at(0.5)} | ${at(0.9)} | ${at(1)} |`);
}

async function atRendezvous(how: Partial<ExpertParallelOptions>, took: number[], nodes = 1): Promise<void> {
  const address = `127.0.0.1:${await freePort()}`;
  const fabric = { provider: 'tcp;ofi_rxm', devices: ['lo'] } as const;
  const join = (node: number) =>
    World.join(
      {
        ...{ rank: (node * 4) / nodes, ranks: 4, ranksHere: 4 / nodes, address, fabric, device: 'sim' },
        environment: {},
      },
      (world) => comeAndGo(world, how, took),
    );
  await Promise.all(Array.from({ length: nodes }, (_, node) => join(node)));
}

console.log('| the ranks meet | rows travel | median | nine of ten | longest |');
console.log('| --- | --- | --- | --- | --- |');
await row('in the process | one-sided', (took) =>
  World.local({ ranks: 4, device: 'sim' }, (world) => comeAndGo(world, windows, took)),
);
await row('at a rendezvous, over sockets | one-sided', (took) => atRendezvous(windows, took));
await row('at a rendezvous, over sockets | hybrid, 4 nodes over `tcp;ofi_rxm`', (took) =>
  atRendezvous(messages, took, 4),
);
