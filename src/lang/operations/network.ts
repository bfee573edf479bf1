/**
 * What a network does beside the thread that asks it. CUDA has no such thing: these stand in twins of foreign functions,
 * which are not printed.
 */
import { HeddleError } from '../../base/errors.js';
import { scope } from './memory.js';
import { choice, like, operation, pointer, value } from './operation.js';

const cuda = {
  print(): never {
    throw new HeddleError('HEDDLE_PRINT', 'what a network does has no CUDA');
  },
};

export const network = {
  // Bytes on their way to another rank: read as late as they may be, and landing in pieces, in any order.
  'network.put': operation({
    takes: { to: pointer('u8'), from: pointer('u8'), bytes: value('u32') },
    returns: 'void',
    alone: { to: ['writes'], from: ['reads'] },
    twinOnly: true,
    cuda,
  }),

  // A word of another rank takes a value, or is added to. As a release it comes behind all that this rank has put there
  // so far, as the calling thread knows it, and behind what happened before.
  'network.signal': operation({
    takes: { pointer: pointer('u64'), value: like('pointer'), how: choice(['set', 'add']) },
    options: { order: choice(['relaxed', 'release']), scope },
    returns: 'void',
    alone: { pointer: ['writes'] },
    twinOnly: true,
    cuda,
    removable: true,
  }),
};
