import { once } from 'node:events';
import { createServer, isIP, type Server } from 'node:net';
import { RendezvousError, requireInteger } from '../../base/errors.js';
import { getOrMake } from '../../base/maps.js';
import { type Address, formatAddress, isLoopback } from './address.js';
import { Channel } from './channel.js';
import type { Membership } from './environment.js';
import { Exchange, MAX_PAYLOAD, MAX_RANKS } from './exchange.js';
import { type Join, PROTOCOL_VERSION } from './messages.js';
import { newNonce, prove, requireSecret, sameProof } from './secret.js';

/**
 * The world that a rendezvous serves, whose secret joiners must prove they know; a rank of another one, say of an earlier start of the
 * same job, is refused. It listens at the address, or at a free port of 127.0.0.1.
 */
export interface RendezvousOptions
  extends Pick<Membership, 'ranks' | 'world'>,
    Partial<Pick<Membership, 'secret' | 'address'>> {
  /** How long a connection may take to join, in ms. Default 10,000. */
  readonly handshakeMs?: number;
}

const HANDSHAKE_MS = 10_000;

const newOrOutside = 'start a new one, or take an empty place (HEDDLE_REJOIN)';

/**
 * The place where the ranks of a world join and through which they meet. One process hosts it: rank 0, or
 * whoever started the ranks.
 *
 * A connection is a stranger until it proves that it knows the secret. Strangers are bounded in number, in
 * time and in what they may send; when there are too many, the oldest goes, since an honest joiner needs but
 * one round trip.
 */
export class Rendezvous {
  readonly #server: Server;
  readonly #options: RendezvousOptions;
  readonly #first: Exchange;
  #exchange: Exchange;
  /** By origin, from `ranks` on: the names of the outsiders' processes. */
  readonly #names: string[] = [];
  readonly #strangers = new Set<Channel>();
  readonly #members = new Set<Channel>();

