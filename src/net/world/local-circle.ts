import { RendezvousError, requireFunction, requireInteger, requireObject } from '../../base/errors.js';
import { Circle, type CircleOptions, runEach } from './circle.js';
import { Exchange, MAX_RANKS } from './exchange.js';

interface LocalOptions extends CircleOptions {
  /** A number that no rank of the world has had. */
  newOrigin(): number;
}

/** Ranks that are async programs of one process, meeting in its memory. */
export class LocalCircle extends Circle {
  readonly #exchange: Exchange;
  readonly #options: LocalOptions;

  private constructor(exchange: Exchange, rank: number, options: LocalOptions) {
    super(rank, exchange.origins, options, {
      // The caller may reuse its bytes as soon as the call returns.
      arrive: (call) => exchange.arrive(rank, { ...call, bytes: call.bytes.slice() }),
      giveUp: (ranks, reason) => exchange.giveUp(rank, ranks, reason),
      leave: async () => exchange.leave(rank),
      keepAlive: () => {},
    });
    this.#exchange = exchange;
    this.#options = options;
    exchange.sit(rank, {
      ...this.events,
      // Copies, so that no rank can reach into another's memory, as if they were processes.
      completed: (id, parts) => {
        const own = parts.map((part) => part.slice());
        this.events.completed(id, own);
      },
      regrouped: (next, rank) => this.goOn(new LocalCircle(next, rank, options)),
    });
  }

  /** The circles of ranks 0 … ranks − 1. */
  static create(ranks: number, options: CircleOptions = {}): LocalCircle[] {
    requireObject('options', options);
    const exchange = new Exchange(requireInteger('ranks', ranks, 1, MAX_RANKS));
    let origins = ranks;
    const all = { ...options, newOrigin: () => origins++ };
    return Array.from({ length: ranks }, (_, rank) => new LocalCircle(exchange, rank, all));
  }

  /**
   * Runs one program for each rank and resolves with their results, by rank. A rank whose program returns
   * leaves; one whose program throws is lost to the others. Rejects with what was thrown first, when
   * every program has ended.
   */
  static async run<T>(
    ranks: number,
    program: (circle: LocalCircle) => Promise<T>,
    options: CircleOptions = {},
  ): Promise<T[]> {
    requireFunction('program', program, 'a function: what each rank does');
    return runEach(LocalCircle.create(ranks, options), program, {
      lose: ({ latest }, reason) => latest.fail(reason),
      ended: ({ latest }) => latest.dispose(),
    });
  }

  override get latest(): LocalCircle {
    return super.latest as LocalCircle;
  }

  override get place(): object {
    return this.#exchange;
  }

  /** @internal */
  override waitOutside(leaving: AbortSignal): Promise<LocalCircle> {
    const origin = this.#options.newOrigin();
    return new Promise((resolve, reject) => {
      leaving.addEventListener('abort', () => {
        this.#exchange.latest.withdraw(origin);
        reject(leaving.reason);
      });
      this.#exchange.latest.wait(origin, {
        regrouped: (next, rank) => resolve(new LocalCircle(next, rank, this.#options)),
        over: (why) => reject(new RendezvousError(`rank ${this.rank} cannot rejoin: ${why}`)),
      });
    });
  }
}
