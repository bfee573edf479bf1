import { createHash } from 'node:crypto';
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import {
  RankLostError,
  RendezvousError,
  requireFlag,
  requireInteger,
  requireObject,
  requireText,
} from '../../base/errors.js';
import { formatAddress, parseAddress } from './address.js';
import { Channel } from './channel.js';
import {
  type CircleOptions,
  DEFAULT_TIMEOUT_MS,
  LONGEST_TIMEOUT_MS,
  MAX_NAME,
  MAX_PAYLOAD,
  MAX_RANKS,
} from './circle.js';
import { type Environment, type Membership, readEnvironment } from './environment.js';
import type { Call } from './exchange.js';
import { type Message, PROTOCOL_VERSION, ProtocolError } from './messages.js';
import { Participant, passing, toError } from './participant.js';
import { Rendezvous } from './rendezvous.js';
import { newNonce, prove, requireSecret, sameProof } from './secret.js';
import { tellLauncher } from './tell-launcher.js';

/** How to join. What is not given here comes from the environment. */
export interface JoinOptions extends CircleOptions {
  readonly rank?: number;
  readonly ranks?: number;
  readonly localRank?: number;
  /** The name of this rank's node, where it is not to be found out; every rank must say one then. */
  readonly node?: string;
  /** 'host:port' of the rendezvous. */
  readonly address?: string;
  /** Names the world; all its ranks must say the same. */
  readonly world?: string;
  /** At least 16 characters; required when the address is not loopback. */
  readonly secret?: string;
  /** Someone else hosts the rendezvous; otherwise rank 0 does. */
  readonly hosted?: boolean;
  /**
   * After how many ms without a sign of life this rank is lost to the others, and the rendezvous to it.
   * Must exceed the longest time that this process blocks its event loop. Default 30,000. (A process that
   * ends is noticed at once.)
   */
  readonly lossTimeoutMs?: number;
  /** Instead of process.env. */
  readonly environment?: Environment;
}

const DEFAULT_LOSS_TIMEOUT_MS = 30_000;
/** One attempt to connect and be welcomed. */
const ATTEMPT_MS = 10_000;
/** Has at least so long, however little is left: a shorter one would only tell of its own haste. */
const SHORTEST_ATTEMPT_MS = 500;
/** The first and the longest pause between attempts. */
const PAUSE_MS = 25;
const LONGEST_PAUSE_MS = 1_000;

/**
 * A program that comes to its end without disposing of its circles has done its part all the same: it leaves.
 * (One that throws, exits or is killed is lost.)
 */
const open = new Set<ProcessCircle>();
process.on('beforeExit', () => {
  for (const circle of open) void circle.atProgramEnd();
});

/** Ranks that are processes, meeting at a TCP rendezvous. */
export class ProcessCircle extends Participant {
  /** The rank among those of the same machine, where the launcher tells it. */
  readonly localRank: number | undefined;
  /** The node that this rank is said to be of. */
  readonly node: string | undefined;
  /** Leaves, at the end of the program. A world on top of the circle has more to let go of. */
  atProgramEnd: () => Promise<void> = () => this.dispose();
  readonly #place: Membership;
  readonly #channel: Channel;
  readonly #rendezvous: Rendezvous | undefined;
  #ended = false;

  private constructor(
    place: Membership,
    origins: readonly number[],
    options: CircleOptions,
    channel: Channel,
    rendezvous: Rendezvous | undefined,
  ) {
    super(place.rank, origins, options);
    this.localRank = place.localRank;
    this.node = place.node;
    this.#place = place;
    this.#channel = channel;
    this.#rendezvous = rendezvous;
    open.add(this);
    channel.trust(place.ranks * MAX_PAYLOAD);
    channel.onMessage = (message, bytes) => this.#receive(message, bytes);
    channel.onClose = (why) => this.#hostIsGone(why);
  }

  /**
   * Joins the world that the options and the environment describe; resolves when every rank has joined.
   * Rank 0 hosts the rendezvous, unless the launcher does.
   */
  static async join(options: JoinOptions = {}): Promise<ProcessCircle> {
    tellLauncher();
    const place = findPlace(options);
    const { timeoutMs = DEFAULT_TIMEOUT_MS, lossTimeoutMs = DEFAULT_LOSS_TIMEOUT_MS } = options;
    requireInteger('timeoutMs', timeoutMs, 1, LONGEST_TIMEOUT_MS);
    requireInteger('lossTimeoutMs', lossTimeoutMs, 1, LONGEST_TIMEOUT_MS);
    requireSecret(place.address.host, place.secret);
    const hosts = place.rank === 0 && !place.hosted;
    const rendezvous = hosts ? await Rendezvous.listen(place) : undefined;
    passing('join', 'ready');
    const here = rendezvous ? { ...place, address: rendezvous.address } : place;
    try {
      const circle = await reach(here, timeoutMs, lossTimeoutMs, (channel) => {
        const silent = `it gave no sign of life for ${lossTimeoutMs} ms`;
        channel.watch(lossTimeoutMs, () => channel.destroy(silent), false);
        const origins = Array.from({ length: place.ranks }, (_, rank) => rank);
        return new ProcessCircle(place, origins, { timeoutMs }, channel, rendezvous);
      });
      passing('join', 'welcomed');
      try {
        await circle.barrier('join');
        return circle;
      } catch (error) {
        await circle.dispose();
        throw error;
      }
    } catch (error) {
      await rendezvous?.close();
      throw error;
    }
  }

