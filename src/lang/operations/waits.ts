/**
 * Waits for a word of memory, for time, and for the launch before. Every poll is a load of the given order, so a wait that ends has the
 * ordering of the load that ended it. Short waits never read the clock: the first look comes after 256 polls, and
 * starts the limit. A limit of 0 polls exactly once.
 */
import type { Scope } from '../expression.js';
import type { bool, Pointer, u32, u64, v16 } from '../language.js';
import { scope } from './memory.js';
import { choice, looksOnce, operation, optional, pointer, value } from './operation.js';
import { calls } from './parts.js';
import { accessed, load, suffix } from './ptx.js';

const allBits = 0xffff_ffff;

export interface WaitOptions {
  readonly order: 'relaxed' | 'acquire';
  readonly scope: Scope;
  /** Microseconds after which the wait gives up. */
  readonly limit: u32;
}

/** GPUs before Hopper begin a launch when those before it have ended: there is nothing to wait for, and nothing to release. */
const ofDependentLaunch = (name: string, what: string): string => `DEVICE void ${name}() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.${what};" ::: "memory");
#endif
}`;

export const waits = {
  /**
   * Waits until the u32 there, or the lower half of the u64, has reached `epoch` (wrap-safe); or equals it, or differs
   * from it; or those of its bits that `mask` has. False when the limit ran out.
   */
  awaitEpoch: operation({
    signature:
      calls<
        (
          pointer: Pointer<'u32'> | Pointer<'u64'>,
          epoch: u32,
          options: WaitOptions & { readonly until?: '>=' | '==' | '!='; readonly mask?: u32 },
        ) => bool
      >(),
    takes: { pointer: pointer('u32', 'u64'), epoch: value('u32') },
    options: {
      order: choice(['relaxed', 'acquire']),
      scope,
      limit: value('u32'),
      until: choice(['>=', '==', '!='], '>='),
      mask: optional('u32', allBits),
    },
    returns: 'bool',
    alone: { pointer: ['reads'] },
    named: 'arrived',
    cuda(effect, { prelude, args }) {
      const of = accessed(effect);
      const { to } = of;
      const loads = prelude.add(load(of));
      const whole = effect.mask.kind === 'const' && effect.mask.value === allBits;
      const spoken = { '>=': 'await_epoch', '==': 'await_equal', '!=': 'await_other' }[effect.until];
      const name = `${spoken}${whole ? '' : '_masked'}${suffix(of)}`;
      // The lower half of a u64 is loaded with the other: accesses that overlap in part order nothing.
      const loaded = to === 'u64' ? `u32(${loads}(p))` : `${loads}(p)`;
      const word = whole ? loaded : `(${loaded} & mask)`;
      const test = effect.until === '>=' ? `i32(${word} - epoch) >= 0` : `${word} ${effect.until} epoch`;
      prelude.add(
        `DEVICE bool ${name}(const ${to}* p, u32 epoch, ${whole ? '' : 'u32 mask, '}u32 limit_us) {
  u64 start = 0u;
  for (u32 polls = 1u;; ++polls) {
    if (${test}) return true;
    if (limit_us == 0u) return false;
    if (polls % 256u == 0u && past_limit(start, limit_us)) return false;
  }
}`,
      );
      const operands = whole ? [effect.epoch] : [effect.epoch, effect.mask];
      return `${name}(${args(effect.pointer, ...operands, effect.limit)})`;
    },
    simulate: ({ pointer, epoch, ...how }, machine) => machine.await(pointer, { ...how, wanted: epoch }),
    misgiven: [looksOnce],
  }),

  /** Waits until the last u32 of the 16 bytes there differs from `empty`; single-copy atomic, relaxed. */
  awaitFilled: operation({
    signature:
      calls<
        (pointer: Pointer<'v16'>, empty: u32, options: { readonly scope: Scope; readonly limit: u32 }) => v16
      >(),
    takes: { pointer: pointer('v16'), empty: value('u32') },
    options: { scope, limit: value('u32') },
    returns: 'v16',
    alone: { pointer: ['reads'] },
    named: 'filled',
    cuda(effect, { prelude, args }) {
      const of = accessed({ ...effect, order: 'relaxed' });
      const loads = prelude.add(load(of));
      const text = `DEVICE v16 await_filled${suffix(of)}(const v16* p, u32 empty, u32 limit_us) {
  u64 start = 0u;
  for (u32 polls = 1u;; ++polls) {
    const v16 value = ${loads}(p);
    if (value.w != empty || limit_us == 0u) return value;
    if (polls % 256u == 0u && past_limit(start, limit_us)) return value;
  }
}`;
      return `${prelude.add(text)}(${args(effect.pointer, effect.empty, effect.limit)})`;
    },
    simulate: ({ pointer, empty, ...how }, machine) =>
      machine.await(pointer, { ...how, until: '!=', wanted: empty, order: 'relaxed' }),
    misgiven: [looksOnce],
  }),

  /** The GPU's clock in nanoseconds (%globaltimer). */
  clock: operation({
    signature: calls<() => u64>(),
    returns: 'u64',
    alone: {},
    named: 'now',
    cuda: (_, { prelude }) => `${prelude.use('clock_ns')}()`,
    simulate(_, machine) {
      machine.polls();
      machine.give('clock');
    },
  }),

  sleep: operation({
    signature: calls<(nanoseconds: u32) => void>(),
    takes: { nanoseconds: value('u32') },
    alone: {},
    cuda: ({ nanoseconds }, { args }) => `__nanosleep(${args(nanoseconds)})`,
    simulate: ({ nanoseconds }, machine) => machine.pause('sleep', 'sleep', nanoseconds),
  }),

  /** Waits until the kernels before this one on its stream have ended, and their writes are visible. */
  awaitPrevious: operation({
    cuda: ofDependentLaunch('await_previous', 'wait'),
    simulate: (_, machine) => machine.pause('previous'),
    removable: true,
  }),
  /** Lets the next kernel start early. It may not read what this one writes before its own `awaitPrevious`. */
  releaseNext: operation({
    cuda: ofDependentLaunch('release_next', 'launch_dependents'),
    simulate: (_, machine) => machine.call('releaseNext'),
  }),
};
