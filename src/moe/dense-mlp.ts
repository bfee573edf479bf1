/** One expert that takes every token, such as a shared one: nothing is routed, planned or summed. */
import { type Device, requireDevice, requireStream, type Stream } from '../device/index.js';
import { ArgumentError, DisposedError, requireInteger, requireObject } from '../errors/index.js';
import { limits } from '../layer/index.js';
import { type MemoryUse, useOf } from './memory.js';
import { type MlpSites, mlpSites } from './mlp-sites.js';
import { type MlpWeights, requireWeights } from './mlp-weights.js';
import {
  describe,
  elements,
  emptyTensor,
  isContiguous,
  type OwnedTensor,
  requireTensor,
  type Tensor,
} from './tensor.js';

/** Weights without a dimension of experts: [2 · inner, hidden] and [hidden, inner]. */
export interface DenseMlpOptions extends MlpWeights {
  /** The most rows of a run. */
  readonly maxTokens: number;
}

export class DenseMlp {
  /** What lies between the two GEMMs. */
  readonly memory: MemoryUse;
  readonly #hidden: number;
  readonly #maxTokens: number;
  readonly #inner: OwnedTensor;
  readonly #sites: MlpSites;
  #disposed = false;

  private constructor(hidden: number, maxTokens: number, inner: OwnedTensor, sites: MlpSites) {
    this.#hidden = hidden;
    this.#maxTokens = maxTokens;
    this.#inner = inner;
    this.#sites = sites;
    const { bytes } = inner;
    this.memory = useOf([{ purpose: 'inner rows of the dense MLP', section: null, bytes }]);
  }

  static async create(device: Device, options: DenseMlpOptions): Promise<DenseMlp> {
    requireDevice('device', device);
    requireObject('options', options, '{ gateUp, down, maxTokens }');
    const { gateUp, down, maxTokens } = options;
    requireInteger('maxTokens', maxTokens, 1, limits.maxTokens);
    requireTensor('gateUp', gateUp);
    const hidden = gateUp.shape.at(-1) ?? 0;
    const { inner } = requireWeights(options, null, hidden);
    const sites = await mlpSites(device, {
      ...({ of: 'all', e4m3: false, experts: 1, topK: 1 } as const),
      ...{ hidden, inner, rows: maxTokens },
    });
    const between = emptyTensor(device, 'bf16', [maxTokens, inner], 'inner rows of the dense MLP');
    for (const { set } of [sites.gateUp, sites.down]) {
      // There is no plan and there are no scales, and nobody looks.
      set.scales(gateUp.data);
      set.counts(gateUp.data);
      set.offsets(gateUp.data);
      set.routes(gateUp.data);
    }
    sites.gateUp.set.weights(gateUp.data);
    sites.gateUp.set.to(between.data);
    sites.down.set.from(between.data);
    sites.down.set.weights(down.data);
    return new DenseMlp(hidden, maxTokens, between, sites);
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
    const { set, launch } = this.#sites.gateUp;
    set.count(tokens);
    set.from(x.data);
    launch(stream);
  }

  /** The second half, down, of as many rows. */
  narrow(out: Tensor, tokens: number, stream: Stream): void {
    requireStream('stream', stream);
    this.#requireRows('out', out, tokens);
    const { set, launch } = this.#sites.down;
    set.count(tokens);
    set.to(out.data);
    launch(stream);
  }

  /** Frees the rows between. Nothing enqueued may still use them. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#inner.free();
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