  protected arrive(call: Call): void {
    const { id, kind, operation, timeoutMs, bytes } = call;
    // A socket may keep what it is given; the caller may reuse its bytes as soon as the call returns.
    this.#channel.send({ type: 'arrive', id, kind, operation, timeoutMs }, bytes.slice());
  }

  protected giveUp(ranks: readonly number[], reason: string): void {
    this.#channel.send({ type: 'abandon', ranks: [...new Set(ranks)], why: reason.slice(0, 1000) });
  }

  protected async leave(): Promise<void> {
    this.#ended = true;
    open.delete(this);
    this.#channel.send({ type: 'leave' });
    await this.#channel.end();
    await this.#rendezvous?.close();
  }

  protected override waiting(pending: boolean): void {
    this.#channel.keepAlive(pending);
  }

  #receive(message: Message, bytes: Uint8Array): void {
    switch (message.type) {
      case 'completed': {
        const total = message.lengths.reduce((sum, length) => sum + length, 0);
        if (message.lengths.length !== this.ranks || total !== bytes.length)
          throw new ProtocolError(`${bytes.length} bytes as the parts of ${message.lengths.length} ranks`);
        let end = 0;
        const parts = message.lengths.map((length) => {
          end += length;
          return bytes.slice(end - length, end);
        });
        this.completed(message.id, parts);
        break;
      }
      case 'failed':
        this.failed(message.id, message);
        break;
      case 'lost':
        this.lost(toError(message));
        break;
      case 'renewed':
        this.#goOn(message.ranks);
        break;
      case 'ping':
        this.#channel.send({ type: 'pong' });
        break;
      case 'farewell':
        if (this.#place.hosted) {
          this.#hostIsGone('it ended the rendezvous');
        } else {
          this.#ended = true;
          this.departed({ ranks: [0], why: 'it left the world' });
          this.ended(this.#cannotRenew());
        }
        break;
      default:
        this.#channel.destroy(`it sent ${message.type}, which the host does not send to a member`);
    }
  }

