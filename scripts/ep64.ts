/**
 * `npm run ep64`: 64 ranks on this machine, in 16 processes of 4 simulated GPUs each, with libfabric's tcp between them. One
 * round must give the reference's bits, in the time and the memory that are promised.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { runRank } from '../src/cli/demo-rounds.js';
import { launchReporting, World } from '../src/net/world/index.js';
import { expectedRound, makeSources, shapeOfRounds } from '../src/verify/testing/index.js';

const [nodes, ranksOfNode] = [16, 4];
const most = { seconds: 120, mebibytes: 4096 };
const ranks = nodes * ranksOfNode;
const shape = shapeOfRounds({ ranks, experts: 256, topK: 8, maxTokens: 4, hidden: 512, dtype: 'bf16' });
const sources = makeSources(shape, shape.maxTokens, 1);

/** A digest that is the same for two outputs only if all their bits are. */
const digestOf = (bits: NodeJS.ArrayBufferView): string => createHash('sha256').update(bits).digest('hex');

interface RankSays {
  readonly rank: number;
  readonly digest: string;
  /** The most that its process had so far, without the files that all of them map: those are there once. */
  readonly ownMebibytes: number;
  readonly sharedMebibytes: number;
}

function memory(): Pick<RankSays, 'ownMebibytes' | 'sharedMebibytes'> {
  const [, , sharedPages] = readFileSync('/proc/self/statm', 'utf8').split(' ').map(Number);
  const shared = sharedPages! / 256;
  return { ownMebibytes: process.resourceUsage().maxRSS / 1024 - shared, sharedMebibytes: shared };
}

async function beNode(): Promise<void> {
  const fabric = { provider: 'tcp;ofi_rxm', devices: ['lo'] } as const;
  await World.join({ fabric }, async (world) => {
    const { rank } = world;
    const digest = digestOf((await runRank(world, shape, sources[rank]!)).out);
    const says: RankSays = { rank, digest, ...memory() };
    process.stdout.write(`${JSON.stringify(says)}\n`);
  });
}

async function launchAll(): Promise<void> {
  const started = performance.now();
  const said: RankSays[] = [];
  const launch = { ranks, nodes, device: 'sim', program: fileURLToPath(import.meta.url) } as const;
  await launchReporting('EP64', launch, (report) => {
    const says = report as RankSays;
    said[says.rank] = says;
  });
  const seconds = (performance.now() - started) / 1000;
  // Ranks of a process share its memory, and the last of them to end saw most of it.
  const own = Array.from({ length: nodes }, (_, node) =>
    Math.max(...said.slice(node * ranksOfNode, (node + 1) * ranksOfNode).map((one) => one.ownMebibytes)),
  );
  const shared = Math.max(...said.map(({ sharedMebibytes }) => sharedMebibytes));
  const mebibytes = own.reduce((sum, peak) => sum + peak, shared);
  const right = expectedRound(shape, sources, true, nodes).every(
    (out, rank) => digestOf(out) === said[rank]?.digest,
  );
  console.log(
    `${ranks} ranks in ${nodes} processes on ${availableParallelism()} processors: ${right ? 'right' : 'WRONG'}, ` +
      `${seconds.toFixed(1)} s (at most ${most.seconds}), ${mebibytes.toFixed(0)} MiB (at most ${most.mebibytes})`,
  );
  process.exitCode = right && seconds <= most.seconds && mebibytes <= most.mebibytes ? 0 : 1;
}

await (process.env.HEDDLE_RANK === undefined ? launchAll() : beNode());
