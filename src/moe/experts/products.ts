/** What an MLP consists of, whoever multiplies: its weights, and two products with SwiGLU between them. */
import { ArgumentError } from '../../base/errors.js';
import { Cublas, CudaDevice, type CudaStream, type Product } from '../../gpu/cuda/index.js';
import { callSite, type Device, type Stream } from '../../gpu/index.js';
import { emptyTensor, requireTensor, requireVectors, type Tensor } from '../rounds/tensor.js';
import type { ExpertSizes, ExpertsPlan } from './experts-plan.js';
import { mlpKernels } from './kernels/gemm/kernels.js';
import { swigluKernel } from './kernels/gemm/swiglu.js';

/** bf16, on the device; they stay the caller's. `experts` leads both shapes, except where there is one expert only. */
export interface MlpWeights {
  /** [experts, 2 · inner, hidden]: the gates' rows, then those of what they scale. */
  readonly gateUp: Tensor;
  /** [experts, hidden, inner] */
  readonly down: Tensor;
}

/** What `hidden` and `inner` are multiples of: a tile of the kernels takes so many elements. */
export const mlpUnit = 64;

/**
 * Requires weights of so many experts (null: of the one that takes all rows); returns `inner`, which is that of `gateUp` unless it
 * is given. `within` is what an error writes before the name.
 */
export function requireWeights(
  within: string,
  { gateUp, down }: MlpWeights,
  experts: number | null,
  hidden: number,
  given?: number,
): number {
  const lead = experts === null ? [] : [experts];
  requireTensor(`${within}gateUp`, gateUp);
  const inner = given ?? Math.floor((gateUp.shape.at(-2) ?? 0) / 2);
  requireVectors(`${within}gateUp`, gateUp, ['bf16'], [...lead, 2 * inner, hidden]);
  // Where the two differ in `inner`, either may be wrong.
  const why = given === undefined ? `because of ${2 * inner} rows of gateUp` : '';
  requireVectors(`${within}down`, down, ['bf16'], [...lead, hidden, inner], why);
  for (const [name, length] of Object.entries({ hidden, inner }))
    if (length === 0 || length % mlpUnit !== 0)
      throw new ArgumentError(name, length, `a multiple of ${mlpUnit}, what a tile of the kernels takes`);
  return inner;
}

/** The experts whose rows a plan sorts. */
export interface Routed {
  readonly plan: ExpertsPlan;
  readonly experts: number;
  readonly topK: number;
  /** Rows of each expert if routes were even. */
  readonly evenRows: number;
  /** Of rows that come in as e4m3; null where they are bf16. */
  readonly scales: Tensor | null;
}

/** What the products are made for. */
export interface ProductsOf {
  readonly device: Device;
  readonly hidden: number;
  readonly inner: number;
  /** The most rows. */
  readonly rows: number;
  /** The most multiprocessors that a launch takes; null for all. */
  readonly sms: number | null;
  readonly weights: MlpWeights;
  /** Null where one expert has all rows. */
  readonly routed: Routed | null;
  /** Memory for as many rows. */
  own(columns: number, purpose: string): Tensor;
}

export interface Products {
  /** Whether rows come in by way of the plan's routes, or in its order. */
  readonly gathers: boolean;
  /**
   * Takes how many rows come: a number where one expert has all, or what the plan's `sizes` gave. Nothing is enqueued before, so
   * that a refusal has no effect.
   */
  take(rows: number | ExpertSizes | undefined): void;
  /** Gate, up and SwiGLU. */
  widen(from: Tensor, stream: Stream): void;
  /** Down, of as many rows. */
  narrow(to: Tensor, stream: Stream): void;
  /** Frees what is not a tensor. */
  dispose(): void;
}

/** An MLP by Heddle's kernels: two launches, rows gathered from where dispatch left them. */
export async function heddleProducts(of: ProductsOf): Promise<Products> {
  const { device, hidden, inner, rows, sms, weights, routed, own } = of;
  const { kind, multiprocessors } = device;
  const kernels = mlpKernels({
    ...{ hidden, inner, kind, multiprocessors },
    of: routed === null ? 'all' : 'plan',
    e4m3: routed !== null && routed.scales !== null,
    experts: routed?.experts ?? 1,
    topK: routed?.topK ?? 1,
    rows: routed?.evenRows ?? rows,
  });
  // One that takes all rows may lie before the receive of a split phase, which begins early, and then finds only what came
  // before a launch that is not programmatic.
  const programmatic = routed !== null;
  const load = ({ kernel, blocks, resident, threads }: (typeof kernels)['down']) => {
    const grid = sms === null ? blocks : Math.min(blocks, sms * resident);
    return callSite(device, kernel, { grid, block: threads, programmatic, rank: 0 });
  };
  const [gateUp, down] = await Promise.all([load(kernels.gateUp), load(kernels.down)]);
  const between = own(inner, 'inner rows');
  for (const [{ set }, matrix] of [[gateUp, weights.gateUp] as const, [down, weights.down] as const]) {
    // Parameters need memory also where the kernels are made for no plan, or for rows without scales.
    const { counts, offsets, routes } = routed?.plan.planned ?? {};
    set.counts((counts ?? matrix).data);
    set.offsets((offsets ?? matrix).data);
    set.routes((routes ?? matrix).data);
    set.scales((routed?.scales ?? matrix).data);
    set.weights(matrix.data);
  }
  gateUp.set.to(between.data);
  down.set.from(between.data);
  return {
    gathers: true,
    take(count) {
      for (const { set } of [gateUp, down]) set.count(typeof count === 'number' ? count : 0);
    },
    widen(from, stream) {
      gateUp.set.from(from.data);
      gateUp.launch(stream);
    },
    narrow(to, stream) {
      down.set.to(to.data);
      down.launch(stream);
    },
    dispose() {},
  };
}

