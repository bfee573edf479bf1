/**
 * MLPs: of each row down · activation(gate · x, up · x), with biases where there are some. `ExpertsMlp` is the experts of a plan,
 * `DenseMlp` one expert that takes every row. Either multiplies by Heddle's kernels or by cuBLAS.
 */
import {
  ArgumentError,
  DisposedError,
  requireFlag,
  requireInteger,
  requireObject,
  requireOneOf,
} from '../../base/errors.js';
import { type Device, inRange, requireDevice, requireStream, type Stream } from '../../gpu/index.js';
import { type Dtype, dtypes, expertsOf, limits, scaleBlock } from '../layer/index.js';
import type { Received } from '../rounds/in-flight.js';
import type { MadeRows } from '../rounds/inputs.js';
import { type MemoryPart, type MemoryUse, useOf } from '../rounds/memory.js';
import { scalesName } from '../rounds/options.js';
import { Scratch } from '../rounds/scratch.js';
import { describe, requireTensor, requireVectors, type Tensor } from '../rounds/tensor.js';
import { type ExpertSizes, ExpertsPlan, type Receiving, requireReceiving } from './experts-plan.js';
import { rowsOfWarps } from './kernels/hopper/kernels.js';
import { evenRows, fewTokens, slotsOf } from './kernels/shape.js';
import { cublasProducts } from './mlp-cublas.js';
import { hopperProducts } from './mlp-hopper.js';
import { mmaProducts } from './mlp-mma.js';
import { isPacked, type MlpWeights, type Products, type ProductsOf, requireWeights } from './products.js';

export const gemms = ['heddle', 'cublas'] as const;
export type Gemm = (typeof gemms)[number];

/** Instructions by which Heddle's kernels multiply: Hopper's, of warp groups; or those of warps, which every GPU has. */
const instructionNames = ['wgmma', 'mma.sync'] as const;
export type Instructions = (typeof instructionNames)[number];

/** Heddle's products: by wgmma where it fits, unless others are asked for. */
async function heddlesProducts(of: ProductsOf, wanted: Instructions | undefined): Promise<Products> {
  const { device, weights } = of;
  // Of few rows the simulated machine multiplies 64 by wgmma, which takes it eight times as long.
  const isSlow = device.kind === 'sim' && weights.gateUp.dtype !== 'e4m3';
  // An invariant layer has one form, whatever comes.
  const areFew = !of.invariant && (of.routed?.evenRows ?? of.rows) <= rowsOfWarps;
  const warps = isSlow || (isPacked(weights) && areFew);
  const hopper = (warps && wanted === undefined) || wanted === 'mma.sync' ? null : await hopperProducts(of);
  if (hopper === null && wanted === 'wgmma') {
    const must =
      "'mma.sync' here: 'wgmma' needs a Hopper GPU, and rows and weights that are both bf16 or both e4m3, or rows of bf16 and MXFP4";
    throw new ArgumentError('instructions', wanted, must);
  }
  return hopper ?? mmaProducts(of);
}

/** Products of a rank without experts, to which no row comes. */
const noProducts: Products = {
  ...{ instructions: 'mma.sync', rowUnit: 1, sorted: null },
  take() {},
  widen() {},
  narrow() {},
};

/** The products of an MLP, and the rows of its own that they work on. */
async function workOf(
  { gemm = 'heddle', instructions, scratch, invariant = false }: MultiplyingOptions,
  of: Omit<ProductsOf, 'own' | 'freed' | 'made' | 'invariant'>,
) {
  requireOneOf('gemm', gemm, gemms);
  if (requireFlag('invariant', invariant) && gemm === 'cublas')
    throw new ArgumentError('gemm', gemm, "'heddle' with invariant: cuBLAS chooses the order of its sums");
  if (scratch !== undefined && !(scratch instanceof Scratch))
    throw new ArgumentError('scratch', scratch, 'a Scratch');
  if (instructions !== undefined) requireOneOf('instructions', instructions, instructionNames);
  const frees: (() => void)[] = [];
  const freed = (free: () => void) => void frees.push(free);
  const memory = scratch ?? new Scratch(of.device);
  if (memory !== scratch) freed(() => memory.dispose());
  const allocate = memory.user();
  const parts: MemoryPart[] = [];
  const own = (columns: number, purpose: string, dtype: Dtype = 'bf16'): Tensor => {
    const tensor = allocate(dtype, [of.rows, columns], purpose);
    parts.push({ purpose, section: null, bytes: tensor.bytes });
    return tensor;
  };
  const free = (): void => {
    for (const one of frees) one();
  };
  try {
    const made = of.routed === null ? null : own(of.hidden, 'rows that experts made');
    const all = { ...of, own, freed, made, invariant };
    const products =
      of.routed?.experts === 0
        ? noProducts
        : gemm === 'cublas'
          ? await cublasProducts(all)
          : await heddlesProducts(all, instructions);
    return { products, made, memory: useOf(parts), free };
  } catch (error) {
    free();
    throw error;
  }
}

