/**
 * The time of dispatch and combine that is still visible when other work runs beside them: a round of split phases on one stream,
 * an MLP of the shared expert's size on another, with as many multiprocessors for the phases as asked for. Free would be
 * the longer of the two.
 */
import type { Column } from '../../base/table.js';
import { type Device, inRange } from '../../gpu/index.js';
import { DenseMlp, type Gemm } from '../../moe/index.js';
import { type Look, type Measuring, pointByPoint, type Rig } from './harness.js';
import { setsFor, tensorsOf } from './inputs.js';
import { roundsFor } from './program.js';
import { createRound } from './round.js';
import type { Spread, Unit } from './statistics.js';
import { layerInWords, percent } from './table.js';
import type { Steps } from './timing.js';
import { roundBytes, routeSets, type Workload, type WorkloadOptions, workload } from './workload.js';

export interface OverlapPlan extends Measuring {
  readonly workload: WorkloadOptions;
  readonly tokens: readonly number[];
  /** Multiprocessors of the phases, one after the other; null for a few numbers, and all. */
  readonly sms: readonly number[] | null;
  readonly inner: number;
  readonly family?: string;
  readonly gemm: Gemm;
}

type OverlapPoint = Awaited<ReturnType<typeof measure>>;

/** @throws UnavailableError without enough GPUs. */
export async function benchOverlap(plan: OverlapPlan, on: (point: OverlapPoint) => void = () => {}) {
  const of = workload(plan.workload);
  const { inner, gemm } = plan;
  const setting = { ...plan, ranks: of.ranks, seed: of.seed };
  const results = await pointByPoint('overlap', setting, on, async (rig, tell, look) => {
    for (const tokens of plan.tokens)
      for (const sms of plan.sms ?? someOf(rig.timing.world.device))
        tell(await measure(rig, of, { ...plan, tokens, sms }, look));
  });
  return { ...results, workload: of, inner, gemm };
}

const someOf = ({ kind, multiprocessors }: Device): readonly number[] =>
  kind === 'sim' ? [8] : [...[8, 16, 24, 32].filter((sms) => sms < multiprocessors), multiprocessors];

type Point = Pick<OverlapPlan, 'family' | 'gemm' | 'inner'> & Readonly<Record<'tokens' | 'sms', number>>;

/** An MLP for every token of a rank, on a stream of its own. */
async function createBeside(rig: Rig, { hidden }: Workload, { tokens, sms, gemm, inner }: Point) {
  const { stream } = rig.timing;
  const { device } = rig.timing.world;
  const tensors = tensorsOf(rig, 1);
  const gateUp = tensors.filled('bf16', [2 * inner, hidden]);
  const down = tensors.filled('bf16', [hidden, inner]);
  const x = tensors.filled('bf16', [tokens, hidden]);
  const out = tensors.empty('bf16', [tokens, hidden]);
  const of = { gateUp, down, gemm, maxTokens: tokens };
  // With all multiprocessors to itself, and with those that the phases leave.
  const alone = await DenseMlp.create(device, of);
  const beside =
    sms < device.multiprocessors
      ? await DenseMlp.create(device, { ...of, sms: device.multiprocessors - sms })
      : alone;
  await stream.synchronize();
  const side = device.createStream();
  const run = (mlp: DenseMlp) => () => inRange('MLP', side, () => mlp.run(x, out, tokens, side));
  return {
    run: { alone: run(alone), beside: run(beside) },
    /** `run` between a fork from the benchmark's stream and a join with it, beside what `main` enqueues there. */
    around(run: () => void, main: (round: number) => void = () => {}): Steps {
      const [fork, join] = [device.createEvent(), device.createEvent()];
      return [
        (round) => {
          stream.record(fork);
          side.wait(fork);
          // The round comes first, so that its launches find free multiprocessors.
          main(round);
          run();
          side.record(join);
          stream.wait(join);
        },
      ];
    },
    dispose() {
      alone.dispose();
      beside.dispose();
      side.dispose();
      tensors.free();
    },
  };
}

/** Times of each alone, then of both at a time, in µs; of simulated machines steps, which say nothing. */
async function measure(rig: Rig, of: Workload, at: Point, look: Look) {
  const { timing } = rig;
  const { tokens, sms, family } = at;
  const real = timing.world.device.kind === 'cuda';
  const bytes = roundBytes(of, tokens, routeSets(of, tokens, 1));
  const rounds = real ? roundsFor(bytes) : 1;
  const sets = setsFor(rounds, 2 * tokens * of.hidden, timing.options.l2Bytes);
  // Before the round: what cuBLAS loads at its first use waits for the GPU.
  const beside = await createBeside(rig, of, at);
  const round = await createRound(rig, of, routeSets(of, tokens, sets), {
    ...{ sms, split: true },
    ...(family !== undefined && { family }),
  });
  await round.verify();
  // Simulated graphs hold one stream.
  const enqueue = (steps: Steps) => () => {
    for (let n = 0; n < rounds; n++) for (const step of steps) step(n);
  };
  const time = (steps: Steps): Promise<Spread> =>
    real ? round.time(rounds, steps) : timing.timed(rounds, enqueue(steps));
  const both = round.both[0]!;
  const together = beside.around(beside.run.beside, both);
  const point = {
    round: await time([both]),
    mlp: await time(beside.around(beside.run.alone)),
    both: await time(together),
  };
  await look(() => together[0]!(0));
  beside.dispose();
  await round.dispose();
  const [shorter, longer] = [point.round.median, point.mlp.median].sort((a, b) => a - b) as [number, number];
  // How much longer both take than the longer one, over the shorter: 0 is free, 1 is one after the other.
  return { tokens, sms, ...point, exposed: (point.both.median - longer) / shorter };
}

/** The layer whose rows travel, and the MLP beside it, in words. */
export const overlapHeading = ({ workload: of, inner }: OverlapPlan): string =>
  `${layerInWords(workload(of))}, ${of.dtype} there, ${of.combineDtype} back; an MLP of inner width ${inner}`;

export const overlapColumns = (unit: Unit): readonly Column<OverlapPoint>[] => [
  { head: 'tokens', cell: ({ tokens }) => String(tokens) },
  { head: 'sms', cell: ({ sms }) => String(sms) },
  { head: `round ${unit}`, cell: ({ round }) => round.median.toFixed(1) },
  { head: `MLP ${unit}`, cell: ({ mlp }) => mlp.median.toFixed(1) },
  { head: `both ${unit}`, cell: ({ both }) => both.median.toFixed(1) },
  {
    head: 'of longer',
    cell: ({ round, mlp, both }) => `${(both.median / Math.max(round.median, mlp.median)).toFixed(2)}×`,
  },
  { head: 'exposed', cell: ({ exposed }) => percent(exposed) },
];