/**
 * An MLP by cuBLAS: rows in the order of experts are multiplied expert by expert, and SwiGLU is a launch between. What
 * cuBLAS is asked for the host must know: the sizes of the experts, or that all have as much room.
 */
const threads = 256;

type Multiply = (all: Omit<Product, 'rows'>, stream: CudaStream) => void;

export async function cublasProducts(of: ProductsOf): Promise<Products> {
  const { device, hidden, inner, rows, sms, weights, routed, own } = of;
  if (!(device instanceof CudaDevice))
    throw new ArgumentError('gemm', 'cublas', `'heddle' on a ${device.description}`);
  const cublas = new Cublas(device, sms);
  const both = own(2 * inner, 'gates and what they scale');
  const between = own(inner, 'inner rows');
  const launch = { grid: (sms ?? device.multiprocessors) * 8, block: threads, rank: 0 };
  const swiglu = await callSite(device, swigluKernel(inner, threads, routed === null ? 'all' : 'plan'), {
    ...launch,
    programmatic: routed !== null,
  });
  swiglu.set.total((routed?.plan.planned.total ?? both).data);
  swiglu.set.count(0);
  swiglu.set.from(both.data);
  swiglu.set.to(between.data);
  const up = { weights: weights.gateUp.data, to: both.data, inputs: hidden, outputs: 2 * inner };
  const back = { from: between.data, weights: weights.down.data, inputs: inner, outputs: hidden };
  let multiply: Multiply = () => {};
  const products: Products = {
    gathers: false,
    take(count) {
      if (typeof count !== 'number') multiply = byExpert(cublas, routed!, count);
      else {
        multiply = (all, stream) => cublas.multiply({ ...all, rows: count }, stream);
        swiglu.set.count(count);
      }
    },
    widen(from, stream) {
      multiply({ ...up, from: from.data }, stream as CudaStream);
      swiglu.launch(stream);
    },
    narrow(to, stream) {
      multiply({ ...back, to: to.data }, stream as CudaStream);
    },
    dispose: () => cublas.dispose(),
  };
  // cuBLAS loads a kernel at its first use, and waits for the GPU to do so: within a round that wait would have no end where
  // the GPU waits for a rank of this same thread. A host that brings sizes has waited for the GPU.
  if (routed?.plan.form !== 'contiguous') {
    const [example, stream] = [emptyTensor(device, 'bf16', [rows, hidden]), device.createStream()];
    products.take(routed === null ? rows : undefined);
    multiply({ ...up, from: example.data }, stream);
    multiply({ ...back, to: example.data }, stream);
    await stream.synchronize();
    stream.dispose();
    example.free();
  }
  return products;
}

/** Multiplies the rows of all experts, as the host knows how many there are. */
function byExpert(
  cublas: Cublas,
  { plan, experts }: Routed,
  sizes: Parameters<Products['take']>[0],
): Multiply {
  if (typeof sizes !== 'object') {
    if (plan.form === 'masked')
      return (all, stream) => cublas.strided({ ...all, rows: plan.rows / experts }, experts, stream);
    const mustBe =
      "what plan.sizes(stream) gave, for cuBLAS takes sizes from the host (a plan of form 'masked' needs none)";
    throw new ArgumentError('sizes', sizes, mustBe);
  }
  const { counts, offsets } = sizes;
  if (counts.length !== experts || offsets.length <= experts)
    throw new ArgumentError('sizes', `of ${counts.length} experts`, `those of ${experts}`);
  return ({ from, weights, to, inputs, outputs }, stream) => {
    for (const [e, rows] of counts.entries())
      cublas.multiply(
        {
          ...{ rows, inputs, outputs },
          from: from + 2 * offsets[e]! * inputs,
          weights: weights + 2 * e * inputs * outputs,
          to: to + 2 * offsets[e]! * outputs,
        },
        stream,
      );
  };
}
