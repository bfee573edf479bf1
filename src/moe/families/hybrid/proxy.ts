/**
 * The program of the proxy: it moves a rank's messages. The kernels tell it by words in the wire what may leave; it tells them
 * likewise what has come. Messages in the host's memory it believes only when it has looked at their headers. Those in the
 * GPU's it does not see: there kernels alone keep what they read within bounds, as they do in any case (forward-chunk.ts).
 */

import { HeddleError } from '../../../base/errors.js';
import type { HostView, Network, ProxyParts, ProxyProgram, RemoteWrite } from '../../../gpu/index.js';
import { beforeFirst, numberOfRound } from '../common/waits.js';
import { chunkOfTag, header, inRound, nodeOfTag, phaseOfTag, roundsAfter, tagOf } from './messages.js';

/** The facts of the wire that the program must know; threads can send them to each other. Offsets and lengths are in bytes. */
export interface ProxyData {
  readonly nodes: number;
  readonly node: number;
  readonly localRanks: number;
  readonly localRank: number;
  /** The most tokens that a rank sends: its share of its group's. */
  readonly share: number;
  /** Of them, those of a chunk. */
  readonly chunk: number;
  /** Dispatch, combine. */
  readonly phases: readonly PhaseData[];
}

export interface PhaseData {
  /** Where the sections of the wire begin. */
  readonly ready: number;
  readonly counts: number;
  readonly came: number;
  readonly out: number;
  readonly in: number;
  /** Of a message: its room, where its rows begin, each of them, and how many of a token there may be. */
  readonly room: number;
  readonly rows: number;
  readonly row: number;
  readonly most: number;
}

/** A message's places in the wires of both ranks, and how far it is: the epochs that went and came last. */
interface Message {
  /** From `out` to where the peer has it as `in`. Length and tag are those of the round that is posted. */
  readonly write: RemoteWrite;
  readonly chunk: number;
  /** The name by which the peer knows it when it comes from here. */
  readonly tag: number;
  readonly ready: number;
  readonly count: number;
  readonly came: number;
  readonly in: number;
  readonly rows: number;
  readonly row: number;
  readonly most: number;
  /** Of the same rank and phase; itself, if it is chunk 0. */
  readonly first: Message | null;
  posted: number;
  seen: number;
}

/** By what threads know the program. */
export const hybridProxyModule = { module: new URL(import.meta.url), name: 'hybridProxy' } as const;

export const hybridProxy = (parts: ProxyParts<ProxyData>): ProxyProgram => new HybridProxy(parts);

class HybridProxy implements ProxyProgram {
  readonly #network: Network;
  readonly #memory: HostView;
  readonly #data: ProxyData;
  readonly #sees: boolean;
  /** [phase][hop][chunk], in one row. */
  readonly #messages: readonly Message[];
  /** The header that was read last. */
  readonly #header = new Uint32Array(4);
  readonly #headerBytes = new Uint8Array(this.#header.buffer);
  /** Likewise, the rows of a message. */
  readonly #count = new Uint32Array(1);
  readonly #countBytes = new Uint8Array(this.#count.buffer);

  constructor({ network, memory, placement, data }: ProxyParts<ProxyData>) {
    this.#network = network;
    this.#memory = memory;
    this.#data = data;
    this.#sees = placement === 'host';
    this.#messages = messagesOf(data);
  }

