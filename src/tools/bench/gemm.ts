/**
 * The experts' GEMMs beside every form that cuBLAS has of them, at one number of rows an expert or several. It is one rank's
 * own work. Heddle's gather their rows by the plan, the first with SwiGLU; cuBLAS finds its rows in order, leaves SwiGLU to
 * others, and knows the sizes of experts for free: so its times are lower bounds of what a layer would pay for it.
 */

import { UnavailableError } from '../../base/errors.js';
import type { Column } from '../../base/table.js';
import { Cublas, type CudaDevice, type CudaStream, type Product } from '../../gpu/cuda/index.js';
import { inRange } from '../../gpu/index.js';
import { mlpParts } from '../../moe/experts/index.js';
import {
  bytesOfWeight,
  type ExpertSizes,
  ExpertsMlp,
  ExpertsPlan,
  type LayerWeightsType,
  type MlpWeights,
  type OwnedTensor,
  type Received,
  type Receiving,
  read,
} from '../../moe/index.js';
import { type Layer, type MoeModel, profile, scaleBlock } from '../../moe/layer/index.js';
import { mlpWeights } from '../../verify/trials/index.js';
import { boundOf, boundsColumns, boundsOf, measureRates, type Rates } from './bounds.js';
import { percent, powerColumns } from './columns.js';
import { arrivedAt, type Rig, storedAs, tensorsOf } from './inputs.js';
import { inSmall } from './layer-data.js';
import { type Bench, type Measuring, requireClose, type Tell } from './run.js';
import type { Spread } from './statistics.js';
import type { Timing } from './timing.js';

interface GemmBenchPlan extends Measuring {
  readonly profile: string;
  readonly experts: number;
  /** Rows an expert, on average. */
  readonly rows: readonly number[];
  /** Every expert gets as many; or routes are drawn. */
  readonly routes: 'even' | 'uniform';
  /** The types of rows and weights; with MXFP4 rows are bf16. cuBLAS multiplies bf16 beside any. */
  readonly dtype: LayerWeightsType;
}

const gemmForms = ['heddle', 'one by one', 'strided', 'grouped'] as const;
type GemmForm = (typeof gemmForms)[number];

type GemmPoint = Awaited<ReturnType<typeof measure>>;

function openCublas(device: CudaDevice | null): { readonly cublas: Cublas | null; readonly said: string } {
  if (device === null) return { cublas: null, said: 'not on a simulated GPU' };
  try {
    const cublas = new Cublas(device);
    return { cublas, said: String(cublas.version) };
  } catch (error) {
    if (!(error instanceof UnavailableError)) throw error;
    return { cublas: null, said: error.message };
  }
}

interface Tools extends Rig {
  readonly cublas: Cublas | null;
  readonly rates: Rates;
}

const modelFor = ({ profile: name, dtype, device }: GemmBenchPlan): MoeModel =>
  device === 'sim' ? inSmall(profile(name), dtype === 'fp8' ? scaleBlock : 64) : profile(name);