type Work = Awaited<ReturnType<typeof workOf>>;

interface MultiplyingOptions {
  /** Default 'heddle'. */
  readonly gemm?: Gemm;
  /** Instructions of Heddle's kernels. Default: 'wgmma' where the GPU and the sizes allow it, and more than a few rows meet MXFP4; simulated, only where weights are e4m3. */
  readonly instructions?: Instructions;
  /** The memory of rows that are made on the way: that of MLPs which never run at the same time. Default: its own. */
  readonly scratch?: Scratch;
  /**
   * A row's bits depend on nothing but the row and the weights: sums of few rows are not cut into parts either. Default false. Not with
   * cuBLAS.
   */
  readonly invariant?: boolean;
}

export interface ExpertsMlpOptions<P extends string = string> extends MlpWeights, MultiplyingOptions {
  /** The payload that experts take, bf16 rows of the output's length. Default 'x'. */
  readonly payload?: P;
  /**
   * The payload of scales, f32: then rows are e4m3, with a scale for every 128 elements. Default: those of a payload that dispatch rounds,
   * `xScales` of `x`.
   */
  readonly scales?: P;
}

let insideOf: (mlp: ExpertsMlp) => { readonly products: Products; readonly rows: ExpertsRows };

/** The inside of the experts, for measuring its parts. */
export const mlpParts = (mlp: ExpertsMlp) => insideOf(mlp);

/**
 * The experts of a plan, and of a slot's rows the weighted sum. Heddle's kernels gather rows from where dispatch left them, so
 * nothing is expanded, and only rows that a route needs are read.
 */
