/**
 * `heddle demo`: runs a round twice, and compares it with the reference. Between nodes the second run takes processes, each of which
 * simulates the GPUs of a node, with libfabric between them.
 */

import { createHash } from 'node:crypto';
import { extname, join } from 'node:path';
import { requireInteger, requireOneOf, requireText, UnavailableError } from '../base/errors.js';
import { inRange } from '../gpu/index.js';
import { SimMachine } from '../gpu/sim/index.js';
import { ExpertParallel, emptyTensor, readBits, tensorFrom } from '../moe/index.js';
import { type Bits, bitsOf, type Shape, type Source, traffic } from '../moe/layer/index.js';
import { listProviders, type ProviderName, providers } from '../net/fabric/index.js';
import { launchReporting, World } from '../net/world/index.js';
import { Clock } from '../tools/bench/index.js';
import {
  compareCombined,
  ExampleExperts,
  expectedRound,
  layerOf,
  makeSources,
  mergeComparisons,
} from '../verify/testing/index.js';
import type { DemoResult } from './print-demo.js';

export async function demoRounds(
  shape: Shape,
  of: { readonly nodes: number; readonly seed: number; readonly simulated: boolean },
  progress: (what: string) => void,
): Promise<DemoResult & { readonly network: ProviderName | null }> {
  const started = performance.now();
  const { nodes, seed, simulated } = of;
  const network = nodes > 1 ? networkHere() : null;
  const sources = makeSources(shape, shape.maxTokens, seed);
  const here = async (schedule: 'in-order' | 'random') => {
    const { ranks } = shape;
    const sim = simulated ? SimMachine.create({ ranks, schedule }) : null;
    const fabric = network === null ? {} : { provider: network };
    const device = sim === null ? ({ device: 'cuda', fabric } as const) : ({ device: 'sim', sim } as const);
    const results = await World.local({ ranks, nodes, ...device }, (world) =>
      runRank(world, shape, sources[world.rank]!),
    );
    const out = results.map((result) => result.out);
    return { out, digests: out.map(digestOf), spans: results.flatMap(({ spans }) => spans) };
  };
  progress('dispatch, experts, combine …');
  const first = await here('in-order');
  let again: Pick<typeof first, 'digests' | 'spans'>;
  if (simulated && network !== null) {
    progress(`the same again, in ${nodes} processes over ${network} …`);
    again = { digests: await runNodes(nodes, { shape, seed, provider: network }), spans: first.spans };
  } else {
    progress(`the same again${simulated ? ', in another order' : ''} …`);
    again = await here('random');
  }
  progress('comparing with the reference …');
  const expected = expectedRound(shape, sources, true, nodes);
  const { hidden, dtype } = shape.output;
  const seconds = Math.round((performance.now() - started) / 10) / 100;
  return {
    // `network`: libfabric's provider between the nodes of the second run, on GPUs of both; null where none was used.
    ...{ shape, nodes, simulated, network, seconds },
    about: [
      `rows of ${hidden} ${dtype}; dispatch, experts, combine: twice, in ${seconds.toFixed(1)} s`,
      ...(nodes === 1 ? [] : [`between nodes: ${networkText(nodes, simulated, network)}`]),
    ],
    says: {
      right: 'every bit as in the reference',
      repeatable: 'the second run gave the same bits',
      notRepeatable: 'the second run gave other bits',
    },
    traffic: traffic(shape, sources, nodes),
    comparison: mergeComparisons(
      first.out.map((out, rank) => compareCombined(shape, rank, out, expected[rank]!)),
    ),
    bitwiseRepeatable: first.digests.every((digest, rank) => digest === again.digests[rank]),
    // The first round on GPUs also loads the kernels.
    ...{ picture: 'One round', spans: again.spans },
  };
}

export function networkText(nodes: number, simulated: boolean, network: ProviderName | null): string {
  if (!simulated) return `libfabric (${network})`;
  const again =
    network === null
      ? 'both times (with libfabric1 installed, the second run is of processes)'
      : `then libfabric (${network}) between ${nodes} processes`;
  return `the simulated machine's network, ${again}`;
}

/** One rank's round: all that a user of Heddle has to write, and a clock beside it. */
export async function runRank(
  world: World,
  shape: Shape,
  { tokens, topkIds, topkWeights, payloads }: Source,
) {
  const { dtype, hidden } = shape.output;
  const { device } = world;
  const stream = device.createStream();
  const ep = await ExpertParallel.create(world, layerOf(shape));
  const experts = await ExampleExperts.create(world, ep, stream);
  const x = tensorFrom(device, stream, bitsOf(dtype, payloads.x!), dtype, [tokens, hidden]);
  const out = emptyTensor(device, dtype, [tokens, hidden]);

  const round = (): void => {
    ep.dispatch({ topkIds, topkWeights: topkWeights!, payloads: { x } }, stream);
    inRange('experts', stream, () => experts.run(stream));
    ep.combine(out, stream);
  };
  const clock = new Clock(device);
  clock.watch(stream, round);
  await ep.synchronize(stream);

  const spans = clock.stop(world.rank);
  const result = { out: await readBits(out, stream), spans };
  await ep.dispose();
  return result;
}

/** The arguments of a process of a node. */
export type NodeRound = { readonly shape: Shape; readonly seed: number; readonly provider: ProviderName };
/** A node's report on one of its ranks. */
export type NodeSays = { readonly rank: number; readonly digest: string };

/**
 * The provider by which ranks of different nodes would reach each other here: HEDDLE_PROVIDER, else the best that reaches beyond a machine;
 * null where there is no libfabric.
 */
export function networkHere(): ProviderName | null {
  const { HEDDLE_PROVIDER: asked } = process.env;
  if (asked) return requireOneOf('HEDDLE_PROVIDER', asked, providers);
  try {
    const usable = listProviders().filter(({ devices }) => devices.length > 0);
    const beyond = usable.filter(({ provider }) => provider !== 'shm');
    return [...beyond, ...usable][0]?.provider ?? null;
  } catch (error) {
    if (error instanceof UnavailableError) return null;
    throw error;
  }
}

/** Runs the round in processes. Returns for each rank a digest of what combine brought it. */
async function runNodes(nodes: number, round: NodeRound): Promise<string[]> {
  const digests: string[] = [];
  const launch = {
    ranks: round.shape.ranks,
    nodes,
    device: 'sim',
    program: join(import.meta.dirname, `demo-node${extname(import.meta.filename)}`),
    args: [JSON.stringify(round)],
  } as const;
  await launchReporting('the demo', launch, (report) => {
    const { rank, digest } = report as NodeSays;
    digests[requireInteger('rank', rank, 0, round.shape.ranks - 1)] = requireText('digest', digest);
  });
  return digests;
}

/** A digest that is the same for two outputs only if all their bits are. */
export const digestOf = (bits: Bits): string => createHash('sha256').update(bits).digest('hex');
