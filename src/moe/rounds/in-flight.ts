/**
 * The state of a round in flight. Each call takes it one stage further, and only in order. An
 * ExpertParallel has one such place for rounds, or two that take turns; a handle belongs to one round, so that a stale one is noticed.
 */
import { HeddleError } from '../../base/errors.js';
import { openRange, type Stream } from '../../gpu/index.js';
import type { Phase, Round } from '../families/index.js';
import type { DispatchInputs, Inputs, MadeRows } from './inputs.js';
import type { LoadedPlan } from './loaded-plan.js';
import { type Row, rowsThatTravel } from './options.js';
import type { Tensor } from './tensor.js';

/**
 * The rows that arrived for this rank's experts, payloads of these names among it: views of its window, valid from dispatch until the round's combine. Slot
 * (source, token) holds that rank's token, with `replicas` that group's; slots without a local expert are not written.
 */
export interface Received<P extends string = string> {
  /** i32 [sources, maxTokens, topK]: expert ids, -1 where another rank (or nobody) owns the route. */
  readonly experts: Tensor;
  /** f32 [sources, maxTokens, topK]; 0 where the id is -1. */
  readonly weights: Tensor | null;
  /** u32 [local experts]: routes to each, from its first expert on. */
  readonly counts: Tensor | null;
  /** u32 [1]: the most tokens that any source brought, where its family says so. @internal */
  readonly reached?: Tensor;
  /** By name: [sources, maxTokens, row]. */
  readonly payloads: Readonly<Record<P, Tensor>>;
  /**
   * Where the experts leave their rows. [sources, maxTokens, hidden]: the sum of a slot's local experts, already
   * weighted. Where combine weighs, rows have no elements here: combine is told where the experts' are.
   */
  readonly output: Tensor;
}

/** A dispatch that was sent and not received: what `dispatchRecv` takes. */
export interface Dispatched {
  readonly phase: 'dispatched';
  /** Tokens that this rank sent. */
  readonly tokens: number;
}

/** A combine that was sent and not received: what `combineRecv` takes. */
export interface Combining {
  readonly phase: 'combining';
  readonly tokens: number;
}

/** Where a round stands: what has been done last. */
type Stage = 'combined' | 'dispatch sent' | 'dispatched' | 'combine sent';

/** The calls that are allowed then. */
const next: Readonly<Record<Stage, string>> = {
  combined: 'dispatch or dispatchSend',
  'dispatch sent': 'dispatchRecv',
  dispatched: 'combine or combineSend',
  'combine sent': 'combineRecv',
};

/** The needs of each call, what it enqueues, and where the round stands behind it. */
const calls = {
  dispatch: { from: 'combined', phases: ['dispatchSend', 'dispatchRecv'], reaches: 'dispatched' },
  dispatchSend: { from: 'combined', phases: ['dispatchSend'], reaches: 'dispatch sent' },
  dispatchRecv: { from: 'dispatch sent', phases: ['dispatchRecv'], reaches: 'dispatched' },
  combine: { from: 'dispatched', phases: ['combineSend', 'combineRecv'], reaches: 'combined' },
  combineSend: { from: 'dispatched', phases: ['combineSend'], reaches: 'combine sent' },
  combineRecv: { from: 'combine sent', phases: ['combineRecv'], reaches: 'combined' },
} as const satisfies Readonly<Record<string, { from: Stage; phases: readonly Phase[]; reaches: Stage }>>;
export type Call = keyof typeof calls;

/** What a round begins with: what the caller brings, and what its layer does. */
interface Begins extends Pick<Round, 'placing' | 'layer'> {
  readonly inputs: DispatchInputs;
}

export class RoundInFlight<P extends string = string> {
  readonly received: Received<P>;
  /** The results of the round's calls so far. */
  readonly brings: Round = {
    ...{ tokens: 0, topkIds: 0, topkWeights: 0, rows: [], out: 0 },
    ...{ made: 0, madeRows: 0, scatter: 0, routeWeights: 0, placing: [], layer: 0 },
  };
  /** Whether a round was not all on one stream; then an event must order its halves, which nobody here sees. */
  changedStreams = false;
  /** Where dispatch notes the places of routes; null where experts are not placed. */
  readonly #places: number | null;
  #stage: Stage = 'combined';
  /** The result of the last call. */
  #handle: unknown = null;
  /** That of the round's first call. */
  #stream: Stream | null = null;

