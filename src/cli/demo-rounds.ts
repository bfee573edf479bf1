/** `heddle demo`: a round twice, beside the reference. */

import { SimMachine } from '../gpu/sim/index.js';
import { type Bits, type Shape, type Source, traffic } from '../moe/layer/index.js';
import type { ProviderName } from '../net/fabric/index.js';
import { World } from '../net/world/index.js';
import { compareCombined, expectedRound, makeSources, mergeComparisons } from '../verify/testing/index.js';
import { digestOf, networkHere, runNodes } from './demo-nodes.js';
import { runRank } from './demo-round.js';
import type { Bar, DemoResult, KernelSpan } from './print-demo.js';

interface RoundResult extends DemoResult {
  /** libfabric's provider between the nodes of the second run, on GPUs of both; null where none was used. */
  readonly network: ProviderName | null;
}

export async function demoRounds(
  shape: Shape,
  of: { readonly nodes: number; readonly seed: number; readonly simulated: boolean },
  progress: (what: string) => void,
): Promise<RoundResult> {
  const started = performance.now();
  const { nodes, seed, simulated } = of;
  const network = nodes > 1 ? networkHere() : null;
  const sources = makeSources(shape, shape.maxTokens, seed);
  const here = (schedule: 'in-order' | 'random') =>
    simulated ? simulate(shape, sources, nodes, schedule) : runOnGpus(shape, sources, nodes, network);
  progress('dispatch, experts, combine …');
  const first = await here('in-order');
  let again: Run;
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
    ...{ picture: 'One round', bars, spans: again.spans },
  };
}

const bars: readonly Bar[] = [
  { name: 'dispatch', mark: '█', colour: 'cyan' },
  { name: 'experts', mark: '▒', colour: 'yellow' },
  { name: 'combine', mark: '▓', colour: 'magenta' },
];

/** What carried rows between nodes, in words. */
export function networkText(nodes: number, simulated: boolean, network: ProviderName | null): string {
  if (!simulated) return `libfabric (${network})`;
  const again =
    network === null
      ? 'both times (with libfabric1 installed, the second run is of processes)'
      : `then libfabric (${network}) between ${nodes} processes`;
  return `the simulated machine's network, ${again}`;
}

/** By rank. */
interface Run {
  readonly digests: readonly string[];
  readonly spans: readonly KernelSpan[];
}

interface RunHere extends Run {
  readonly out: readonly Bits[];
}

async function simulate(
  shape: Shape,
  sources: readonly Source[],
  nodes: number,
  schedule: 'in-order' | 'random',
): Promise<RunHere> {
  const { ranks } = shape;
  const sim = SimMachine.create({ ranks, schedule });
  const results = await World.local({ ranks, nodes, device: 'sim', sim }, (world) =>
    runRank(world, shape, sources[world.rank]!),
  );
  return { ...outOf(results), spans: tracedSpans(sim) };
}

async function runOnGpus(
  shape: Shape,
  sources: readonly Source[],
  nodes: number,
  provider: ProviderName | null,
): Promise<RunHere> {
  const fabric = provider === null ? {} : { provider };
  const results = await World.local({ ranks: shape.ranks, nodes, device: 'cuda', fabric }, (world) =>
    runRank(world, shape, sources[world.rank]!),
  );
  return { ...outOf(results), spans: results.flatMap(({ spans }) => spans) };
}

function outOf(results: readonly { readonly out: Bits }[]) {
  const out = results.map((result) => result.out);
  return { out, digests: out.map(digestOf) };
}

/** A kernel may be there before the one before it has ended, but only waits for that: its work begins then. */
function tracedSpans(machine: SimMachine): KernelSpan[] {
  const part = (kernel: string): string => /dispatch|experts|combine/.exec(kernel)?.[0] ?? kernel;
  const ends = new Map<number, number>();
  return machine.trace.map(({ rank, kernel, start, end }) => {
    const span = { rank, stream: 0, kernel: part(kernel), start: Math.max(start, ends.get(rank) ?? 0), end };
    ends.set(rank, end);
    return span;
  });
}
