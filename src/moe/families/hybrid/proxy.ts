/**
 * The program of the proxy: it moves a rank's messages. The kernels tell it by words in the wire what may leave; it tells them
 * likewise what has come. Messages in the host's memory it believes only when it has looked at their headers. Those in the
 * GPU's it does not see: there kernels alone keep what they read within bounds, as they do in any case (forward-chunk.ts).
 */

import { HeddleError } from '../../../base/errors.js';
import type { ProxyMaker, RemoteWrite } from '../../../gpu/index.js';
import { initialEpoch, numberOfRound } from '../common/waits.js';
import { header, inRound, roundsAfter, senderOfTag, tagOf, withoutRound } from './messages.js';

/** The facts of the wire that the program must know; threads can send them to each other. Offsets and lengths are in bytes. */
export interface ProxyData {
  readonly nodes: number;
  readonly node: number;
  readonly localRanks: number;
  readonly localRank: number;
  /** Lines that may come from each other node (rails.ts). */
  readonly lines: number;
  /** The most tokens that a rank sends: its share of its group's. */
  readonly share: number;
  /** The most tokens of a chunk. */
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
  /** The room of a message, where its rows begin, and the bytes of each. */
  readonly room: number;
  readonly rows: number;
  readonly row: number;
}

/** A message that leaves, from where the kernels pack it to where the peer has it as `in`. Length and tag are those of the round that is posted. */
interface Outgoing {
  readonly write: RemoteWrite;
  /** The name by which the peer knows it. */
  readonly tag: number;
  readonly ready: number;
  readonly count: number;
  readonly rows: number;
  readonly row: number;
  /** The epoch that went last. */
  posted: number;
}

/** A message that comes. */
interface Incoming {
  readonly chunk: number;
  readonly came: number;
  readonly in: number;
  /** Chunk 0 of the same rank and phase: itself, perhaps. */
  readonly first: Incoming | null;
  /** The epoch that came last. */
  seen: number;
}

/** By what threads know the program. */
export const hybridProxyModule = { module: new URL(import.meta.url), name: 'hybridProxy' } as const;

export const hybridProxy: ProxyMaker<ProxyData> = ({ network, memory, side, data, out }) => {
  const links = linksOf(data, out);
  /** In the order in which they are looked at. */
  const leaving = links.flatMap(([sends], phase) => sends.flatMap((link) => outgoing(data, phase, link)));
  /** By the tags by which peers call them. */
  const coming = new Map<number, Incoming>();
  for (const [phase, [, takes]] of links.entries())
    for (const link of takes)
      for (const message of incoming(data, phase, link))
        coming.set(tagOf(phase, senderOf(data, link), message.chunk), message);
  /** The header, and the number of rows, that were read last. */
  const words = new Uint32Array(4);
  const bytes = new Uint8Array(words.buffer);
  const count = new Uint32Array(1);
  const countBytes = new Uint8Array(count.buffer);

  /** False where the network has no room now: the next step tries again. */
  const post = (message: Outgoing, epoch: number): boolean => {
    const { write, rows, row, tag } = message;
    memory.read(message.count, countBytes);
    write.bytes = rows + count[0]! * row;
    write.tag = inRound(tag, epoch);
    if (!network.write(write)) return false;
    message.posted = epoch;
    return true;
  };

  const receive = (tag: number): void => {
    const message = coming.get(withoutRound(tag));
    if (message === undefined) throw strange(data, tag, 'names no message of this layer');
    const epoch = roundOf(data, tag, message);
    if (side === 'host') {
      memory.read(message.in, bytes);
      requirePossible(data, tag, message, epoch, words);
    }
    message.seen = epoch;
    memory.store(message.came, epoch);
  };

  return {
    /** Sends messages that the kernels made ready, and tells the kernels of those that have come. */
    step() {
      let moved = false;
      for (let i = 0; i < leaving.length; i++) {
        const message = leaving[i]!;
        const epoch = memory.load(message.ready);
        if (epoch !== message.posted && post(message, epoch)) moved = true;
      }
      for (let tag = network.arrived(); tag >= 0; tag = network.arrived()) {
        receive(tag);
        moved = true;
      }
      return moved;
    },
  };
};

/** Chunk 0 comes in every round; another one with the round of the chunk 0 that came last, or overtakes that of the next. */
function roundOf(data: ProxyData, tag: number, message: Incoming): number {
  const last = (message.first ?? message).seen;
  const after = roundsAfter(last, tag);
  const epoch = (last + after) >>> 0;
  if (after === 1 || (after === 0 && epoch !== message.seen)) return epoch;
  throw strange(data, tag, `is not of round ${numberOfRound(last + 1)}`);
}