  /** `rows`: the payloads as the caller named their types. */
  constructor(
    readonly loaded: LoadedPlan,
    readonly inputs: Inputs,
    rows: Readonly<Record<string, Row>>,
  ) {
    this.received = receivedOf(loaded, rows);
    const { placing } = loaded.plan;
    this.#places = placing && loaded.tensor(placing.places).data;
  }

  get underWay(): boolean {
    return this.#stage !== 'combined';
  }

  /** Whether the round stands where `call` may come. */
  awaits(call: Call): boolean {
    return this.#stage === calls[call].from;
  }

  /** Whether this round's last call returned it. */
  gave(handle: unknown): boolean {
    return handle === this.#handle;
  }

  /** Requires that the round stands where `call` may come. */
  require(call: Call): void {
    if (this.awaits(call)) return;
    const where = this.underWay ? `the round is ${this.#stage}` : 'no round is under way';
    throw new HeddleError(
      calls[call].from === 'combined' ? 'HEDDLE_ROUND_OPEN' : 'HEDDLE_NO_ROUND',
      `${call} was called out of order: ${where}, so ${next[this.#stage]} comes next; ` +
        'a round is dispatch, experts, combine',
    );
  }

  /** Requires that `call` may come next, and that `handle` is what the call before it returned. */
  requireWith(call: Call, handle: unknown): void {
    this.require(call);
    if (this.gave(handle)) return;
    throw new HeddleError(
      'HEDDLE_OTHER_ROUND',
      `${call} was given what belongs to another round, or to another ExpertParallel; give it what this round's send returned`,
    );
  }

  /** Notes the rows of a plan that combine takes. */
  take(made: MadeRows | undefined): void {
    if (made === undefined) return;
    const { brings } = this;
    brings.made = made.rows.data;
    brings.madeRows = made.rows.shape[0]!;
    brings.scatter = made.scatter.data;
    brings.routeWeights = made.weights.data;
  }

  /** Enqueues what a call consists of; one that begins a round takes what it begins with. A call that throws leaves the round where it was. */
  run(call: Call, stream: Stream, begins?: Begins): void {
    const { from, phases, reaches } = calls[call];
    // Combine goes by the places to which dispatch sent the tokens, even if another placement holds by now.
    if (this.underWay && this.#places !== null) this.brings.topkIds = this.#places;
    // Not inRange, whose function would be made anew for each call.
    const heard = openRange(call, stream);
    try {
      if (from === 'combined') {
        this.inputs.take(begins!.inputs, this.brings, stream);
        this.brings.placing = begins!.placing;
        this.brings.layer = begins!.layer;
      }
      this.loaded.run(phases, this.brings, stream);
    } finally {
      heard?.leave();
    }
    if (!this.underWay) this.#stream = stream;
    else if (stream !== this.#stream) this.changedStreams = true;
    this.#stage = reaches;
  }

  /** The result of a call, by which the next one knows the round again. */
  hand<T>(handle: T): T {
    this.#handle = handle;
    return handle;
  }

  /** The round is over: ranks were left out. */
  giveUp(): void {
    this.#stage = 'combined';
    this.changedStreams = false;
  }

  /** Frees the memory. No rank may still use it. */
  async close(): Promise<void> {
    this.inputs.free();
    await this.loaded.close();
  }
}

function receivedOf<P extends string>(loaded: LoadedPlan, rows: Readonly<Record<string, Row>>): Received<P> {
  const { experts, weights, counts, reached, payloads, output } = loaded.plan.received;
  return {
    experts: loaded.tensor(experts),
    weights: weights && loaded.tensor(weights),
    counts: counts && loaded.tensor(counts),
    ...(reached && { reached: loaded.tensor(reached) }),
    payloads: Object.fromEntries(
      rowsThatTravel(rows).map(([name, { dtype, length }]) => {
        const view = payloads[name]!;
        const [sources, tokens] = view.shape as readonly [number, number];
        return [name, loaded.tensor({ ...view, dtype, shape: [sources, tokens, length] })];
      }),
    ) as Record<P, Tensor>,
    output: loaded.tensor(output),
  };
}
