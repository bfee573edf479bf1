/** One expert that takes every token, such as a shared one: nothing is routed, planned or summed. */

import {
  ArgumentError,
  DisposedError,
  requireInteger,
  requireObject,
  requireOneOf,
} from '../../base/errors.js';
import { type Device, requireDevice, requireStream, type Stream } from '../../gpu/index.js';
import { limits } from '../layer/index.js';
import { type MemoryUse, useOf } from '../rounds/memory.js';
import { describe, elements, isContiguous, requireTensor, type Tensor } from '../rounds/tensor.js';
import { denseCublas } from './dense-cublas.js';
import { denseHeddle } from './dense-heddle.js';
import type { DenseRun } from './dense-run.js';
import { type Gemm, gemms } from './experts-mlp.js';
import { type MlpWeights, requireWeights } from './mlp-weights.js';

/** Weights without a dimension of experts: [2 · inner, hidden] and [hidden, inner]. */
export interface DenseMlpOptions extends MlpWeights {
  /** The most rows of a run. */
  readonly maxTokens: number;
  /** Default 'heddle'. */
  readonly gemm?: Gemm;
  /**
   * The most multiprocessors that a run takes: those that a round beside it leaves. Default: all. cuBLAS takes it as advice.
   */
  readonly sms?: number;
}

export class DenseMlp {
  /** What lies between the two GEMMs. */
  readonly memory: MemoryUse;
  readonly #hidden: number;
  readonly #maxTokens: number;
  readonly #run: DenseRun;
  #disposed = false;

  private constructor(hidden: number, maxTokens: number, run: DenseRun) {
    this.#hidden = hidden;
    this.#maxTokens = maxTokens;
    this.#run = run;
    const parts = run.owned.map(({ tensor, purpose }) => ({ purpose, section: null, bytes: tensor.bytes }));
    this.memory = useOf(parts);
  }

  static async create(device: Device, options: DenseMlpOptions): Promise<DenseMlp> {
    requireDevice('device', device);
    requireObject('options', options, '{ gateUp, down, maxTokens }');
    const { gateUp, maxTokens, gemm = 'heddle' } = options;
    requireInteger('maxTokens', maxTokens, 1, limits.maxTokens);
    requireOneOf('gemm', gemm, gemms);
    const sms = options.sms === undefined ? null : requireInteger('sms', options.sms, 1, 1024);
    requireTensor('gateUp', gateUp);
    const hidden = gateUp.shape.at(-1) ?? 0;
    const { inner } = requireWeights(options, null, hidden);
    const create = gemm === 'cublas' ? denseCublas : denseHeddle;
    return new DenseMlp(hidden, maxTokens, await create({ device, hidden, inner, maxTokens, sms }, options));
  }

  /** The first `tokens` rows of `out` from those of `x`, [rows, hidden] each. */
  run(x: Tensor, out: Tensor, tokens: number, stream: Stream): void {
    this.#requireRows('out', out, tokens);
    this.widen(x, tokens, stream);
    this.narrow(out, tokens, stream);
  }

  /** The first half of `run`, gate and up, for who has other work for the stream between. */
  widen(x: Tensor, tokens: number, stream: Stream): void {
    requireStream('stream', stream);
    this.#requireRows('x', x, tokens);
    this.#run.widen(x, tokens, stream);
  }

  /** The second half, down, of as many rows. */
  narrow(out: Tensor, tokens: number, stream: Stream): void {
    requireStream('stream', stream);
    this.#requireRows('out', out, tokens);
    this.#run.narrow(out, tokens, stream);
  }

  /** Frees the rows between. Nothing enqueued may still use them. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#run.dispose();
    for (const { tensor } of this.#run.owned) tensor.free();
  }

  #requireRows(argument: string, tensor: Tensor, tokens: number): void {
    if (this.#disposed) throw new DisposedError('this DenseMlp');
    requireInteger('tokens', tokens, 0, this.#maxTokens);
    requireTensor(argument, tensor);
    const { dtype, shape } = tensor;
    const fits = dtype === 'bf16' && shape.at(-1) === this.#hidden && isContiguous(tensor);
    if (!fits || elements(shape) < tokens * this.#hidden)
      throw new ArgumentError(
        argument,
        describe(tensor),
        `bf16 [${tokens} or more, ${this.#hidden}], contiguous`,
      );
    if (tensor.data % 16 !== 0) throw new ArgumentError(`${argument}.data`, tensor.data, 'a multiple of 16');
  }
}