export class ExpertsMlp {
  static {
    insideOf = (mlp) => ({ products: mlp.#work.products, rows: mlp.#rows });
  }

  /** The buffers between and behind the GEMMs: rows for all of the plan's. */
  readonly memory: MemoryUse;
  readonly gemm: Gemm;
  /** Where combine weighs, the rows that it takes, those of the last run; else null. */
  readonly made: MadeRows | null;
  readonly #plan: ExpertsPlan;
  readonly #work: Work;
  readonly #rows: ExpertsRows;
  #disposed = false;

  private constructor(gemm: Gemm, plan: ExpertsPlan, work: Work, rows: ExpertsRows) {
    this.made = plan.planned.weights === null ? null : plan.made(rows.made);
    this.memory = work.memory;
    this.gemm = gemm;
    this.#plan = plan;
    this.#work = work;
    this.#rows = rows;
  }

  /** Allocates the rows between and compiles the kernels, for this rank alone. `plan` is one of `of`. */
  static async create<P extends string>(
    of: Receiving<P>,
    plan: ExpertsPlan<P>,
    options: ExpertsMlpOptions<NoInfer<P>>,
  ): Promise<ExpertsMlp> {
    requireReceiving(of);
    if (!(plan instanceof ExpertsPlan))
      throw new ArgumentError('plan', plan, 'what ExpertsPlan.create gives');
    requireObject('options', options, 'weights: { gateUp, down }');
    const { payload = 'x', gemm = 'heddle' } = options;
    requireOneOf('gemm', gemm, gemms);
    const { world, shape: layer, received } = of;
    const { topK, output } = layer;
    const { hidden, dtype } = output;
    if (dtype !== 'bf16') throw new ArgumentError('output.dtype', dtype, "'bf16', what experts make");
    if (layer.payloads.some(({ name, rounded }) => name === payload && rounded === 'mxfp8'))
      throw new ArgumentError('payload', payload, 'rows of bf16 or fp8: these experts take no mxfp8');
    if (options.scales !== undefined && gemm === 'cublas')
      throw new ArgumentError('scales', options.scales, "left out: with gemm 'cublas' rows are bf16");
    const payloads: Readonly<Partial<Record<string, Tensor>>> = received.payloads;
    const beside = scalesName(payload);
    const isScaled = gemm === 'heddle' && payloads[payload]?.dtype === 'e4m3' && beside in payloads;
    const scaledBy = options.scales ?? (isScaled ? beside : undefined);
    const arrived = (argument: string, name: string, length: number, dtype: Dtype): Tensor => {
      const from = payloads[name];
      const bytes = slotsOf(layer) * length * dtypes[dtype].size;
      // Rows of u8 are opaque: the caller says what they are.
      if (from?.bytes === bytes && (from.dtype === dtype || from.dtype === 'u8')) return from;
      throw new ArgumentError(argument, from ? describe(from) : name, `rows of ${length} ${dtype}`);
    };
    const x = arrived('payload', payload, hidden, scaledBy === undefined ? 'bf16' : 'e4m3');
    const scales = scaledBy === undefined ? null : arrived('scales', scaledBy, hidden / scaleBlock, 'f32');
    const experts = expertsOf(layer, world.rank).count;
    const inner = requireWeights('', options, experts, hidden);
    const work = await workOf(options, {
      ...{ device: world.device, hidden, inner, rows: plan.rows, sms: null, weights: options },
      routed: { plan, experts, topK, evenRows: evenRows(layer), fewTokens: fewTokens(layer), scales },
    });
    return new ExpertsMlp(gemm, plan, work, { payload, scales: scaledBy, x, made: work.made! });
  }

  /**
   * From the rows of the last plan of `received` to `received.output`, or to `made`. Between the plan and combine. `came`: what the
   * plan's `sizes` gave, for cuBLAS; for Heddle's kernels how many tokens this rank brought, so that few take what few would in a smaller layer.
   */
  run(received: Received, stream: Stream, came?: ExpertSizes | number): void {
    if (this.#disposed) throw new DisposedError('this ExpertsMlp');
    this.#plan.requirePlanned('run', received, stream);
    const { products } = this.#work;
    const { payload, scales, x, made } = this.#rows;
    products.take(came);
    const { sorted } = products;
    inRange('experts', stream, () => {
      if (sorted !== null) {
        const to = { [payload]: sorted.rows, ...(scales !== undefined && { [scales]: sorted.scales! }) };
        this.#plan.expand(received, to, stream);
      }
      products.widen(sorted?.rows ?? x, stream);
      products.narrow(made, stream);
      if (this.made === null) this.#plan.reduce(received, made, stream);
    });
  }

  /** Frees what it allocated. Nothing enqueued may still use it. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#work.free();
  }
}

interface ExpertsRows {
  readonly payload: string;
  /** The payload of scales, where rows have them. */
  readonly scales: string | undefined;
  readonly x: Tensor;
  readonly made: Tensor;
}

/** Weights without a dimension of experts: [2 · inner, hidden] and [hidden, inner]. */
export interface DenseMlpOptions extends MlpWeights, MultiplyingOptions {
  /** The most rows of a run. */
  readonly maxTokens: number;
  /**
   * The most multiprocessors that a run takes: those that a round beside it leaves. Default: all. cuBLAS takes it as advice.
   */
  readonly sms?: number;
}

/** One expert that takes every token, such as a shared one: nothing is routed, planned or summed. */
export class DenseMlp {
  /** The buffers between the two GEMMs and, with weights of e4m3, before them. */
  readonly memory: MemoryUse;
  readonly #hidden: number;
  readonly #maxTokens: number;
  readonly #work: Work;
  #disposed = false;

  private constructor(hidden: number, maxTokens: number, work: Work) {
    this.memory = work.memory;
    this.#hidden = hidden;
    this.#maxTokens = maxTokens;
    this.#work = work;
  }

  static async create(device: Device, options: DenseMlpOptions): Promise<DenseMlp> {
    requireDevice('device', device);
    requireObject('options', options, '{ gateUp, down, maxTokens }');
    const { gateUp, maxTokens } = options;
    requireInteger('maxTokens', maxTokens, 1, limits.maxTokens);
    const sms = options.sms === undefined ? null : requireInteger('sms', options.sms, 1, 1024);
    requireTensor('gateUp', gateUp);
    const hidden = (gateUp.shape.at(-1) ?? 0) * (isPacked(options) ? 2 : 1);
    const inner = requireWeights('', options, null, hidden);
    const of = { device, hidden, inner, rows: maxTokens, sms, weights: options, routed: null };
    return new DenseMlp(hidden, maxTokens, await workOf(options, of));
  }

  /** The first `tokens` rows of `out` from those of `x`, [rows, hidden] of bf16 each. With weights of e4m3 rows are rounded before. */
  run(x: Tensor, out: Tensor, tokens: number, stream: Stream): void {
    requireStream('stream', stream);
    if (this.#disposed) throw new DisposedError('this DenseMlp');
    requireInteger('tokens', tokens, 0, this.#maxTokens);
    requireVectors('x', x, ['bf16'], [[tokens, Infinity], this.#hidden]);
    requireVectors('out', out, ['bf16'], [[tokens, Infinity], this.#hidden]);
    const { products } = this.#work;
    products.take(tokens);
    products.widen(x, stream);
    products.narrow(out, stream);
  }

  /** Frees the rows between. Nothing enqueued may still use them. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#work.free();
  }
}
