import { createHash } from 'node:crypto';
import {
  RankMaskedError,
  requireFlag,
  requireInteger,
  requireObject,
  requireText,
} from '../../base/errors.js';
import { parseAddress } from './address.js';
import { Circle, type CircleOptions, DEFAULT_TIMEOUT_MS, type FarLink, passing } from './circle.js';
import { type JoinOptions, type Membership, type Place, readEnvironment } from './environment.js';
import { parseEtcdAddress } from './etcd/address.js';
import { joinEtcd } from './etcd/link.js';
import { LONGEST_TIMEOUT_MS, MAX_NAME, MAX_RANKS } from './exchange.js';
import { joinHost } from './host-link.js';
import { tellLauncher } from './tell-launcher.js';

const DEFAULT_LOSS_TIMEOUT_MS = 30_000;
/**
 * A program that comes to its end without disposing of its circles has done its part all the same: it leaves.
 * (One that throws, exits or is killed is lost.)
 */
const open = new Set<ProcessCircle>();
process.on('beforeExit', () => {
  for (const circle of open) void circle.atProgramEnd();
});

/** Ranks that are processes, meeting at a TCP rendezvous. */
export class ProcessCircle extends Circle {
  /** The rank among those of the same machine, where the launcher tells it. */
  readonly localRank: number | undefined;
  /** Leaves, at the end of the program. A world on top of the circle has more to let go of. */
  atProgramEnd: () => Promise<void> = () => this.dispose();
  readonly #place: Place;
  readonly #link: FarLink;
  /** The one that had lost this rank. It may host the rendezvous, so its link stays. */
  #lostIt: ProcessCircle | undefined;

