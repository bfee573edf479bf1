/**
 * The expert that every token goes to, in one lane of a layer's buffers. How its kernels are spread is decided by the tokens that come, and
 * not by those that could: few keep some multiprocessors busy beside the routed experts, many keep all of them, before those.
 */
import { inRange, type Stream } from '../gpu/index.js';
import type { World } from '../net/world/index.js';
import { mostBeside, multiprocessorsBeside, rowsOfForms } from './experts/index.js';
import { DenseMlp } from './experts/mlp.js';
import type { MlpWeights } from './experts/products.js';
import type { Beside, Keep, Lane } from './layer-buffers.js';
import type { LayerPlan } from './moe-options.js';
import type { Tensor } from './rounds/tensor.js';

/** The kernels for so many tokens at most. */
interface Form {
  readonly rows: number;
  readonly mlp: DenseMlp;
}

export class SharedExpert {
  readonly #beside: Beside | null;
  /** The one for most tokens first: the others fit into its memory. */
  readonly #forms: readonly Form[];
  /** Whether the last `begin` left the caller's stream. */
  #away = false;

  private constructor(beside: Beside | null, forms: readonly Form[]) {
    this.#beside = beside;
    this.#forms = forms;
  }

  /** Binds weights to a lane's memory, for this rank alone. */
  static async create(
    { device }: World,
    { beside, sharedScratch: scratch }: Lane,
    { model: { activation = 'swiglu' }, maxTokens, invariant }: LayerPlan,
    weights: MlpWeights,
    keep: Keep,
  ): Promise<SharedExpert> {
    const forms: Form[] = [];
    for (const rows of rowsOfForms(maxTokens)) {
      const sms = beside === null ? {} : { sms: multiprocessorsBeside(rows, device.multiprocessors) };
      const options = { ...weights, activation, ...sms, maxTokens: rows, scratch, invariant };
      forms.push({ rows, mlp: keep(await DenseMlp.create(device, options)) });
    }
    return new SharedExpert(beside, forms);
  }

  /** Enqueues it, into `out`. The caller's stream goes on. */
  begin(x: Tensor, out: Tensor, stream: Stream): void {
    const tokens = x.shape[0]!;
    const { mlp } = this.#forms.findLast(({ rows }) => tokens <= rows)!;
    const beside = tokens <= mostBeside ? this.#beside : null;
    const own = beside?.stream ?? stream;
    if (beside !== null) {
      stream.record(beside.begun);
      own.wait(beside.begun);
    }
    inRange('shared', own, () => mlp.run(x, out, tokens, own));
    if (beside !== null) own.record(beside.done);
    this.#away = beside !== null;
  }

  /** What is enqueued behind this finds what it made. */
  end(stream: Stream): void {
    if (this.#away) stream.wait(this.#beside!.done);
  }
}