  /** The same connection serves those that are left, as it did the ranks of this circle. */
  #goOn(ranks: readonly number[]): void {
    if (!ranks.includes(this.rank) || ranks.some((rank) => rank >= this.ranks))
      throw new ProtocolError(`a renewal of ranks ${ranks.join(', ')} to rank ${this.rank} of ${this.ranks}`);
    this.#ended = true;
    open.delete(this);
    const place = { ...this.#place, rank: ranks.indexOf(this.rank), ranks: ranks.length };
    const origins = ranks.map((rank) => this.origins[rank]!);
    const { timeoutMs } = this;
    this.renewed(new ProcessCircle(place, origins, { timeoutMs }, this.#channel, this.#rendezvous));
  }

  #cannotRenew(cause?: Error): RendezvousError {
    return new RendezvousError(
      'the rendezvous of this world is gone with the process that hosted it, so the world cannot be renewed; ' +
        "under 'heddle run' the launcher hosts it, and any rank may be lost",
      { cause },
    );
  }

  #hostIsGone(why: string): void {
    if (this.#ended) return;
    this.#ended = true;
    const cause = new Error(why);
    this.ended(this.#cannotRenew(cause));
    const { hosted, address } = this.#place;
    this.lost(
      hosted
        ? new RendezvousError(
            `the launcher, which hosts the rendezvous at ${formatAddress(address)}, is gone; this world cannot go on`,
            { cause },
          )
        : new RankLostError([0], 'work between calls', undefined, { cause }),
    );
  }
}

/** Of a place that options describe without the environment. */
const unsaid = {
  ...{ launcher: 'options', world: 'world', hosted: false, ranksHere: 1 },
  ...{ localRank: undefined, node: undefined, device: undefined, secret: undefined },
};

/** The options' place, and the environment's where it is needed. */
export function findPlace(options: JoinOptions): Membership {
  requireObject('options', options);
  const { rank, ranks, localRank, node, address, world, secret, hosted, environment } = options;
  if (environment !== undefined) requireObject('environment', environment, 'variables by name');
  const where = address === undefined ? undefined : parseAddress('address', address);
  const told: Membership =
    rank !== undefined && ranks !== undefined && where !== undefined
      ? { ...unsaid, rank, ranks, address: where }
      : readEnvironment(environment);
  const size = requireInteger('ranks', ranks ?? told.ranks, 1, MAX_RANKS);
  const local = localRank ?? told.localRank;
  return {
    ...told,
    rank: requireInteger('rank', rank ?? told.rank, 0, size - 1),
    ranks: size,
    localRank: local === undefined ? undefined : requireInteger('localRank', local, 0, size - 1),
    node: node ?? told.node,
    address: where ?? told.address,
    world: shortId(requireText('world', world ?? told.world)),
    secret: secret ?? told.secret,
    hosted: requireFlag('hosted', hosted ?? told.hosted),
  };
}

/** How much of a long id of a world stays readable. */
const READABLE = 100;

/**
 * What ranks call their world in messages, whose names are bounded. Launchers' ids are not: of a long one the beginning
 * stays, and a hash of all of it, which is the same on every rank.
 */
function shortId(id: string): string {
  if (id.length <= MAX_NAME) return id;
  return `${id.slice(0, READABLE)}… sha256:${createHash('sha256').update(id).digest('hex')}`;
}

/** Connects and is welcomed; tries again, since rank 0 may start last, until the time is over. */
async function reach<T>(
  place: Membership,
  timeoutMs: number,
  lossTimeoutMs: number,
  welcomed: (channel: Channel) => T,
): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  for (let pause = PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
    const leftMs = Math.max(deadline - performance.now(), SHORTEST_ATTEMPT_MS);
    const limitMs = Math.ceil(Math.min(leftMs, ATTEMPT_MS));
    try {
      return await attempt(place, lossTimeoutMs, limitMs, welcomed);
    } catch (error) {
      // A refusal is final: trying again would bring the same.
      if (error instanceof RendezvousError) throw error;
      if (deadline - performance.now() <= pause) {
        throw new RendezvousError(
          `rank ${place.rank} found no rendezvous at ${formatAddress(place.address)} within ${timeoutMs} ms: ${(error as Error).message}; is rank 0 running, and does HEDDLE_ADDRESS (or the launcher's address) lead to it?`,
          { cause: error },
        );
      }
    }
    await delay(pause);
  }
}

/** One handshake. A refusal is a RendezvousError, anything else may pass. `welcomed` runs in the turn of the welcome, so that it misses no message after it. */
function attempt<T>(
  place: Membership,
  lossTimeoutMs: number,
  limitMs: number,
  welcomed: (channel: Channel) => T,
): Promise<T> {
  const { rank, ranks, world, secret } = place;
  const [host, port] = [
    place.address.host === 'localhost' ? '127.0.0.1' : place.address.host,
    place.address.port,
  ];
  return new Promise((resolve, reject) => {
    const channel = new Channel(connect({ host, port }));
    const timer = setTimeout(() => channel.destroy(`it did not answer within ${limitMs} ms`), limitMs);
    const refuse = (why: string) => {
      reject(
        new RendezvousError(
          `rank ${rank} cannot join at ${formatAddress(place.address)}: the rendezvous says that ${why}`,
        ),
      );
      channel.destroy('refused');
    };
    channel.onClose = (why) => {
      clearTimeout(timer);
      reject(new Error(why));
    };
    const joinerNonce = newNonce();
    let hostNonce: string | undefined;
    channel.onMessage = (message) => {
      const handshake = {
        world,
        rank,
        ranks,
        version: PROTOCOL_VERSION,
        hostNonce: hostNonce ?? '',
        joinerNonce,
      };
      if (message.type === 'hello' && hostNonce === undefined) {
        hostNonce = message.nonce;
        if (message.version !== PROTOCOL_VERSION) {
          refuse(
            `it speaks protocol version ${message.version}, this rank ${PROTOCOL_VERSION}; use one version of heddle everywhere`,
          );
          return;
        }
        const proof = prove(secret, 'joiner', { ...handshake, hostNonce });
        const { version } = handshake;
        channel.send({ type: 'join', version, world, rank, ranks, lossTimeoutMs, nonce: joinerNonce, proof });
      } else if (message.type === 'refused') {
        refuse(message.why);
      } else if (message.type === 'welcome' && hostNonce !== undefined) {
        if (!sameProof(message.proof, prove(secret, 'host', handshake))) {
          refuse('this rank may join, but it does not know the secret itself; who listens there?');
          return;
        }
        clearTimeout(timer);
        resolve(welcomed(channel));
      } else {
        channel.destroy(`it sent ${message.type} in the handshake`);
      }
    };
  });
}
