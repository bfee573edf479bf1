import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { RankLostError, RendezvousError } from '../../base/errors.js';
import { formatAddress } from './address.js';
import { Channel } from './channel.js';
import { type CircleEvents, type FarLink, passing } from './circle.js';
import type { Place } from './environment.js';
import { type Call, MAX_PAYLOAD } from './exchange.js';
import { type Message, PROTOCOL_VERSION, ProtocolError } from './messages.js';
import { Rendezvous } from './rendezvous.js';
import { newNonce, prove, requireSecret, sameProof } from './secret.js';

/** One attempt to connect and be welcomed. */
const ATTEMPT_MS = 10_000;
/** Has at least so long, however little is left: a shorter one would only tell of its own haste. */
const SHORTEST_ATTEMPT_MS = 500;
/** The first and the longest pause between attempts. */
const PAUSE_MS = 25;
const LONGEST_PAUSE_MS = 1_000;

/**
 * Joins the world at the process that hosts its rendezvous: rank 0, which this process may be itself, unless the launcher does.
 * `welcomed` runs in the turn of the welcome, so that nothing is missed.
 */
export async function joinHost<T>(place: Place, welcomed: (link: FarLink) => T): Promise<T> {
  const { lossTimeoutMs } = place;
  requireSecret(place.address.host, place.secret);
  const hosts = place.rank === 0 && !place.hosted && !place.outside;
  const rendezvous = hosts ? await Rendezvous.listen(place) : undefined;
  passing('join', 'ready');
  const here = rendezvous ? { ...place, address: rendezvous.address } : place;
  try {
    return await reach(here, (channel) => {
      const silent = `it gave no sign of life for ${lossTimeoutMs} ms`;
      channel.watch(lossTimeoutMs, () => channel.destroy(silent), false);
      return welcomed(linkOver(channel, place, rendezvous));
    });
  } catch (error) {
    await rendezvous?.close();
    throw error;
  }
}

/** `place` changes its rank and ranks where the circle regroups. */
function linkOver(channel: Channel, place: Place, rendezvous: Rendezvous | undefined): FarLink {
  let events!: CircleEvents;
  let ended = false;
  /** Whether the host is rank 0 of the present circle. The others may have gone on without it, though it runs. */
  let hostIsRank = !place.hosted;
  channel.trust(place.ranks * MAX_PAYLOAD);
  channel.onMessage = receive;
  channel.onClose = hostIsGone;

  function receive(message: Message, bytes: Uint8Array): void {
    switch (message.type) {
      case 'completed': {
        const total = message.lengths.reduce((sum, length) => sum + length, 0);
        if (message.lengths.length !== place.ranks || total !== bytes.length)
          throw new ProtocolError(`${bytes.length} bytes as the parts of ${message.lengths.length} ranks`);
        let end = 0;
        const parts = message.lengths.map((length) => {
          end += length;
          return bytes.slice(end - length, end);
        });
        events.completed(message.id, parts);
        break;
      }
      case 'failed':
        events.failed(message.id, message);
        break;
      case 'lost':
        // The host may close the connection to a rank that is lost: it is not gone for that.
        if (message.ranks.includes(place.rank)) ended = true;
        events.lost(message);
        break;
      case 'regrouped':
        goOn(message.origins, message.rank);
        break;
      case 'waiting':
        events.waiting(message.outsiders);
        break;
      case 'refused': // an outsider, for whom the wait is over
        ended = true;
        events.ended(refusal(place, message.why));
        break;
      case 'ping':
        channel.send({ type: 'pong' });
        break;
      case 'farewell':
        if (place.hosted) {
          hostIsGone('it ended the rendezvous');
        } else if (!ended) {
          ended = true;
          events.departed(hostIsRank ? { ranks: [0], why: 'it left the world' } : worldIsOver());
          events.ended(cannotGoOn());
        }
        break;
      default:
        channel.destroy(`it sent ${message.type}, which the host does not send to a member`);
    }
  }

  /** Goes on in the next circle over this connection. */
  function goOn(origins: readonly number[], rank: number): void {
    const ranks = origins.length;
    if (rank >= ranks) throw new ProtocolError(`a circle of ${ranks} ranks to rank ${rank}`);
    channel.trust(ranks * MAX_PAYLOAD);
    hostIsRank &&= origins[0] === 0;
    place = { ...place, rank, ranks, outside: false };
    events.regrouped(origins, rank);
  }

  function cannotGoOn(cause?: Error): RendezvousError {
    return new RendezvousError(
      'the rendezvous of this world is gone with the process that hosted it, so nobody can go on; ' +
        "under 'heddle run' the launcher hosts it, and any rank may be lost",
      { cause },
    );
  }

  function hostIsGone(why: string): void {
    if (ended) return;
    ended = true;
    const cause = new Error(why);
    events.ended(cannotGoOn(cause));
    events.lost(
      hostIsRank ? new RankLostError([0], 'work between calls', undefined, { cause }) : worldIsOver(cause),
    );
  }

  /** Where the host is no rank. */
  function worldIsOver(cause?: Error): RendezvousError {
    const { hosted, address } = place;
    const host = hosted ? 'the launcher' : 'the process that was rank 0';
    return new RendezvousError(
      `${host}, which hosts the rendezvous at ${formatAddress(address)}, is gone; this world cannot go on`,
      { cause },
    );
  }

  return {
    hear(heard) {
      events = heard;
    },

    arrive({ id, kind, operation, timeoutMs, bytes }: Call): void {
      // A socket may keep what it is given; the caller may reuse its bytes as soon as the call returns.
      if (place.outside) channel.send({ type: 'wait', name: place.name });
      else channel.send({ type: 'arrive', id, kind, operation, timeoutMs }, bytes.slice());
    },

    giveUp(ranks: readonly number[], reason: string): void {
      channel.send({ type: 'abandon', ranks: [...new Set(ranks)], why: reason.slice(0, 1000) });
    },

    async leave(): Promise<void> {
      ended = true;
      channel.send({ type: 'leave' });
      await channel.end();
      await rendezvous?.close();
    },

    keepAlive: (yes) => channel.keepAlive(yes),
  };
}