async function measure(tools: Tools, plan: GemmBenchPlan, rows: number, tell: Tell<never>) {
  const { timing, cublas } = tools;
  const { stream, world } = timing;
  const { device } = world;
  const scaled = plan.dtype === 'fp8';
  const model = modelFor(plan);
  const { hidden, inner, topK: most } = model;
  const { experts } = plan;
  const topK = Math.min(most, experts);
  const maxTokens = Math.max(1, Math.round((experts * rows) / topK));
  const layer: Layer = {
    ...{ ranks: 1, experts, topK, maxTokens, weights: false, counts: false },
    payloads: scaled
      ? [
          { name: 'x', rowBytes: hidden },
          { name: 'scales', rowBytes: (4 * hidden) / scaleBlock },
        ]
      : [{ name: 'x', rowBytes: 2 * hidden }],
    output: { dtype: 'bf16', hidden },
  };
  const tensors = tensorsOf(tools, 2);
  const { filled } = tensors;
  const some = (shape: readonly number[]): OwnedTensor => filled('bf16', shape);
  const ids = tensors.from(idsOf(layer, plan.routes), 'i32', [1, maxTokens, topK]);
  const received: Received = {
    ...{ experts: ids, weights: null, counts: null },
    payloads: {
      x: filled(scaled ? 'e4m3' : 'bf16', [1, maxTokens, hidden]),
      ...(scaled && { scales: tensors.weights('rowScales', [1, maxTokens, hidden / scaleBlock], 'f32') }),
    },
    output: some([1, maxTokens, hidden]),
  };
  const of: Receiving = { world: { device, rank: 0 }, shape: layer, received };
  const dtype = storedAs[plan.dtype];
  const weights = mlpWeights({ ...model, dtype }, experts, (part, shape) =>
    tensors.weights(part, shape, dtype),
  );
  const planned = await ExpertsPlan.create(of);
  planned.plan(received, stream);
  const sizes = await planned.sizes(stream);
  if (cublas !== null && plan.dtype === 'bf16') await verify(of, planned, weights, sizes, timing);

  const largest = sizes.counts.reduce((a, b) => Math.max(a, b), 0);
  const room = Math.max(planned.rows, experts * largest);
  const sorted = { x: some([room, hidden]), both: some([room, 2 * inner]), made: some([room, hidden]) };
  const between = some([room, inner]);
  // cuBLAS multiplies bf16, so beside others it gets bf16 weights of the same shape. Their values do not matter.
  const matrices =
    plan.dtype !== 'bf16'
      ? { gateUp: some([experts, 2 * inner, hidden]), down: some([experts, hidden, inner]) }
      : weights;
  const mlp = await ExpertsMlp.create(of, planned, { ...weights, ...(scaled && { scales: 'scales' }) });
  const { products, rows: own } = mlpParts(mlp);
  products.take(sizes);
  const ours = {
    gateUp: () => products.widen(products.sorted?.rows ?? own.x, stream),
    down: () => products.narrow(own.made, stream),
  };
  if (products.sorted !== null) {
    const { rows: x, scales } = products.sorted;
    planned.expand(received, { x, ...(scales !== null && { scales }) }, stream);
  }
  const traced: (() => void)[] = [];
  const measured = async (which: 'gateUp' | 'down', of: Omit<Product, 'rows' | 'weights'>) => {
    const { inputs, outputs } = of;
    const all = { ...of, weights: matrices[which].data };
    const forms: Partial<Record<GemmForm, () => void>> = {
      heddle: ours[which],
      ...(cublas !== null && cublasForms(cublas, stream as CudaStream, all, sizes, largest)),
    };
    for (const [form, enqueue] of Object.entries(forms))
      traced.push(() => inRange(`${which === 'gateUp' ? 'gate, up' : which}: ${form}`, stream, enqueue));
    const times: Partial<Record<GemmForm, Spread>> = {};
    for (const form of gemmForms) {
      const enqueue = forms[form];
      if (enqueue === undefined) continue;
      const all = () => {
        for (let n = 0; n < 4; n++) enqueue();
      };
      // The grouped form reads arrays of the host at each call, so no graph can hold it.
      times[form] = form === 'grouped' ? await timing.timed(4, all) : await timing.time(4, [enqueue]);
    }
    const exact = paddedRows(sizes.counts, 1);
    const padded: Readonly<Record<GemmForm, number>> = {
      heddle: paddedRows(sizes.counts, products.rowUnit),
      'one by one': exact,
      strided: sizes.counts.length * largest,
      grouped: exact,
    };
    const flops = (count: number): number => 2 * count * inputs * outputs;
    const used = sizes.counts.filter((count) => count > 0).length;
    const weightBytes = bytesOfWeight[plan.dtype] * used * inputs * outputs;
    return {
      // Of the weights of experts that have rows, each read once.
      weightBytes,
      bounds: boundsOf(tools.rates, scaled ? 'fp8' : 'bf16', { weightBytes, flops: flops(sizes.total) }),
      usefulFlops: flops(sizes.total),
      // With the rows that forms multiply besides, because of their tiles or padding.
      paddedFlops: Object.fromEntries(gemmForms.map((form) => [form, flops(padded[form])])),
      times,
    };
  };
  const gateUp = await measured('gateUp', {
    ...{ from: sorted.x.data, to: sorted.both.data },
    ...{ inputs: hidden, outputs: 2 * inner },
  });
  const down = await measured('down', {
    ...{ from: between.data, to: sorted.made.data },
    ...{ inputs: inner, outputs: hidden },
  });
  await tell.trace(() => {
    for (const enqueue of traced) enqueue();
  });
  mlp.dispose();
  planned.dispose();
  tensors.free();
  return { rows, counts: [...sizes.counts], gateUp, down };
}

function idsOf(layer: Layer, routes: GemmBenchPlan['routes']): Int32Array {
  const { experts, topK, maxTokens } = layer;
  if (routes === 'uniform') return arrivedAt(layer, 1).experts;
  return Int32Array.from({ length: maxTokens * topK }, (_, i) => i % experts);
}

/** Heddle's experts and cuBLAS's, which have neither biases nor another activation, must agree before either is timed. */
async function verify(
  of: Receiving,
  plan: ExpertsPlan,
  { gateUp, down }: MlpWeights,
  sizes: ExpertSizes,
  { stream }: Timing,
): Promise<void> {
  const made = [];
  for (const gemm of ['heddle', 'cublas'] as const) {
    const mlp = await ExpertsMlp.create(of, plan, { gateUp, down, gemm });
    mlp.run(of.received, stream, sizes);
    made.push(await read(of.received.output, stream));
    mlp.dispose();
  }
  const [ours, theirs] = made;
  requireClose('Heddle and cuBLAS differ', 'f32', ours!, theirs!, 2 ** -7);
}

