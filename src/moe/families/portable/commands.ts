/**
 * The words by which kernels and their proxy talk to each other. A put is a command in a ring. It becomes one write, whose tag says which
 * signal is raised once the bytes are there, and to what. Signals lie one behind the other in the window, so a small number
 * names each. A value that is added is small. Of a value that is a round the lower bits are enough: it is close to the round
 * that the receiver is in.
 */
import { byteSize, section } from '../../../lang/index.js';
import type { Layer } from '../../layer/index.js';
import type { PortableTuning } from './knobs.js';
import { chunksOf, messagesOf } from './messages.js';
import { type PortableWindow, returnedParts } from './window.js';

/** A command is two vectors: peer, to, from, bytes; signal, value, adds. Places are offsets in the window. */
export const commandBytes = 32;

export type ProxyPlan = Readonly<ReturnType<typeof proxyPlan>>;
type Signals = ProxyPlan['signals'];

/** A tag has 31 bits, one of which says whether the value is added. */
const tagBits = 30;

/** The facts about a window that the proxy's program must know. */
export function proxyPlan(window: PortableWindow) {
  const [first, last, posted] = [
    section(window, 'arrived'),
    section(window, 'released'),
    section(window, 'posted'),
  ];
  const stride = byteSize[first.type];
  const count = (last.offset - first.offset) / stride + last.length;
  return {
    ring: { posted: posted.offset, commands: section(window, 'commands').offset, slots: posted.length },
    signals: {
      offset: first.offset,
      stride,
      count,
      // How many of a tag's bits hold the value.
      valueBits: Math.max(0, tagBits - Math.ceil(Math.log2(count))),
    },
  };
}

/** The tag of a command's write. */
export function tagOf(
  { offset, stride, valueBits }: Signals,
  signal: number,
  value: number,
  adds: number,
): number {
  const number = (signal - offset) / stride;
  return (((number << valueBits) | (value & ((1 << valueBits) - 1))) << 1) | adds;
}

/** The round whose lower bits are `lower`; of all such rounds, the one nearest to `round`. */
export function roundNear(round: number, lower: number, { valueBits }: Signals): number {
  const unused = 32 - valueBits;
  return (round + (((lower - round) << unused) >> unused)) >>> 0;
}

/**
 * Commands that the ring has room for: those of a combine, and of the dispatch behind it. By the end of a phase's receive all
 * commands of the phase before have been carried out: peers have told what came of them.
 */
export function ringSlots(shape: Layer & PortableTuning): number {
  const { ranks, maxTokens, topK, weights } = shape;
  const { ofToken } = messagesOf(shape);
  const routes = ranks * chunksOf(shape) * (weights ? 2 : 1);
  const rows = maxTokens * Math.min(topK, ranks) * ofToken;
  const home = ranks * maxTokens * returnedParts(shape).parts;
  const handed = maxTokens * returnedParts(shape).parts;
  return 2 ** Math.ceil(Math.log2(routes + rows + home + handed + ranks));
}
