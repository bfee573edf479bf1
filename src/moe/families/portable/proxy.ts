/**
 * The program of a portable rank's proxy: it posts what kernels have put into the ring, each as one write, and raises the
 * signals of what has come.
 */
import { HeddleError } from '../../../base/errors.js';
import type { ProxyMaker, RemoteWrite } from '../../../gpu/index.js';
import { beforeFirst } from '../common/waits.js';
import { commandBytes, type ProxyPlan, roundNear, tagOf } from './commands.js';

export const portableProxy: ProxyMaker<ProxyPlan> = ({ network, memory, data: { ring, signals } }) => {
  const bytes = new Uint8Array(commandBytes);
  const command = new Uint32Array(bytes.buffer);
  const write: RemoteWrite = { peer: 0, from: 0, to: 0, bytes: 0, tag: 0 };
  /** The values to which signals have been raised, of those that are added to: nobody else writes them. */
  const sums = new Uint32Array(signals.count).fill(beforeFirst);
  /** The command to be posted next, and the last round that a signal spoke of: neighbours of those that others will. */
  let next = beforeFirst;
  let round = beforeFirst;

  /** A command that the network has no room for stays where it is. */
  const post = (): boolean => {
    const slot = next & (ring.slots - 1);
    if (memory.load(ring.posted + 4 * slot) !== (next + 1) >>> 0) return false;
    memory.read(ring.commands + commandBytes * slot, bytes);
    const value = command[5]!;
    const adds = command[6]!;
    write.peer = command[0]!;
    write.to = command[1]!;
    write.from = command[2]!;
    write.bytes = command[3]!;
    write.tag = tagOf(signals, command[4]!, value, adds);
    if (!network.write(write)) return false;
    next = (next + 1) >>> 0;
    if (adds === 0) round = value;
    return true;
  };

  const raise = (): boolean => {
    const tag = network.arrived();
    if (tag < 0) return false;
    const number = tag >>> (signals.valueBits + 1);
    if (number >= signals.count)
      throw new HeddleError('HEDDLE_PROXY', `a write came whose tag, ${tag}, names no signal`);
    const signal = signals.offset + signals.stride * number;
    const value = (tag >>> 1) & ((1 << signals.valueBits) - 1);
    if ((tag & 1) === 0) {
      round = roundNear(round, value, signals);
      memory.store(signal, round);
    } else {
      sums[number]! += value;
      memory.store(signal, sums[number]!);
    }
    return true;
  };

  return {
    step() {
      const posted = post();
      return raise() || posted;
    },
  };
};