function cublasForms(
  cublas: Cublas,
  stream: CudaStream,
  all: Omit<Product, 'rows'>,
  { counts, offsets }: ExpertSizes,
  largest: number,
): Partial<Record<GemmForm, () => void>> {
  const { from, weights, to, inputs, outputs } = all;
  const products = [...counts].map((rows, e) => ({
    ...{ rows, inputs, outputs },
    from: from + 2 * offsets[e]! * inputs,
    weights: weights + 2 * e * inputs * outputs,
    to: to + 2 * offsets[e]! * outputs,
  }));
  const grouped = cublas.canGroup ? cublas.grouped(products) : null;
  grouped?.place(stream);
  return {
    'one by one': () => {
      for (const product of products) cublas.multiply(product, stream);
    },
    strided: () => cublas.strided({ ...all, rows: largest }, counts.length, stream),
    ...(grouped !== null && { grouped: () => grouped.run(stream) }),
  };
}

/** The FLOPs of the rows that routes need, and of all rows that kernels multiply: the rest is padding. */
export type Flops = Readonly<Record<'usefulFlops' | 'paddedFlops', number>>;

/** How many rows a kernel multiplies that takes `unit` rows of an expert at a time. `counts`: the rows of each expert. */
export const paddedRows = (counts: Iterable<number>, unit: number): number =>
  [...counts].reduce((sum, count) => sum + Math.ceil(count / unit) * unit, 0);

/** The FLOPs of both GEMMs of experts with so many rows each; `unit`: rows that a kernel multiplies are a multiple of it. */
export function expertFlops(
  { hidden, inner }: Pick<MoeModel, 'hidden' | 'inner'>,
  counts: Iterable<number>,
  unit: number,
): Flops {
  const all = [...counts];
  const aRow = 6 * hidden * inner;
  return { usefulFlops: aRow * paddedRows(all, 1), paddedFlops: aRow * paddedRows(all, unit) };
}

/** How many are useful, and how many more there are: `12.3` and `+50 %`. */
export const flopsColumns = <Point>(of: (point: Point) => Flops): readonly Column<Point>[] => [
  { head: 'GFLOP', rate: true, cell: (point) => (of(point).usefulFlops / 1e9).toFixed(1) },
  {
    head: 'padded',
    rate: true,
    cell: (point) => {
      const { usefulFlops, paddedFlops } = of(point);
      return usefulFlops === 0 ? '–' : `+${percent(paddedFlops / usefulFlops - 1)}`;
    },
  },
];

const linesOf = ({ rows, gateUp, down }: GemmPoint) => [
  { rows, name: 'gate, up', ...gateUp },
  { rows, name: 'down', ...down },
];
type GemmLine = ReturnType<typeof linesOf>[number];
const ours = ({ times }: GemmLine): number => times.heddle!.median;

interface GemmMembers {
  readonly iterations: number;
  readonly plan: GemmBenchPlan;
  /** cuBLAS's version, or why it is not there. */
  readonly cublas: string;
  readonly rates: Rates | null;
}

export const gemmBench: Bench<GemmBenchPlan, GemmPoint, GemmMembers, GemmLine> = {
  format: 'heddle-bench-gemm/1',
  setting: () => ({ ranks: 1 }),
  members: (plan) => ({ iterations: plan.iterations, plan, cublas: '', rates: null }),
  async measure(rig, plan, tell) {
    const { device } = rig.timing.world;
    const { cublas, said } = openCublas(plan.device === 'cuda' ? (device as CudaDevice) : null);
    const rates = await measureRates(rig.timing);
    tell.members({ cublas: said, rates });
    for (const rows of plan.rows) {
      tell.doing(`${rows} rows`);
      tell.point(await measure({ ...rig, cublas, rates }, plan, rows, tell));
    }
    cublas?.dispose();
  },
  heading({ plan }) {
    const { hidden, inner } = modelFor(plan);
    return `${plan.profile}: hidden ${hidden}, inner ${inner}, ${plan.experts} experts of a rank, ${plan.dtype}`;
  },
  columns: ({ unit, plan }) => [
    { head: 'rows', cell: ({ rows }) => String(rows) },
    { head: 'GEMM', cell: ({ name }) => name },
    ...boundsColumns(({ bounds }: GemmLine) => bounds),
    ...gemmForms.map((form) => ({
      head: `${form} ${unit}`,
      cell: ({ times }: GemmLine) => times[form]?.median.toFixed(1) ?? '–',
    })),
    ...powerColumns(plan.sustained === true, ({ times }: GemmLine) => times.heddle!),
    { head: 'of bound', rate: true, cell: (line) => percent(boundOf(line.bounds) / ours(line)) },
    { head: 'TFLOP/s', rate: true, cell: (line) => (line.usefulFlops / ours(line) / 1e6).toFixed(0) },
    ...flopsColumns(({ usefulFlops, paddedFlops }: GemmLine) => ({
      usefulFlops,
      paddedFlops: paddedFlops.heddle!,
    })),
    {
      head: 'of cuBLAS',
      cell: (line) => {
        const { heddle, ...cublas } = line.times;
        const best = Math.min(...Object.values(cublas).map(({ median }) => median));
        return Number.isFinite(best) ? percent(best / ours(line)) : '–';
      },
    },
  ],
  lines: linesOf,
  foot: ({ unit, rates, cublas }) =>
    `${unit === 'µs' ? `reads ${rates!.reads.toFixed(0)} GB/s; ` : ''}cuBLAS ${cublas}`,
};
