/** A process of `heddle demo --nodes`: started by demo-rounds.ts with its round as the argument. */

import { World } from '../net/world/index.js';
import { makeSources } from '../verify/testing/index.js';
import { digestOf, type NodeRound, type NodeSays, runRank } from './demo-rounds.js';

const { shape, seed, provider } = JSON.parse(process.argv[2]!) as NodeRound;
const sources = makeSources(shape, shape.maxTokens, seed);
await World.join({ fabric: { provider } }, async (world) => {
  const { out } = await runRank(world, shape, sources[world.rank]!);
  const says: NodeSays = { rank: world.rank, digest: digestOf(out) };
  process.stdout.write(`${JSON.stringify(says)}\n`);
});