/** Connects and is welcomed; tries again, since rank 0 may start last, until the time is over. */
async function reach<T>(place: Place, welcomed: (channel: Channel) => T): Promise<T> {
  const { timeoutMs } = place;
  const deadline = performance.now() + timeoutMs;
  for (let pause = PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
    const leftMs = Math.max(deadline - performance.now(), SHORTEST_ATTEMPT_MS);
    const limitMs = Math.ceil(Math.min(leftMs, ATTEMPT_MS));
    try {
      return await attempt(place, limitMs, welcomed);
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

function refusal({ name, address }: Place, why: string): RendezvousError {
  return new RendezvousError(
    `${name} cannot join at ${formatAddress(address)}: the rendezvous says that ${why}`,
  );
}

/** One handshake. A refusal is a RendezvousError, anything else may pass. `welcomed` runs in the turn of the welcome, so that it misses no message after it. */
function attempt<T>(place: Place, limitMs: number, welcomed: (channel: Channel) => T): Promise<T> {
  const { rank, ranks, world, secret, outside, lossTimeoutMs } = place;
  const join = { version: PROTOCOL_VERSION, world, rank, ranks, outside, lossTimeoutMs, nonce: newNonce() };
  const [host, port] = [
    place.address.host === 'localhost' ? '127.0.0.1' : place.address.host,
    place.address.port,
  ];
  return new Promise((resolve, reject) => {
    const channel = new Channel(connect({ host, port }));
    const timer = setTimeout(() => channel.destroy(`it did not answer within ${limitMs} ms`), limitMs);
    const refuse = (why: string) => {
      reject(refusal(place, why));
      channel.destroy('refused');
    };
    channel.onClose = (why) => {
      clearTimeout(timer);
      reject(new Error(why));
    };
    let hostNonce: string | undefined;
    channel.onMessage = (message) => {
      if (message.type === 'hello' && hostNonce === undefined) {
        hostNonce = message.nonce;
        if (message.version !== PROTOCOL_VERSION) {
          refuse(
            `it speaks protocol version ${message.version}, this rank ${PROTOCOL_VERSION}; use one version of heddle everywhere`,
          );
          return;
        }
        channel.send({ type: 'join', ...join, proof: prove(secret, 'joiner', join, hostNonce) });
      } else if (message.type === 'refused') {
        refuse(message.why);
      } else if (message.type === 'welcome' && hostNonce !== undefined) {
        if (!sameProof(message.proof, prove(secret, 'host', join, hostNonce))) {
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
