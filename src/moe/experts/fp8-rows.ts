/** Rows of bf16 as e4m3 with scales: as dispatch carries them with `rows: 'fp8'`, and as weights of e4m3 want them. */
import { type CallSite, callSite, type Device, type Stream } from '../../gpu/index.js';
import { scaleBlock } from '../layer/index.js';
import { emptyTensor, type OwnedTensor, type Tensor, wrap } from '../rounds/tensor.js';
import { rowsToFp8 } from './kernels/rows.js';

export class Fp8Rows {
  readonly #x: OwnedTensor;
  readonly #scales: OwnedTensor;
  readonly #site: CallSite<(typeof rowsToFp8)['cuda']['kernel']['params']>;

  private constructor(
    x: OwnedTensor,
    scales: OwnedTensor,
    site: CallSite<(typeof rowsToFp8)['cuda']['kernel']['params']>,
  ) {
    this.#x = x;
    this.#scales = scales;
    this.#site = site;
  }

  static async create(device: Device, maxTokens: number, hidden: number): Promise<Fp8Rows> {
    const { kernel, blocks, threads } = rowsToFp8[device.kind];
    const site = await callSite(device, kernel, {
      grid: blocks,
      block: threads,
      programmatic: true,
      rank: 0,
    });
    const x = emptyTensor(device, 'e4m3', [maxTokens, hidden], 'rows as fp8');
    const scales = emptyTensor(device, 'f32', [maxTokens, hidden / scaleBlock], 'scales of rows');
    site.set.to(x.data);
    site.set.scales(scales.data);
    return new Fp8Rows(x, scales, site);
  }

  /** The payloads of these rows; the next call writes them again. */
  payloads(rows: Tensor, stream: Stream): Readonly<Record<'x' | 'scales', Tensor>> {
    const [tokens = 0, hidden = 0] = rows.shape;
    this.#site.set.from(rows.data);
    this.#site.set.units((tokens * hidden) / 16);
    this.#site.launch(stream);
    return {
      x: wrap(this.#x.data, 'e4m3', [tokens, hidden]),
      scales: wrap(this.#scales.data, 'f32', [tokens, hidden / scaleBlock]),
    };
  }

  /** Where scales lie. */
  get scales(): Tensor {
    return this.#scales;
  }

  dispose(): void {
    this.#x.free();
    this.#scales.free();
  }
}
