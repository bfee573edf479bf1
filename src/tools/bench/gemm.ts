/**
 * The experts' GEMMs beside every form that cuBLAS has of them, at one number of rows an expert or several. It is one rank's
 * own work. Heddle's gather their rows by the plan, the first with SwiGLU; cuBLAS finds its rows in order, leaves SwiGLU to
 * others, and knows the sizes of experts for free: so its times are lower bounds of what a layer would pay for it.
 */

import { HeddleError, UnavailableError } from '../../base/errors.js';
import { Cublas, type CudaDevice, type CudaStream, type Product } from '../../gpu/cuda/index.js';
import { callSite } from '../../gpu/index.js';
import { gemmTile, mlpKernels, rowsMultiplied } from '../../moe/experts/index.js';
import {
  bytesOf,
  type ExpertSizes,
  ExpertsMlp,
  ExpertsPlan,
  emptyTensor,
  type OwnedTensor,
  type Receiving,
  read,
} from '../../moe/index.js';
import { type Layer, profile, reference } from '../../moe/layer/index.js';
import { World } from '../../net/world/index.js';
import { compareClosely, makeAllRoutes } from '../../verify/testing/index.js';
import { flopsCells, paddedRows } from './flops.js';
import { Noise } from './inputs.js';
import { inSmall } from './layer-data.js';
import { provenance, requireGpus } from './machine.js';
import type { Machine } from './report.js';
import { gigabytes, type Spread, spread, type Unit, unitOf } from './statistics.js';
import { Timing, TimingCrew, timingOf } from './timing.js';

interface GemmBenchPlan {
  readonly profile: string;
  /** Of the rank. */
  readonly experts: number;
  /** Rows an expert, on average. */
  readonly rows: readonly number[];
  /** Every expert gets as many; or routes are drawn. */
  readonly routes: 'even' | 'uniform';
  readonly device: 'cuda' | 'sim';
  readonly iterations: number;
}

const gemmForms = ['heddle', 'one by one', 'strided', 'grouped'] as const;
type GemmForm = (typeof gemmForms)[number];

/** One of the two GEMMs. */
interface GemmTimes {
  /** Of the weights of experts that have rows, each read once. */
  readonly weightBytes: number;
  /** What such a read takes at the bandwidth of a device copy, in µs. */
  readonly bound: number;
  /** 2 · rows · inputs · outputs; and with the rows that forms multiply besides, because of their tiles or padding. */
  readonly usefulFlops: number;
  readonly paddedFlops: Readonly<Partial<Record<GemmForm, number>>>;
  readonly times: Readonly<Partial<Record<GemmForm, Spread>>>;
}

interface GemmPoint {
  readonly rows: number;
  readonly counts: readonly number[];
  readonly gateUp: GemmTimes;
  readonly down: GemmTimes;
}

export interface GemmReport {
  readonly format: 'heddle-bench-gemm/1';
  readonly unit: Unit;
  readonly date: string;
  readonly version: string;
  readonly commit: string | null;
  readonly machine: Machine;
  /** cuBLAS's version, or why it is not there. */
  readonly cublas: string;
  /** Bytes that a device copy reads and writes in a second, in GB. */
  readonly copyBandwidth: number;
  readonly plan: GemmBenchPlan;
  readonly points: readonly GemmPoint[];
}

/** @throws UnavailableError without a GPU, HeddleError where results differ: figures would be worth nothing. */
export async function benchGemm(
  plan: GemmBenchPlan,
  on: (point: GemmPoint) => void = () => {},
): Promise<GemmReport> {
  const real = plan.device === 'cuda';
  if (real) requireGpus(1);
  const points: GemmPoint[] = [];
  let library = 'not on a simulated GPU';
  let copyBandwidth = 0;
  await World.local({ ranks: 1, device: plan.device }, async (world) => {
    const { device } = world;
    const timing = await Timing.create(world, new TimingCrew(), timingOf(device, plan.iterations));
    const noise = Noise.create(device, timing.stream, 1);
    const { cublas, said } = openCublas(real ? (device as CudaDevice) : null);
    library = said;
    copyBandwidth = await measureCopy(timing, real ? 2 ** 30 : 2 ** 12);
    for (const rows of plan.rows) {
      const point = await measure({ timing, noise, cublas, copyBandwidth }, plan, rows);
      points.push(point);
      on(point);
    }
    cublas?.dispose();
    noise.free();
    await timing.dispose();
  });
  return {
    format: 'heddle-bench-gemm/1',
    unit: unitOf(plan.device),
    ...(await provenance(plan.device, 1)),
    ...{ cublas: library, copyBandwidth, plan, points },
  };
}

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

