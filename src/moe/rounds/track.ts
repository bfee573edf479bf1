/** What a round in flight has of its own; an ExpertParallel has one such track, or two whose rounds take turns. */
import type { Device, Stream } from '../../gpu/index.js';
import type { Phase, Round } from '../families/index.js';
import type { Layer } from '../layer/index.js';
import type { Carried } from './carried.js';
import { Inputs } from './inputs.js';
import type { Row } from './options.js';
import { type Stage, Stages } from './stages.js';
import type { Tensor } from './tensor.js';

/**
 * What arrived for this rank's experts, payloads of these names among it: views of its window, valid from dispatch until the round's combine. Slot
 * (source, token) holds that rank's token, with `replicas` that group's; slots without a local expert are not written.
 */
export interface Received<P extends string = string> {
  /** i32 [sources, maxTokens, topK]: expert ids, -1 where another rank (or nobody) owns the route. */
  readonly experts: Tensor;
  /** f32 [sources, maxTokens, topK]; 0 where the id is -1. */
  readonly weights: Tensor | null;
  /** u32 [local experts]: routes to each, from its first expert on. */
  readonly counts: Tensor | null;
  /** By name: [sources, maxTokens, row]. */
  readonly payloads: Readonly<Record<P, Tensor>>;
  /**
   * Where the experts leave their rows. [sources, maxTokens, hidden]: the sum of a slot's local experts, already
   * weighted. With weighting 'combine' [sources, maxTokens, topK, hidden]: a row for each route in `experts`, unweighted.
   */
  readonly output: Tensor;
}

/** What each call enqueues, and where a round stands behind it. */
const calls = {
  dispatch: { phases: ['dispatchSend', 'dispatchRecv'], reaches: 'dispatched' },
  dispatchSend: { phases: ['dispatchSend'], reaches: 'dispatch sent' },
  dispatchRecv: { phases: ['dispatchRecv'], reaches: 'dispatched' },
  combine: { phases: ['combineSend', 'combineRecv'], reaches: 'combined' },
  combineSend: { phases: ['combineSend'], reaches: 'combine sent' },
  combineRecv: { phases: ['combineRecv'], reaches: 'combined' },
} as const satisfies Readonly<Record<string, { phases: readonly Phase[]; reaches: Stage }>>;
type Call = keyof typeof calls;

export class Track<P extends string = string> {
  readonly received: Received<P>;
  readonly inputs: Inputs;
  readonly stages = new Stages();
  readonly round: Round = { tokens: 0, topkIds: 0, topkWeights: 0, rows: [], out: 0 };
  /** Whether a round was not all on one stream; then an event must order its halves, which nobody here sees. */
  changedStreams = false;
  /** That of the round's first call. */
  #stream: Stream | null = null;

  /** `rows`: the payloads as the caller named their types. */
  constructor(
    device: Device,
    layer: Layer,
    readonly carried: Carried,
    rows: Readonly<Record<P, Row>>,
  ) {
    this.received = receivedOf(carried, rows);
    this.inputs = new Inputs(device, layer, rows);
  }

  /** Enqueues what a call consists of. A call that throws leaves the round where it was. */
  run(call: Call, stream: Stream): void {
    const { phases, reaches } = calls[call];
    this.carried.run(phases, this.round, stream);
    if (this.stages.at('combined')) this.#stream = stream;
    else if (stream !== this.#stream) this.changedStreams = true;
    this.stages.reach(reaches);
  }

  /** Frees the memory. No rank may still use it. */
  async close(): Promise<void> {
    this.inputs.free();
    await this.carried.close();
  }
}

function receivedOf<P extends string>(carried: Carried, rows: Readonly<Record<P, Row>>): Received<P> {
  const { experts, weights, counts, payloads, output } = carried.plan.received;
  return {
    experts: carried.tensor(experts),
    weights: weights && carried.tensor(weights),
    counts: counts && carried.tensor(counts),
    payloads: Object.fromEntries(
      Object.entries<Row>(rows).map(([name, { dtype, length }]) => {
        const view = payloads[name]!;
        const [sources, tokens] = view.shape as readonly [number, number];
        return [name, carried.tensor({ ...view, dtype, shape: [sources, tokens, length] })];
      }),
    ) as Record<P, Tensor>,
    output: carried.tensor(output),
  };
}