  /** Sends messages that the kernels made ready, and tells the kernels of those that have come. */
  step(): boolean {
    let moved = false;
    for (let i = 0; i < this.#messages.length; i++) {
      const message = this.#messages[i]!;
      const epoch = this.#memory.load(message.ready);
      if (epoch !== message.posted && this.#post(message, epoch)) moved = true;
    }
    for (let tag = this.#network.arrived(); tag >= 0; tag = this.#network.arrived()) {
      this.#receive(tag);
      moved = true;
    }
    return moved;
  }

  /** False where the network has no room now: the next step tries again. */
  #post(message: Message, epoch: number): boolean {
    const { write, count, rows, row, tag } = message;
    this.#memory.read(count, this.#countBytes);
    write.bytes = rows + this.#count[0]! * row;
    write.tag = inRound(tag, epoch);
    if (!this.#network.write(write)) return false;
    message.posted = epoch;
    return true;
  }

  #receive(tag: number): void {
    const message = this.#named(tag);
    if (message === undefined) throw this.#strange(tag, 'names no message of this layer');
    const epoch = this.#roundOf(tag, message);
    if (this.#sees) this.#requirePossible(tag, message, epoch);
    message.seen = epoch;
    this.#memory.store(message.came, epoch);
  }

  /** The message that a peer calls by this tag. */
  #named(tag: number): Message | undefined {
    const { nodes, node, share, chunk } = this.#data;
    const chunks = Math.ceil(share / chunk);
    const hop = (nodeOfTag(tag) - node - 1 + nodes) % nodes;
    if (nodeOfTag(tag) >= nodes || chunkOfTag(tag) >= chunks) return undefined;
    if (hop === nodes - 1) return undefined; // this node itself
    return this.#messages[(phaseOfTag(tag) * (nodes - 1) + hop) * chunks + chunkOfTag(tag)];
  }

  /** Chunk 0 comes in every round; another one with the round of the chunk 0 that came last, or overtakes that of the next. */
  #roundOf(tag: number, message: Message): number {
    const last = (message.first ?? message).seen;
    const after = roundsAfter(last, tag);
    const epoch = (last + after) >>> 0;
    if (after === 1 || (after === 0 && epoch !== message.seen)) return epoch;
    throw this.#strange(tag, `is not of round ${numberOfRound(last + 1)}`);
  }

  /** Kernels use a number from the header as a length, so it must be a possible one. */
  #requirePossible(tag: number, { chunk: index, in: at, most }: Message, epoch: number): void {
    this.#memory.read(at, this.#headerBytes);
    const said = this.#header[header.epoch]!;
    if (said !== epoch)
      throw this.#strange(tag, `is of round ${numberOfRound(said)}, not ${numberOfRound(epoch)}`);
    const { share, chunk } = this.#data;
    const tokens = this.#header[header.tokens]!;
    const here = Math.min(tokens - index * chunk, chunk);
    const mask = this.#header[header.mask]!;
    const rows = this.#header[header.rows]!;
    const least = ones(mask);
    const counted = rows >= least && rows <= least * most;
    if (tokens <= share && (index === 0 || here > 0) && mask < 2 ** here && counted) return;
    const all = `${tokens} tokens, mask ${mask.toString(16)} and ${rows} rows`;
    throw this.#strange(tag, `says ${all}, which cannot be`);
  }

  #strange(tag: number, what: string): HeddleError {
    const { localRanks, localRank } = this.#data;
    const rank = nodeOfTag(tag) * localRanks + localRank;
    return new HeddleError('HEDDLE_MESSAGE', `message ${tag.toString(16)} of rank ${rank} ${what}`);
  }
}

/** In the order in which they are looked at. */
function messagesOf({ nodes, node, localRanks, localRank, share, chunk, phases }: ProxyData): Message[] {
  const chunks = Math.ceil(share / chunk);
  return phases.flatMap(({ ready, counts, came, out, in: into, room, rows, row, most }, phase) =>
    Array.from({ length: nodes - 1 }, (_, hop) => {
      // The node at hop h from here sees this node at the hop that remains, the rest of the way around.
      const back = nodes - 2 - hop;
      const peer = ((node + 1 + hop) % nodes) * localRanks + localRank;
      const made: Message[] = [];
      for (let index = 0; index < chunks; index++) {
        const at = hop * chunks + index;
        made.push({
          write: {
            ...{ peer, from: out + at * room, bytes: 0, tag: 0 },
            to: into + (back * chunks + index) * room,
          },
          ...{ chunk: index, tag: tagOf(phase, node, index), rows, row, most },
          ready: ready + at * 4,
          count: counts + at * 4,
          came: came + at * 4,
          in: into + at * room,
          first: made[0] ?? null,
          ...{ posted: beforeFirst, seen: beforeFirst },
        });
      }
      return made;
    }).flat(),
  );
}

/** Bits that are set. */
function ones(word: number): number {
  let count = 0;
  for (let left = word; left !== 0; left &= left - 1) count++;
  return count;
}