async function measureCopy(timing: Timing, bytes: number): Promise<number> {
  const scratch = timing.world.device.allocate(2 * bytes, 'what is copied');
  const { address } = scratch;
  const graph = await timing.capture(4, [() => timing.stream.copy(address + bytes, address, bytes)]);
  const times = await timing.replay(graph, 4);
  graph.dispose();
  scratch.free();
  return gigabytes(2 * bytes, spread(times).median);
}

interface Tools {
  readonly timing: Timing;
  readonly noise: Noise;
  readonly cublas: Cublas | null;
  readonly copyBandwidth: number;
}

async function measure(tools: Tools, plan: GemmBenchPlan, rows: number): Promise<GemmPoint> {
  const { timing, noise, cublas } = tools;
  const { stream, world } = timing;
  const { device } = world;
  const model = profile(plan.profile);
  const { hidden, inner, topK: most } = device.kind === 'sim' ? inSmall(model) : model;
  const { experts } = plan;
  const topK = Math.min(most, experts);
  const maxTokens = Math.max(1, Math.round((experts * rows) / topK));
  const layer: Layer = {
    ...{ ranks: 1, experts, topK, maxTokens, weights: false, counts: false },
    payloads: [{ name: 'x', rowBytes: 2 * hidden }],
    output: { dtype: 'bf16', hidden },
  };
  const owned: OwnedTensor[] = [];
  const some = (shape: readonly number[]): OwnedTensor => {
    const tensor = emptyTensor(device, 'bf16', shape);
    noise.fill(stream, tensor.data, tensor.bytes);
    owned.push(tensor);
    return tensor;
  };
  const ids = emptyTensor(device, 'i32', [1, maxTokens, topK]);
  owned.push(ids);
  stream.copyIn(ids.data, bytesOf(idsOf(layer, plan.routes)));
  const received = {
    ...{ experts: ids, weights: null, counts: null, payloads: { x: some([1, maxTokens, hidden]) } },
    output: some([1, maxTokens, hidden]),
  };
  const of: Receiving = { world: { device, rank: 0 }, shape: layer, received };
  const weights = { gateUp: some([experts, 2 * inner, hidden]), down: some([experts, hidden, inner]) };
  const planned = await ExpertsPlan.create(of);
  planned.plan(received, stream);
  const sizes = await planned.sizes(stream);
  if (cublas !== null) await verify(of, planned, weights, sizes, timing);

  const largest = sizes.counts.reduce((a, b) => Math.max(a, b), 0);
  const room = Math.max(planned.rows, experts * largest);
  const sorted = { x: some([room, hidden]), both: some([room, 2 * inner]), made: some([room, hidden]) };
  const between = some([room, inner]);
  const shape = { experts, hidden, inner, topK, rows };
  const { kind, multiprocessors } = device;
  const kernels = mlpKernels({ of: 'plan', e4m3: false, ...shape, kind, multiprocessors });
  const times = async (
    which: 'gateUp' | 'down',
    addresses: Readonly<Record<'gathered' | 'from' | 'to' | 'library', number>>,
    inputs: number,
    outputs: number,
  ): Promise<GemmTimes> => {
    const { kernel, blocks, threads } = kernels[which];
    const site = await callSite(device, kernel, {
      grid: blocks,
      block: threads,
      programmatic: true,
      rank: 0,
    });
    const { counts, offsets, routes } = planned.planned;
    site.set.counts(counts.data);
    site.set.offsets(offsets.data);
    site.set.routes(routes.data);
    site.set.count(0);
    site.set.scales(addresses.gathered); // nobody looks
    site.set.from(addresses.gathered);
    site.set.weights(weights[which].data);
    site.set.to(addresses.to);
    const all = { ...addresses, to: addresses.library, weights: weights[which].data, inputs, outputs };
    const forms: Partial<Record<GemmForm, () => void>> = {
      heddle: () => site.launch(stream),
      ...(cublas !== null && cublasForms(cublas, stream as CudaStream, all, sizes, largest)),
    };
    const gated = which === 'gateUp';
    const tile = gemmTile(rows, { outputs: gated ? inner : hidden, gated, e4m3: false }, kind);
    const padded = rowsOfForms(sizes.counts, largest, rowsMultiplied(tile));
    const flops = (count: number): number => 2 * count * inputs * outputs;
    const used = sizes.counts.filter((count) => count > 0).length;
    const weightBytes = 2 * used * inputs * outputs;
    return {
      weightBytes,
      bound: weightBytes / tools.copyBandwidth / 1000,
      usefulFlops: flops(sizes.total),
      paddedFlops: Object.fromEntries(gemmForms.map((form) => [form, flops(padded[form])])),
      times: await timeAll(timing, forms),
    };
  };
  const gateUp = await times(
    'gateUp',
    { gathered: received.payloads.x.data, from: sorted.x.data, to: between.data, library: sorted.both.data },
    hidden,
    2 * inner,
  );
  const down = await times(
    'down',
    { gathered: between.data, from: between.data, to: sorted.made.data, library: sorted.made.data },
    inner,
    hidden,
  );
  planned.dispose();
  for (const tensor of owned) tensor.free();
  return { rows, counts: [...sizes.counts], gateUp, down };
}

