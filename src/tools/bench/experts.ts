/**
 * The cost of sorting rows by expert, of copying them there, and of adding up their results, each beside a plain device
 * copy that moves as many bytes. It is one rank's own work, so one GPU is enough, whatever the number of ranks: what would
 * have arrived is put where dispatch leaves it.
 */

import type { Column } from '../../base/table.js';
import { bytesOf, ExpertsPlan } from '../../moe/index.js';
import { dtypes, expertsOf, type Layer, reference } from '../../moe/layer/index.js';
import { layerInWords, percent } from './columns.js';
import { arrivedAt, type Rig, setsFor, tensorsOf } from './inputs.js';
import { type Bench, type Measuring, type Tell, wrongResult } from './run.js';
import { gigabytes, type Spread, type Unit } from './statistics.js';
import type { Timing } from './timing.js';
import { type Workload, type WorkloadOptions, workload } from './workload.js';

export interface ExpertsBenchPlan extends Measuring {
  readonly workload: WorkloadOptions;
  readonly tokens: readonly number[];
}

type ExpertsPoint = Awaited<ReturnType<typeof measure>>;

/** The buffers of one round. Rounds take several sets in turn, so that no round finds its rows in the cache. */
type Set = Awaited<ReturnType<typeof createSet>>;

/** Times of launches back to back in a graph, in µs; of simulated ones steps, which say nothing. */
async function measure(rig: Rig, of: Workload, tokens: number, tell: Tell<never>) {
  const { timing } = rig;
  const { stream } = timing;
  const layer: Layer = {
    ...{ ranks: of.ranks, experts: of.experts, topK: of.topK, maxTokens: tokens },
    payloads: [{ name: 'x', rowBytes: of.hidden * dtypes[of.combineDtype].size }],
    output: { dtype: of.combineDtype, hidden: of.hidden },
    ...{ weights: true, counts: false },
  };
  const { experts, weights } = arrivedAt(layer, of.seed);
  const { rowBytes } = layer.payloads[0]!;
  const routes = experts.reduce((sum, id) => sum + Number(id >= 0), 0);
  const slots = countSlots(experts, layer.topK);
  const bytes = (routes + slots) * rowBytes;
  const rounds = timing.options.l2Bytes === 0 ? 2 : Math.max(8, Math.min(100, Math.ceil(2e9 / bytes)));
  const sets: Set[] = [];
  for (let n = 0; n < Math.min(16, setsFor(rounds, bytes, timing.options.l2Bytes)); n++)
    sets.push(await createSet(rig, layer, { experts, weights }, bytes));
  await verify(timing, sets[0]!, layer, experts);

  const time = (step: (set: Set) => void): Promise<Spread> =>
    timing.time(rounds, [(round) => step(sets[round % sets.length]!)]);
  const steps = {
    plan: ({ of, plan }: Set) => void plan.plan(of.received, stream),
    expand: ({ of, plan, rows }: Set) => plan.expand(of.received, { x: rows }, stream),
    reduce: ({ of, plan, rows }: Set) => plan.reduce(of.received, rows, stream),
  };
  const plan = await time(steps.plan);
  const expand = await time(steps.expand);
  const reduce = await time(steps.reduce);
  await tell.trace(() => {
    for (const step of Object.values(steps)) step(sets[0]!);
  });
  const half = Math.floor(bytes / 2);
  const copy = await time(({ scratch }) => stream.copy(scratch.data + half, scratch.data, half));
  for (const { plan, tensors } of sets) {
    plan.dispose();
    tensors.free();
  }
  // Bytes are read and written; a device copy reads and writes as many, and the share is its time ÷ this one.
  const moved = (time: Spread) => ({ bytes, time, copy, share: copy.median / time.median });
  // Ids, and the row of each route.
  const planBytes = 4 * (2 * experts.length + routes);
  return { tokens, routes, slots, plan, planBytes, expand: moved(expand), reduce: moved(reduce) };
}

function countSlots(ids: Int32Array, topK: number): number {
  let slots = 0;
  for (let at = 0; at < ids.length; at += topK)
    slots += Number(ids.subarray(at, at + topK).some((id) => id >= 0));
  return slots;
}

async function createSet(
  rig: Rig,
  layer: Layer,
  ids: { readonly experts: Int32Array; readonly weights: Float32Array },
  bytes: number,
) {
  const { world, stream } = rig.timing;
  const tensors = tensorsOf(rig, 1);
  const { ranks, maxTokens, topK, output } = layer;
  const slots = [ranks, maxTokens] as const;
  const received = {
    experts: tensors.from(ids.experts, 'i32', [...slots, topK]),
    weights: tensors.from(ids.weights, 'f32', [...slots, topK]),
    counts: null,
    payloads: { x: tensors.filled(output.dtype, [...slots, output.hidden]) },
    output: tensors.empty(output.dtype, [...slots, output.hidden]),
  };
  const of = { world: { device: world.device, rank: 0 }, shape: layer, received };
  const plan = await ExpertsPlan.create(of);
  const rows = tensors.filled(output.dtype, [plan.rows, output.hidden]);
  const scratch = tensors.filled('u8', [bytes]);
  plan.plan(received, stream);
  await stream.synchronize();
  return { of, plan, rows, scratch, tensors };
}

async function verify({ stream }: Timing, { plan }: Set, layer: Layer, ids: Int32Array): Promise<void> {
  const how = { form: 'contiguous', alignment: 1, capacity: plan.rows } as const;
  const expected = reference.plan(ids, expertsOf(layer, 0), how);
  const { scatter } = plan.planned;
  const got = await stream.copyOut(scatter.data, scatter.bytes);
  const { overflow } = await plan.sizes(stream);
  if (Buffer.compare(got, bytesOf(expected.scatter)) === 0 && overflow === expected.overflow) return;
  throw wrongResult(`the plan of ${layer.maxTokens} tokens a rank is wrong`);
}

const moved = (what: 'expand' | 'reduce', unit: Unit): readonly Column<ExpertsPoint>[] => [
  { head: `${what} ${unit}`, cell: (point) => point[what].time.median.toFixed(1) },
  {
    ...({ head: 'GB/s', rate: true } as const),
    cell: (point) => gigabytes(point[what].bytes, point[what].time.median).toFixed(0),
  },
  { head: 'of copy', rate: true, cell: (point) => percent(point[what].share) },
];

export const expertsBench: Bench<
  ExpertsBenchPlan,
  ExpertsPoint,
  { readonly iterations: number; readonly workload: Workload }
> = {
  format: 'heddle-bench-experts/1',
  setting: ({ workload: { seed } }) => ({ ranks: 1, seed }),
  members: (plan) => ({ iterations: plan.iterations, workload: workload(plan.workload) }),
  async measure(rig, plan, tell) {
    for (const tokens of plan.tokens) {
      tell.doing(`${tokens} tokens`);
      tell.point(await measure(rig, workload(plan.workload), tokens, tell));
    }
  },
  heading: ({ workload: of }) => layerInWords(of),
  columns: ({ unit }) => [
    { head: 'tokens', cell: ({ tokens }) => String(tokens) },
    { head: 'routes', cell: ({ routes }) => String(routes) },
    { head: `plan ${unit}`, cell: ({ plan }) => plan.median.toFixed(1) },
    ...moved('expand', unit),
    ...moved('reduce', unit),
  ],
  lines: (point) => [point],
};
