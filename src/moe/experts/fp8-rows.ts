/** Rows of bf16 as e4m3 with scales, as GEMMs with weights of e4m3 multiply them: of an expert that no dispatch brings rows. */
import { type CallSite, callSite, type Device, type Stream } from '../../gpu/index.js';
import { scaleBlock } from '../layer/index.js';
import { emptyTensor, type OwnedTensor } from '../rounds/tensor.js';
import { rowsToFp8 } from './kernels/rows-to-fp8.js';

type Site = CallSite<(typeof rowsToFp8)['cuda']['kernel']['params']>;

export class Fp8Rows {
  readonly #site: Site;

  private constructor(
    /** [maxTokens, hidden] of e4m3. */
    readonly x: OwnedTensor,
    /** [maxTokens, hidden / 128] of f32. */
    readonly scales: OwnedTensor,
    site: Site,
  ) {
    this.#site = site;
    site.set.to(x.data);
    site.set.scales(scales.data);
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
    return new Fp8Rows(x, scales, site);
  }

  /** Rounds so many rows that lie at an address; the next call writes over them. */
  round(from: number, tokens: number, stream: Stream): void {
    this.#site.set.from(from);
    this.#site.set.units((tokens * this.x.shape[1]!) / 16);
    this.#site.launch(stream);
  }

  dispose(): void {
    this.x.free();
    this.scales.free();
  }
}