/** Expert ids: of each as many, or drawn. */
function idsOf(layer: Layer, routes: GemmBenchPlan['routes']): Int32Array {
  const { experts, topK, maxTokens } = layer;
  if (routes === 'even') return Int32Array.from({ length: maxTokens * topK }, (_, i) => i % experts);
  const sources = makeAllRoutes(layer, maxTokens, 1).map((routes) => ({ ...routes, payloads: {} }));
  return reference.dispatch({ ...layer, payloads: [] }, sources, 0).experts;
}

/** Heddle's experts and cuBLAS's must agree before either is timed. */
async function verify(
  of: Receiving,
  plan: ExpertsPlan,
  weights: { readonly gateUp: OwnedTensor; readonly down: OwnedTensor },
  sizes: ExpertSizes,
  { stream }: Timing,
): Promise<void> {
  const made = [];
  for (const gemm of ['heddle', 'cublas'] as const) {
    const mlp = await ExpertsMlp.create(of, plan, { ...weights, gemm });
    mlp.run(of.received, stream, sizes);
    made.push(await read(of.received.output, stream));
    mlp.dispose();
  }
  const [ours, theirs] = made;
  const { different, first } = compareClosely(
    'output',
    'f32',
    ours!,
    theirs!,
    of.shape.output.hidden,
    2 ** -7,
  );
  if (different === 0) return;
  throw new HeddleError(
    'HEDDLE_WRONG_RESULT',
    `Heddle and cuBLAS differ: ${first} (${different} values of ${ours!.length}); nothing that this run measured counts`,
  );
}

/** The forms of cuBLAS, rows in order of experts. */
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

/** Rows that a form multiplies. */
const rowsOfForms = (
  counts: Uint32Array,
  largest: number,
  unit: number,
): Readonly<Record<GemmForm, number>> => {
  const exact = paddedRows(counts, 1);
  return {
    heddle: paddedRows(counts, unit),
    'one by one': exact,
    strided: counts.length * largest,
    grouped: exact,
  };
};

/** Launches back to back, in a graph where it can be captured: the grouped form reads arrays of the host at each call. */
async function timeAll(
  timing: Timing,
  forms: Readonly<Partial<Record<GemmForm, () => void>>>,
): Promise<Partial<Record<GemmForm, Spread>>> {
  const rounds = 4;
  const times: Partial<Record<GemmForm, Spread>> = {};
  for (const form of gemmForms) {
    const enqueue = forms[form];
    if (enqueue === undefined) continue;
    if (form === 'grouped') {
      const all = () => {
        for (let n = 0; n < rounds; n++) enqueue();
      };
      times[form] = spread(await timing.timed(rounds, all));
    } else {
      const graph = await timing.capture(rounds, [enqueue]);
      times[form] = spread(await timing.replay(graph, rounds));
      graph.dispose();
    }
  }
  return times;
}

const line = (cells: readonly string[]): string =>
  [cells[0]!.padStart(8), ...cells.slice(1).map((cell) => cell.padStart(14))].join('');

/** On a simulated GPU no bandwidth bounds anything, and steps are no rate. */
export const gemmHead = (unit: Unit): string =>
  line([
    'rows',
    'GEMM',
    ...(unit === 'steps' ? [] : ['bound µs']),
    ...gemmForms.map((form) => `${form} ${unit}`),
    ...(unit === 'steps' ? [] : ['of bound', 'TFLOP/s']),
    'GFLOP',
    'padded',
    'of cuBLAS',
  ]);

export function gemmLines(unit: Unit, { rows, gateUp, down }: GemmPoint): string {
  const one = (name: string, { bound, times, usefulFlops, paddedFlops }: GemmTimes): string => {
    const ours = times.heddle!.median;
    const theirs = gemmForms.filter((form) => form !== 'heddle').map((form) => times[form]?.median);
    const best = Math.min(...theirs.filter((time) => time !== undefined));
    return line([
      ...[String(rows), name],
      ...(unit === 'steps' ? [] : [bound.toFixed(1)]),
      ...gemmForms.map((form) => times[form]?.median.toFixed(1) ?? '–'),
      ...(unit === 'steps'
        ? []
        : [`${((100 * bound) / ours).toFixed(0)} %`, (usefulFlops / ours / 1e6).toFixed(0)]),
      ...flopsCells(usefulFlops, paddedFlops.heddle!),
      Number.isFinite(best) ? `${((100 * best) / ours).toFixed(0)} %` : '–',
    ]);
  };
  return `${one('gate, up', gateUp)}\n${one('down', down)}`;
}
