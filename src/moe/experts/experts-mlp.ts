/**
 * The experts themselves: for each row of a plan down · (silu(gate · x) * (up · x)), and of a slot's rows the weighted
 * sum. Heddle's kernels gather rows from where dispatch left them, so nothing is expanded, and only rows that a route needs
 * are read.
 */

import { ArgumentError, DisposedError, requireObject, requireOneOf } from '../../base/errors.js';
import type { Stream } from '../../gpu/index.js';
import { type Dtype, dtypes, expertsOf, scaleBlock } from '../layer/index.js';
import { type MemoryUse, useOf } from '../rounds/memory.js';
import { describe, type Tensor } from '../rounds/tensor.js';
import type { Received } from '../rounds/track.js';
import { type ExpertSizes, ExpertsPlan, type Receiving } from './experts-plan.js';
import { evenRows, slotsOf } from './kernels/shape.js';
import { cublasRun } from './mlp-cublas.js';
import { heddleRun } from './mlp-heddle.js';
import type { MlpRun } from './mlp-run.js';
import { type MlpWeights, requireWeights } from './mlp-weights.js';

/** Who multiplies. */
export const gemms = ['heddle', 'cublas'] as const;
export type Gemm = (typeof gemms)[number];

export interface ExpertsMlpOptions<P extends string = string> extends MlpWeights {
  /** The payload that experts take, bf16 rows of the output's length. Default 'x'. */
  readonly payload?: P;
  /** The payload of scales, f32: then rows are e4m3, with a scale for every 128 elements. */
  readonly scales?: P;
  /** Default 'heddle'. */
  readonly gemm?: Gemm;
}

export class ExpertsMlp {
  /** What lies between and behind the GEMMs: rows for all of the plan's. */
  readonly memory: MemoryUse;
  readonly gemm: Gemm;
  readonly #plan: ExpertsPlan;
  readonly #run: MlpRun;
  #disposed = false;

  private constructor(gemm: Gemm, plan: ExpertsPlan, run: MlpRun) {
    this.gemm = gemm;
    this.#plan = plan;
    this.#run = run;
    const parts = run.owned.map(({ tensor, purpose }) => ({ purpose, section: null, bytes: tensor.bytes }));
    this.memory = useOf(parts);
  }

  /** Allocates the rows between and compiles the kernels, for this rank alone. `plan` is one of `of`. */
  static async create<P extends string>(
    of: Receiving<P>,
    plan: ExpertsPlan<P>,
    options: ExpertsMlpOptions<NoInfer<P>>,
  ): Promise<ExpertsMlp> {
    requireObject('ep', of, 'an ExpertParallel');
    if (!(plan instanceof ExpertsPlan))
      throw new ArgumentError('plan', plan, 'what ExpertsPlan.create gives');
    requireObject('options', options, 'weights: { gateUp, down }');
    const { payload = 'x', scales, gemm = 'heddle' } = options;
    requireOneOf('gemm', gemm, gemms);
    const { world, shape: layer, received } = of;
    for (const [name, part] of Object.entries({ world, shape: layer, received }))
      requireObject(`ep.${name}`, part, 'that of an ExpertParallel');
    const { topK, output } = layer;
    const { hidden, dtype } = output;
    if (dtype !== 'bf16') throw new ArgumentError('output.dtype', dtype, "'bf16', what experts make");
    const payloads: Readonly<Partial<Record<string, Tensor>>> = received.payloads;
    const rowsOf = (argument: string, name: string, length: number, dtype: Dtype): Tensor => {
      const from = payloads[name];
      const bytes = slotsOf(layer) * length * dtypes[dtype].size;
      // Rows of u8 are opaque: the caller says what they are.
      if (from?.bytes === bytes && (from.dtype === dtype || from.dtype === 'u8')) return from;
      const was = from === undefined ? name : describe(from);
      throw new ArgumentError(argument, was, `rows of ${length} ${dtype}`);
    };
    if (scales !== undefined && gemm === 'cublas')
      throw new ArgumentError('scales', scales, "left out: with gemm 'cublas' rows are bf16");
    const from =
      scales === undefined
        ? { x: rowsOf('payload', payload, hidden, 'bf16'), scales: null }
        : {
            x: rowsOf('payload', payload, hidden, 'e4m3'),
            scales: rowsOf('scales', scales, hidden / scaleBlock, 'f32'),
          };
    const experts = expertsOf(layer, world.rank).count;
    const { inner } = requireWeights(options, experts, hidden);
    const { device } = world;
    if (gemm === 'cublas') {
      const shape = { device, plan, payload, experts, hidden, inner };
      return new ExpertsMlp(gemm, plan, await cublasRun(shape, options));
    }
    const shape = { experts, hidden, inner, topK, rows: evenRows(layer) };
    return new ExpertsMlp(gemm, plan, await heddleRun(device, plan, from, shape, options));
  }

  /**
   * From the rows of the last plan of `received` to `received.output`. Between the plan and combine. `sizes`: what the
   * plan's `sizes` gave, for cuBLAS.
   */
  run(received: Received, stream: Stream, sizes?: ExpertSizes): void {
    if (this.#disposed) throw new DisposedError('this ExpertsMlp');
    this.#plan.requirePlanned('run', received, stream);
    const made = this.#run.run(received, stream, sizes);
    this.#plan.reduce(received, made, stream);
  }

  /** Frees what it allocated. Nothing enqueued may still use it. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#run.dispose();
    for (const { tensor } of this.#run.owned) tensor.free();
  }
}
