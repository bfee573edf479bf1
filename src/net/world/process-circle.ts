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
import {
  type JoinOptions,
  type Membership,
  maxLocalRank,
  type Place,
  readEnvironment,
} from './environment.js';
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
  /** The node that this rank is said to be of. */
  readonly node: string | undefined;
  /** Leaves, at the end of the program. A world on top of the circle has more to let go of. */
  atProgramEnd: () => Promise<void> = () => this.dispose();
  readonly #place: Place;
  readonly #link: FarLink;
  /** The one that had lost this rank. It may host the rendezvous, so its link stays. */
  #lostIt: ProcessCircle | undefined;

  private constructor(place: Place, origins: readonly number[], link: FarLink) {
    super(place.rank, origins, place, link);
    this.localRank = place.localRank;
    this.node = place.node;
    this.#place = place;
    this.#link = link;
    open.add(this);
    link.hear({ ...this.hears, renewed: (origins, rank) => this.#goOn(origins, rank) });
  }

  /**
   * Joins the world that the options and the environment describe; resolves when every rank has joined.
   * Rank 0 hosts the rendezvous, unless the launcher does.
   */
  static async join(options: JoinOptions = {}): Promise<ProcessCircle> {
    tellLauncher();
    const place = findPlace(options);
    return ProcessCircle.#enter(place.rejoin === undefined ? place : outside(place, place.rejoin));
  }

  /** Resolves when every rank has joined, or has taken in the newcomer. */
  static async #enter(place: Place): Promise<ProcessCircle> {
    const origins = Array.from({ length: place.ranks }, (_, rank) => rank);
    const welcomed = (link: FarLink) => new ProcessCircle(place, origins, link);
    const { etcd } = place;
    const circle =
      etcd === undefined ? await joinHost(place, welcomed) : await joinEtcd({ ...place, etcd }, welcomed);
    passing('join', 'welcomed');
    try {
      if (place.newcomer === undefined) await circle.barrier('join');
      else await circle.renew();
      return circle.latest;
    } catch (error) {
      await circle.dispose();
      throw error;
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

  protected override async waitOutside(): Promise<ProcessCircle> {
    open.delete(this);
    const again = outside(this.#place, `rank ${this.rank} again`);
    const circle = await ProcessCircle.#enter(again);
    circle.#lostIt = this;
    return circle;
  }

  /** The same link serves the next circle as it did this one. */
  #goOn(origins: readonly number[], rank: number): void {
    open.delete(this);
    const place = { ...this.#place, rank, ranks: origins.length, newcomer: undefined };
    const next = new ProcessCircle(place, origins, this.#link);
    next.#lostIt = this.#lostIt;
    this.goOn(next);
  }
}

/** At the rendezvous a rank that rejoins is a newcomer by itself, whatever its place. */
const outside = (place: Place, rejoin: string): Place => ({
  ...place,
  ...{ rejoin, newcomer: rejoin, rank: 0, ranks: 1 },
});

/** The circle of a process that takes a lost rank's place, until the others take it in: in all calls the others say what it says. */
export class OutsideCircle extends Circle {
  readonly #enter: () => Promise<Circle>;

  constructor(rank: number, ranks: number, options: CircleOptions, enter: () => Promise<Circle>) {
    super(rank, [...Array(ranks).keys()], options, {
      arrive: ({ id, bytes }) => {
        this.hears.ended(new RankMaskedError(rank)); // of no effect on what is no renewal
        const parts = this.origins.map(() => bytes.slice());
        queueMicrotask(() => this.hears.completed(id, parts));
      },
      giveUp: () => {},
      leave: async () => {},
      keepAlive: () => {},
    });
    this.#enter = enter;
  }

  /** It joins the others as `ProcessCircle` does. */
  static of(options: JoinOptions): OutsideCircle {
    const place = findPlace(options);
    return new OutsideCircle(place.rank, place.ranks, place, () => ProcessCircle.join(options));
  }

  override get out(): boolean {
    return true;
  }

  protected override waitOutside(): Promise<Circle> {
    return this.#enter();
  }
}

/** Of a place that options describe without the environment. */
const unsaid = {
  ...{ launcher: 'options', world: 'world', hosted: false, ranksHere: 1, etcd: undefined },
  ...{ localRank: undefined, node: undefined, device: undefined, secret: undefined },
  ...{ newcomer: undefined, rejoin: undefined },
};

/** The options' place, and the environment's where it is needed. */
export function findPlace(options: JoinOptions): Place {
  requireObject('options', options);
  const { timeoutMs = DEFAULT_TIMEOUT_MS, lossTimeoutMs = DEFAULT_LOSS_TIMEOUT_MS } = options;
  const { rank, ranks, localRank, node, address, rendezvous, world, secret, hosted, environment } = options;
  if (environment !== undefined) requireObject('environment', environment, 'variables by name');
  const etcd = rendezvous === undefined ? undefined : parseEtcdAddress('rendezvous', rendezvous);
  const where = address === undefined ? etcd?.endpoints[0] : parseAddress('address', address);
  const alone = options.newcomer === undefined ? {} : { rank: 0, ranks: 1 };
  const given = { ...alone, ...(rank !== undefined && { rank }), ...(ranks !== undefined && { ranks }) };
  const told: Membership =
    given.rank !== undefined && given.ranks !== undefined && where !== undefined
      ? { ...unsaid, rank: given.rank, ranks: given.ranks, address: where }
      : readEnvironment(environment, options.newcomer);
  const size = requireInteger('ranks', ranks ?? told.ranks, 1, MAX_RANKS);
  const newcomer = options.newcomer ?? told.newcomer;
  const rejoin = options.rejoin ?? told.rejoin;
  const local = localRank ?? told.localRank;
  return {
    ...told,
    rank: requireInteger('rank', rank ?? told.rank, 0, size - 1),
    ranks: size,
    localRank:
      local === undefined ? undefined : requireInteger('localRank', local, 0, maxLocalRank(newcomer, size)),
    newcomer: newcomer === undefined ? undefined : shortId(requireText('newcomer', newcomer)),
    rejoin: rejoin === undefined ? undefined : shortId(requireText('rejoin', rejoin)),
    node: node ?? told.node,
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
 * The name of a world, or of a group of newcomers, in messages, whose names are bounded. Launchers' ids are not: of a long one the beginning
 * stays, and a hash of all of it, which is the same on every rank.
 */
function shortId(id: string): string {
  if (id.length <= MAX_NAME) return id;
  return `${id.slice(0, READABLE)}… sha256:${createHash('sha256').update(id).digest('hex')}`;
}
