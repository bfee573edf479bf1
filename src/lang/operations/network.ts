/**
 * Operations of a network beside the thread that asks for them. CUDA has no such thing: these stand in twins of foreign functions,
 * which are not printed.
 */
import { HeddleError } from '../../base/errors.js';
import type { Scope } from '../expression.js';
import type { Pointer, u32, u64 } from '../language.js';
import { scope } from './memory.js';
import { choice, like, operation, pointer, value } from './operation.js';
import { calls } from './parts.js';

const cuda = (): never => {
  throw new HeddleError('HEDDLE_PRINT', 'what a network does has no CUDA');
};

export const network = {
  network: {
    /**
     * Sends bytes to another rank. They are read from now on, as late as may be, and land in any order: until whoever
     * acquires a release signal behind them says so, the source may not be written again.
     */
    put: operation({
      signature: calls<(to: Pointer<'u8'>, from: Pointer<'u8'>, bytes: u32) => void>(),
      takes: { to: pointer('u8'), from: pointer('u8'), bytes: value('u32') },
      alone: { to: ['writes'], from: ['reads'] },
      twinOnly: true,
      cuda,
      simulate: ({ to, from, bytes }, machine) => machine.call('put', to, from, bytes, machine.site),
    }),

    /**
     * Sets, or adds to, a word of another rank, later. As a release it comes behind all that was put there before, by this
     * thread or by threads of this rank that it has met, and behind whatever else happened before.
     */
    signal: operation({
      signature:
        calls<
          (
            pointer: Pointer<'u64'>,
            value: u64,
            how: 'set' | 'add',
            options: { readonly order: 'relaxed' | 'release'; readonly scope: Scope },
          ) => void
        >(),
      takes: { pointer: pointer('u64'), value: like('pointer'), how: choice(['set', 'add']) },
      options: { order: choice(['relaxed', 'release']), scope },
      alone: { pointer: ['writes'] },
      twinOnly: true,
      cuda,
      simulate({ pointer, value, how, order, scope }, machine) {
        const kind = how === 'add' ? 'update' : 'write';
        machine.call('signal', { kind, order, scope, bytes: 8 }, pointer, value);
      },
      removable: true,
    }),
  },
};