  private constructor(options: RendezvousOptions) {
    this.#options = options;
    this.#first = this.#exchange = new Exchange(requireInteger('ranks', options.ranks, 1, MAX_RANKS));
    this.#server = createServer((socket) => {
      socket.unref();
      this.#greet(new Channel(socket));
    });
  }

  /** Hears of every loss, and how it was noticed. */
  set onLost(listener: (ranks: readonly number[], why: string) => void) {
    this.#exchange.onLost = listener;
  }

  static async listen(options: RendezvousOptions): Promise<Rendezvous> {
    const { host, port } = options.address ?? { host: '127.0.0.1', port: 0 };
    requireSecret(host, options.secret);
    const rendezvous = new Rendezvous(options);
    const server = rendezvous.#server;
    // A host name may mean another address here than elsewhere (often 127.0.1.1), so a named host listens
    // on every interface.
    const bind = isLoopback(host) && isIP(host) === 0 ? '127.0.0.1' : host;
    server.listen({ port, ...(isIP(bind) ? { host: bind } : {}) });
    try {
      await once(server, 'listening');
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      const where = formatAddress({ host, port });
      throw new RendezvousError(
        code === 'EADDRINUSE'
          ? `the rendezvous cannot listen on ${where}: something listens there already, perhaps an earlier start of this world; end it or choose another port (HEDDLE_ADDRESS)`
          : `the rendezvous cannot listen on ${where}: ${message}; HEDDLE_ADDRESS must name an address of rank 0's machine`,
        { cause: error },
      );
    }
    server.unref();
    server.on('error', () => {}); // a connection that failed before it was accepted
    return rendezvous;
  }

  /** Where to join from this machine. */
  get address(): Address {
    const bound = this.#server.address();
    if (bound === null || typeof bound === 'string') throw new RendezvousError('the rendezvous is closed');
    const everywhere = bound.address === '::' || bound.address === '0.0.0.0';
    return { host: everywhere ? '127.0.0.1' : bound.address, port: bound.port };
  }

  /** The host knows that a rank is lost, whether or not it ever joined. Of no effect on one that left. */
  lose(rank: number, why: string): void {
    const now = this.#exchange.origins.indexOf(rank);
    if (now >= 0) this.#exchange.lose([now], why);
  }

  /** The host knows that a rank ended in good order, whether or not it ever joined. */
  leave(rank: number): void {
    const now = this.#exchange.origins.indexOf(rank);
    if (now >= 0) this.#exchange.leave(now);
  }

  /** The origins of the outsiders that came from the process of this name. */
  originsOf(name: string): number[] {
    return this.#names.flatMap((other, i) => (other === name ? [this.#options.ranks + i] : []));
  }

  get over(): boolean {
    return this.#exchange.over;
  }

  /** Says farewell to the ranks that are still here, and ends. */
  async close(): Promise<void> {
    this.#exchange.close();
    this.#server.close();
    for (const stranger of this.#strangers) stranger.destroy('the rendezvous ended');
    await Promise.all(
      [...this.#members].map((member) => {
        member.send({ type: 'farewell' });
        return member.end();
      }),
    );
  }

  #greet(channel: Channel): void {
    this.#strangers.add(channel);
    const limit = Math.max(64, 2 * this.#options.ranks);
    if (this.#strangers.size > limit) {
      const [oldest] = this.#strangers;
      this.#strangers.delete(oldest!);
      oldest!.destroy('too many connections that do not join');
    }
    const timer = setTimeout(
      () => channel.destroy('it did not join in time'),
      this.#options.handshakeMs ?? HANDSHAKE_MS,
    ).unref();
    const settle = () => {
      clearTimeout(timer);
      this.#strangers.delete(channel);
    };
    channel.onClose = settle;
    const nonce = newNonce();
    channel.onMessage = (message) => {
      const why =
        message.type === 'join' ? this.#objection(message, nonce) : 'the first message must be join';
      // Still a stranger until the connection has closed, so that refusals are bounded too.
      if (why !== undefined) return channel.refuse(why);
      settle();
      this.#admit(channel, message as Join, nonce);
    };
    channel.send({ type: 'hello', version: PROTOCOL_VERSION, nonce });
  }

  /** Why this joiner is refused; undefined when it is welcome. One that proves nothing learns nothing. */
  #objection(join: Join, hostNonce: string): string | undefined {
    const { world, secret, ranks } = this.#options;
    if (join.version !== PROTOCOL_VERSION) {
      return `it speaks protocol version ${PROTOCOL_VERSION}, this rank ${join.version}; use one version of heddle everywhere`;
    }
    const proof = prove(secret, 'joiner', join, hostNonce);
    if (!sameProof(proof, join.proof)) {
      return 'its secret is another one; HEDDLE_SECRET must be the same on every rank, and HEDDLE_ADDRESS must not lead to an earlier or another world';
    }
    if (join.world !== world) {
      return `it serves world ${JSON.stringify(world)}, not ${JSON.stringify(join.world)}; end the other world (perhaps an earlier start of this one) or choose another port (HEDDLE_ADDRESS)`;
    }
    if (join.outside) return undefined;
    if (join.ranks !== ranks) return `its world has ${ranks} ranks, this rank was started for ${join.ranks}`;
    if (join.rank >= ranks) return `there is no rank ${join.rank} in a world of ${ranks}`;
    // Its own place must be free. That others are lost it hears as soon as it sits there.
    const exchange = this.#exchange;
    if (exchange !== this.#first) {
      return `its world goes on with ${exchange.origins.length} other ranks; ${newOrOutside}`;
    }
    if (!exchange.has(join.rank) && !exchange.lost.includes(join.rank)) return undefined;
    if (exchange.lost.length > 0) {
      return `its world is stale: it lost rank ${exchange.lost.join(', ')}; ${newOrOutside}`;
    }
    if (exchange.complete) return `its world has already started, with all its ranks; ${newOrOutside}`;
    return `rank ${join.rank} has already joined; give every process its own rank`;
  }

  #admit(channel: Channel, join: Join, hostNonce: string): void {
    this.#members.add(channel);
    channel.trust(MAX_PAYLOAD);
    const proof = prove(this.#options.secret, 'host', join, hostNonce);
    channel.send({ type: 'welcome', proof });
    if (join.outside) this.#seatOutsider(channel, join.lossTimeoutMs);
    else this.#seat(channel, this.#exchange, join.rank, join.lossTimeoutMs);
  }

  /** An outsider hears of the circle only by its own connection, until it is admitted. */
  #seatOutsider(channel: Channel, lossTimeoutMs: number): void {
    const origin = this.#options.ranks + this.#names.push('') - 1;
    const gone = () => {
      this.#members.delete(channel);
      this.#exchange.withdraw(origin);
    };
    channel.onClose = gone;
    channel.onMessage = (message) => {
      if (message.type === 'wait') {
        this.#names[origin - this.#options.ranks] = message.name;
        this.#exchange.wait(origin, {
          regrouped: (next, rank) => this.#regrouped(channel, next, rank, lossTimeoutMs),
          over: (why) => {
            channel.send({ type: 'refused', why });
            void channel.end();
          },
        });
      } else if (message.type !== 'pong') {
        gone();
        void channel.end();
      }
    };
    channel.watch(lossTimeoutMs, () => channel.destroy('it gave no sign of life'), true);
  }

  #regrouped(channel: Channel, next: Exchange, rank: number, lossTimeoutMs: number): void {
    this.#exchange = next;
    channel.send({ type: 'regrouped', rank, origins: next.origins });
    this.#seat(channel, next, rank, lossTimeoutMs);
  }

  #seat(channel: Channel, exchange: Exchange, rank: number, lossTimeoutMs: number): void {
    channel.onClose = (why) => {
      this.#members.delete(channel);
      exchange.lose([rank], why); // has no effect on a rank that has left cleanly
    };
    channel.onMessage = (message, bytes) => {
      switch (message.type) {
        case 'arrive':
          exchange.arrive(rank, { ...message, bytes });
          break;
        case 'abandon':
          exchange.giveUp(rank, message.ranks, message.why);
          break;
        case 'leave':
          exchange.leave(rank);
          void channel.end();
          break;
        case 'pong':
          break;
        default:
          channel.destroy(`it sent ${message.type}, which only the host sends`);
      }
    };
    const onSilence = () => {
      exchange.lose([rank], `it gave no sign of life for ${lossTimeoutMs} ms`);
      void channel.end(); // not destroyed: should it wake up, it reads that it was given up
    };
    channel.watch(lossTimeoutMs, onSilence, true);
    exchange.sit(rank, {
      completed: (id, parts) => {
        const lengths = parts.map((part) => part.length);
        channel.send({ type: 'completed', id, lengths }, joined(parts));
      },
      failed: (id, loss) => channel.send({ type: 'failed', id, ...loss }),
      lost: (loss) => channel.send({ type: 'lost', ...loss }),
      regrouped: (next, rank) => this.#regrouped(channel, next, rank, lossTimeoutMs),
      waiting: (outsiders) => channel.send({ type: 'waiting', outsiders }),
    });
  }
}

/** The parts in one buffer, made once for all the ranks that get it. */
const joinedParts = new WeakMap<readonly Uint8Array[], Uint8Array>();
const joined = (parts: readonly Uint8Array[]): Uint8Array =>
  getOrMake(joinedParts, parts, () => Buffer.concat(parts));