/** Kernels use a number from the header as a length, so it must be a possible one. */
function requirePossible(
  data: ProxyData,
  tag: number,
  { chunk: index }: Incoming,
  epoch: number,
  words: Uint32Array,
): void {
  const said = words[header.epoch]!;
  if (said !== epoch)
    throw strange(data, tag, `is of round ${numberOfRound(said)}, not ${numberOfRound(epoch)}`);
  const { share, chunk } = data;
  const tokens = words[header.tokens]!;
  const here = Math.min(tokens - index * chunk, chunk);
  const mask = words[header.mask]!;
  const rows = words[header.rows]!;
  if (tokens <= share && (index === 0 || here > 0) && mask < 2 ** here && rows === ones(mask)) return;
  const all = `${tokens} tokens, mask ${mask.toString(16)} and ${rows} rows`;
  throw strange(data, tag, `says ${all}, which cannot be`);
}

function strange({ localRanks, localRank, lines }: ProxyData, tag: number, what: string): HeddleError {
  const sender = senderOfTag(tag);
  const rank = lines === 1 ? sender * localRanks + localRank : sender;
  return new HeddleError('HEDDLE_MESSAGE', `message ${tag.toString(16)} of rank ${rank} ${what}`);
}

/** A rank of another node with which messages are exchanged: where they lie in this rank's wire, and in that one's. */
interface Link {
  readonly node: number;
  readonly localRank: number;
  readonly here: number;
  readonly there: number;
}

const chunksOf = ({ share, chunk }: ProxyData): number => Math.ceil(share / chunk);

/** The name of a rank in tags. */
const senderOf = (
  { lines }: Pick<ProxyData, 'lines'>,
  { node, localRank }: Pick<Link, 'node' | 'localRank'>,
): number => node * lines + (localRank % lines);

/** [phase]: the links by which messages leave, and by which they come. Own tokens go to carriers, carried ones go home. */
function linksOf(data: ProxyData, out: readonly number[]): readonly (readonly [Link[], Link[]])[] {
  const { nodes, node, localRanks, localRank, lines } = data;
  /** Lines back from a rank's own number to the next that is left in a node: its carrier (rails.ts). */
  const steps = (of: number, from: number) => {
    let n = 0;
    while (n < lines && out.includes(of * localRanks + ((from + n) % localRanks))) n++;
    return n;
  };
  const carriers: Link[] = [];
  const carried: Link[] = [];
  for (let hop = 0; hop < nodes - 1; hop++) {
    const other = (node + 1 + hop) % nodes;
    // The node at hop h from here sees this node at the hop that remains, the rest of the way around.
    const home = nodes - 2 - hop;
    const n = steps(other, localRank);
    if (n < lines) {
      const there = n * (nodes - 1) + home;
      carriers.push({ node: other, localRank: (localRank + n) % localRanks, here: hop, there });
    }
    for (let back = 0; back < lines; back++) {
      const from = (localRank - back + localRanks) % localRanks;
      if (steps(node, from) === back && !out.includes(other * localRanks + from))
        carried.push({ node: other, localRank: from, here: back * (nodes - 1) + hop, there: home });
    }
  }
  return [
    [carriers, carried],
    [carried, carriers],
  ];
}

/** The messages that leave by a link. */
function outgoing(data: ProxyData, phase: number, { node, localRank, here, there }: Link): Outgoing[] {
  const { ready, counts, out, in: into, room, rows, row } = data.phases[phase]!;
  const chunks = chunksOf(data);
  return Array.from({ length: chunks }, (_, chunk) => {
    const [at, to] = [here * chunks + chunk, into + (there * chunks + chunk) * room];
    return {
      write: { peer: node * data.localRanks + localRank, from: out + at * room, to, bytes: 0, tag: 0 },
      ...{ tag: tagOf(phase, senderOf(data, data), chunk), rows, row, posted: initialEpoch },
      ...{ ready: ready + at * 4, count: counts + at * 4 },
    };
  });
}

/** The messages that come by a link. */
function incoming(data: ProxyData, phase: number, { here }: Link): Incoming[] {
  const { came, in: into, room } = data.phases[phase]!;
  const made: Incoming[] = [];
  for (let chunk = 0; chunk < chunksOf(data); chunk++) {
    const at = here * chunksOf(data) + chunk;
    const first = made[0] ?? null;
    made.push({ chunk, came: came + at * 4, in: into + at * room, first, seen: initialEpoch });
  }
  return made;
}

function ones(word: number): number {
  let count = 0;
  for (let left = word; left !== 0; left &= left - 1) count++;
  return count;
}
