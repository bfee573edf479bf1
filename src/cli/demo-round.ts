/** The round of `heddle demo`: dispatch, example experts, combine; twice, beside the reference. */
import type { ProviderName } from '../fabric/index.js';
import { type Bits, type Shape, type Source, traffic } from '../layer/index.js';
import { ExpertParallel, emptyTensor, readBits, tensorFrom } from '../moe/index.js';
import { SimMachine } from '../sim/index.js';
import {
  compareCombined,
  ExampleExperts,
  expectedRound,
  layerOf,
  makeSources,
  mergeComparisons,
} from '../testing/index.js';
import { World } from '../world/index.js';
import { digestOf, networkHere, runNodes } from './demo-nodes.js';
import type { Bar, DemoResult, KernelSpan } from './print-demo.js';

/** Runs the round trip twice and compares it with the reference. */
export async function demoRound(
  shape: Shape,
  { nodes, seed }: { readonly nodes: number; readonly seed: number },
  simulated: boolean,
  progress: (what: string) => void,
): Promise<DemoResult> {
  const started = performance.now();
  const provider = nodes > 1 ? networkHere() : null;
  const sources = makeSources(shape, shape.maxTokens, seed);
  const here = (schedule: 'in-order' | 'random') =>
    simulated ? simulate(shape, sources, nodes, schedule) : runOnGpus(shape, sources, nodes, provider);
  progress('dispatch, experts, combine …');
  const first = await here('in-order');
  let again: Run;
  if (simulated && provider !== null) {
    progress(`the same again, in ${nodes} processes over ${provider} …`);
    again = { digests: await runNodes(nodes, { shape, seed, provider }), spans: first.spans };
  } else {
    progress(`the same again${simulated ? ', in another order' : ''} …`);
    again = await here('random');
  }
  progress('comparing with the reference …');
  const expected = expectedRound(shape, sources, true, nodes);
  const { hidden, dtype } = shape.output;
  const seconds = Math.round((performance.now() - started) / 10) / 100;
  return {
    ...{ shape, nodes, simulated, seconds, network: provider },
    about: [
      `rows of ${hidden} ${dtype}; dispatch, experts, combine: twice, in ${seconds.toFixed(1)} s`,
      ...(nodes === 1 ? [] : [`between nodes: ${networks(nodes, simulated, provider)}`]),
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

/** What lies between nodes, in the first run and in the second. */
export function networks(nodes: number, simulated: boolean, network: string | null): string {
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
    const begin = Math.max(start, ends.get(rank) ?? 0);
    ends.set(rank, end);
    return { rank, stream: 0, kernel: part(kernel), start: begin, end };
  });
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
  const x = tensorFrom(device, stream, payloads.x!, 'u8', [tokens, shape.payloads[0]!.rowBytes]);
  const out = emptyTensor(device, dtype, [tokens, hidden]);

  const clock = new KernelClock(world, stream);
  ep.dispatch({ topkIds, topkWeights: topkWeights!, payloads: { x } }, stream);
  clock.ended('dispatch');
  experts.run(stream);
  clock.ended('experts');
  ep.combine(out, stream);
  clock.ended('combine');
  await ep.synchronize(stream);

  const result = { out: await readBits(out, stream), spans: clock.spans() };
  await ep.dispose();
  return result;
}

/** When kernels began and ended on a GPU. The simulated machine knows by itself, and events would hold it up. */
class KernelClock {
  private readonly events: {
    readonly name: string;
    readonly event: ReturnType<World['device']['createEvent']>;
  }[] = [];

  constructor(
    private readonly world: World,
    private readonly stream: ReturnType<World['device']['createStream']>,
  ) {
    this.ended('');
  }

  ended(name: string): void {
    const { device } = this.world;
    if (device.kind === 'sim') return;
    const event = device.createEvent();
    this.stream.record(event);
    this.events.push({ name, event });
  }

  /** In microseconds since this rank began. */
  spans(): KernelSpan[] {
    const [zero, ...ends] = this.events;
    if (zero === undefined) return [];
    let start = 0;
    return ends.map(({ name, event }) => {
      const end = event.elapsedSince(zero.event) * 1000;
      const span = { rank: this.world.rank, stream: 0, kernel: name, start, end };
      start = end;
      return span;
    });
  }
}