  private constructor(place: Place, origins: readonly number[], link: FarLink) {
    super(place.rank, origins, place, link);
    this.localRank = place.localRank;
    this.#place = place;
    this.#link = link;
    open.add(this);
    link.hear({ ...this.events, regrouped: (origins, rank) => this.#goOn(origins, rank) });
  }

  /**
   * Joins the world that the options and the environment describe; resolves when every rank has joined.
   * Rank 0 hosts the rendezvous, unless the launcher does.
   */
  static async join(options: JoinOptions = {}): Promise<ProcessCircle> {
    tellLauncher();
    return ProcessCircle.enter(findPlace(options));
  }

  /** Resolves when every rank has joined, or those of the world have admitted the outsider. `leaving` ends its wait. @internal */
  static async enter(place: Place, leaving?: AbortSignal): Promise<ProcessCircle> {
    const origins = Array.from({ length: place.ranks }, (_, rank) => rank);
    const welcomed = (link: FarLink) => new ProcessCircle(place, origins, link);
    const { etcd } = place;
    const circle =
      etcd === undefined ? await joinHost(place, welcomed) : await joinEtcd({ ...place, etcd }, welcomed);
    passing('join', 'welcomed');
    const leave = () => void circle.dispose();
    leaving?.addEventListener('abort', leave);
    try {
      if (leaving?.aborted) await circle.dispose();
      if (place.outside) await circle.regroup();
      else await circle.barrier('join');
      return circle.latest;
    } catch (error) {
      await circle.dispose();
      throw error;
    } finally {
      leaving?.removeEventListener('abort', leave);
    }
  }

  override get latest(): ProcessCircle {
    return super.latest as ProcessCircle;
  }

  protected override async leave(): Promise<void> {
    open.delete(this);
    await super.leave();
    await this.#lostIt?.dispose();
  }

  protected override async waitOutside(leaving: AbortSignal): Promise<ProcessCircle> {
    open.delete(this);
    const circle = await ProcessCircle.enter(outside(this.#place), leaving);
    circle.#lostIt = this;
    return circle;
  }

  /** Hands this circle's link to the next circle. */
  #goOn(origins: readonly number[], rank: number): void {
    open.delete(this);
    const place = { ...this.#place, rank, ranks: origins.length, outside: false };
    const next = new ProcessCircle(place, origins, this.#link);
    next.#lostIt = this.#lostIt;
    this.goOn(next);
  }
}

/** The place of a rank as an outsider, which has no number among the others until they admit it. */
const outside = (place: Place): Place => ({ ...place, outside: true, rank: 0, ranks: 1 });

/** The circle of a process that takes an empty place, until the others admit it: in all calls the others say what it says. */
export class OutsideCircle extends Circle {
  readonly #enter: (leaving: AbortSignal) => Promise<Circle>;

  constructor(
    rank: number,
    ranks: number,
    options: CircleOptions,
    enter: (leaving: AbortSignal) => Promise<Circle>,
  ) {
    super(rank, [...Array(ranks).keys()], options, {
      arrive: ({ id, bytes }) => {
        this.events.ended(new RankMaskedError(rank)); // of no effect where nobody regroups
        const parts = this.origins.map(() => bytes.slice());
        queueMicrotask(() => this.events.completed(id, parts));
      },
      giveUp: () => {},
      leave: async () => {},
      keepAlive: () => {},
    });
    this.#enter = enter;
  }

  /** The outsider's circle for the place that the options describe. */
  static of(options: JoinOptions): OutsideCircle {
    const place = findPlace(options);
    const enter = (leaving: AbortSignal) => ProcessCircle.enter(outside(place), leaving);
    return new OutsideCircle(place.rank, place.places, place, enter);
  }

  override get out(): boolean {
    return true;
  }

  protected override waitOutside(leaving: AbortSignal): Promise<Circle> {
    return this.#enter(leaving);
  }
}

/** The parts of a place that options need not describe. */
const unsaid = {
  ...{ launcher: 'options', world: 'world', hosted: false, ranksHere: 1, etcd: undefined },
  ...{ localRank: undefined, places: undefined, nodes: undefined, device: undefined },
  ...{ secret: undefined, rejoin: undefined },
};

/** The options' place, and the environment's where it is needed. */
export function findPlace(options: JoinOptions): Place {
  requireObject('options', options);
  const { timeoutMs = DEFAULT_TIMEOUT_MS, lossTimeoutMs = DEFAULT_LOSS_TIMEOUT_MS } = options;
  const { rank, ranks, localRank, address, rendezvous, world, secret, hosted, environment } = options;
  if (environment !== undefined) requireObject('environment', environment, 'variables by name');
  const etcd = rendezvous === undefined ? undefined : parseEtcdAddress('rendezvous', rendezvous);
  const where = address === undefined ? etcd?.endpoints[0] : parseAddress('address', address);
  const told: Membership =
    rank !== undefined && ranks !== undefined && where !== undefined
      ? { ...unsaid, rank, ranks, address: where }
      : readEnvironment(environment);
  const size = requireInteger('ranks', ranks ?? told.ranks, 1, MAX_RANKS);
  const places = requireInteger('places', options.places ?? told.places ?? size, size, MAX_RANKS);
  const rejoin = options.rejoin ?? told.rejoin;
  const last = (rejoin === undefined ? size : places) - 1;
  const own = requireInteger('rank', rank ?? told.rank, 0, last);
  const local = localRank ?? told.localRank;
  const nodes = options.nodes ?? told.nodes;
  return {
    ...told,
    rank: own,
    ranks: size,
    places,
    nodes: nodes === undefined ? undefined : requireInteger('nodes', nodes, 1, places),
    localRank: local === undefined ? undefined : requireInteger('localRank', local, 0, last),
    rejoin: rejoin === undefined ? undefined : requireText('rejoin', rejoin),
    name: shortId(rejoin ?? `rank ${own}`),
    outside: false,
    address: where ?? told.address,
    etcd: etcd ?? (address === undefined ? told.etcd : undefined),
    world: shortId(requireText('world', world ?? told.world)),
    secret: secret ?? told.secret,
    hosted: requireFlag('hosted', hosted ?? told.hosted),
    timeoutMs: requireInteger('timeoutMs', timeoutMs, 1, LONGEST_TIMEOUT_MS),
    lossTimeoutMs: requireInteger('lossTimeoutMs', lossTimeoutMs, 1, LONGEST_TIMEOUT_MS),
  };
}

/** How much of a long id of a world stays readable. */
const READABLE = 100;

/**
 * The name of a world, or of a process, in messages, whose names are bounded. Launchers' ids are not: of a long one the beginning
 * stays, and a hash of all of it, which is the same on every rank.
 */
function shortId(id: string): string {
  if (id.length <= MAX_NAME) return id;
  return `${id.slice(0, READABLE)}… sha256:${createHash('sha256').update(id).digest('hex')}`;
}
