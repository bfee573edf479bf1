/** Effects as C++: each becomes one call of a helper or a CUDA intrinsic. */
import { HeddleError } from '../../errors/index.js';
import type { Effect, Expr } from '../ir.js';
import type { Space, ValueName } from '../types.js';
import type { Expressions } from './expressions.js';
import {
  atomicHelper,
  awaitEpochHelper,
  awaitFilledHelper,
  hostLoadHelper,
  hostStoreHelper,
  loadHelper,
  storeHelper,
} from './memory.js';
import type { Prelude, Target } from './prelude.js';

interface PointerType {
  readonly to: Exclude<ValueName, 'bool'>;
  readonly space: Space;
}

function pointerType(pointer: Expr): PointerType {
  if (pointer.type.kind !== 'pointer') {
    throw new HeddleError('HEDDLE_PRINT', `memory is accessed through a ${pointer.type.kind}`);
  }
  return pointer.type;
}

export class Effects {
  readonly #target: Target;
  readonly #prelude: Prelude;
  readonly #expressions: Expressions;

  constructor(target: Target, prelude: Prelude, expressions: Expressions) {
    this.#target = target;
    this.#prelude = prelude;
    this.#expressions = expressions;
  }

  /** The effect as an expression. */
  print(effect: Effect, hasResult: boolean): string {
    return this.#target === 'cuda' ? this.#cuda(effect, hasResult) : this.#host(effect);
  }

  #host(effect: Effect): string {
    switch (effect.op) {
      case 'load':
        return `${hostLoadHelper(this.#prelude, pointerType(effect.pointer).to)}(${this.#args(effect.pointer)})`;
      case 'store': {
        const helper = hostStoreHelper(this.#prelude, pointerType(effect.pointer).to);
        return `${helper}(${this.#args(effect.pointer, effect.value)})`;
      }
      default:
        throw new HeddleError(
          'HEDDLE_PRINT',
          `'${effect.op}' involves other threads or the clock; a program for the host has one thread. Use printCuda`,
        );
    }
  }

  #cuda(effect: Effect, hasResult: boolean): string {
    const prelude = this.#prelude;
    const call = (helper: string, ...args: readonly Expr[]): string =>
      `${prelude.use(helper)}(${this.#args(...args)})`;
    const warp = (intrinsic: string, ...args: readonly Expr[]): string =>
      `${intrinsic}(${prelude.use('full_warp')}, ${this.#args(...args)})`;
    switch (effect.op) {
      case 'load': {
        const { to, space } = pointerType(effect.pointer);
        if (space === 'shared' && effect.order === 'weak') {
          return this.#expressions.place(effect.pointer);
        }
        return `${loadHelper(prelude, to, space, effect)}(${this.#args(effect.pointer)})`;
      }
      case 'store': {
        const { to, space } = pointerType(effect.pointer);
        if (space === 'shared' && effect.order === 'weak') {
          const value = this.#expressions.print(effect.value);
          const cut = to === 'u8' || to === 'u16' ? `${to}(${value})` : value;
          return `${this.#expressions.place(effect.pointer)} = ${cut}`;
        }
        return `${storeHelper(prelude, to, space, effect)}(${this.#args(effect.pointer, effect.value)})`;
      }
      case 'atomic': {
        const { to, space } = pointerType(effect.pointer);
        return `${atomicHelper(prelude, effect.name, to, space, effect)}(${this.#args(effect.pointer, effect.value)})`;
      }
      case 'compareExchange': {
        const { to, space } = pointerType(effect.pointer);
        const helper = atomicHelper(prelude, 'compareExchange', to, space, effect);
        return `${helper}(${this.#args(effect.pointer, effect.compare, effect.value)})`;
      }
      case 'fence':
        return call(`fence_${effect.scope}`);
      case 'awaitEpoch': {
        const helper = awaitEpochHelper(prelude, pointerType(effect.pointer).space, effect);
        return `${helper}(${this.#args(effect.pointer, effect.epoch, effect.limit)})`;
      }
      case 'awaitFilled': {
        const helper = awaitFilledHelper(prelude, pointerType(effect.pointer).space, effect.scope);
        return `${helper}(${this.#args(effect.pointer, effect.empty, effect.limit)})`;
      }
      case 'barrier':
        return '__syncthreads()';
      case 'warpBarrier':
        return '__syncwarp()';
      case 'shuffle':
        return warp('__shfl_sync', effect.value, effect.lane);
      case 'shuffleXor':
        return warp('__shfl_xor_sync', effect.value, effect.lane);
      case 'shuffleUp':
        return warp('__shfl_up_sync', effect.value, effect.lane);
      case 'shuffleDown':
        return warp('__shfl_down_sync', effect.value, effect.lane);
      case 'ballot':
        return warp('__ballot_sync', effect.value);
      case 'any':
        return hasResult ? `${warp('__any_sync', effect.value)} != 0` : warp('__any_sync', effect.value);
      case 'all':
        return hasResult ? `${warp('__all_sync', effect.value)} != 0` : warp('__all_sync', effect.value);
      case 'match':
        return warp('__match_any_sync', effect.value);
      case 'elect':
        // All lanes take part, so the lowest active one is lane 0. elect.sync promises some lane, not which.
        return 'threadIdx.x % 32u == 0u';
      case 'clock':
        return call('clock_ns');
      case 'sleep':
        return `__nanosleep(${this.#args(effect.nanoseconds)})`;
      case 'prefetch':
        return call('prefetch', effect.pointer);
      case 'awaitPrevious':
        return call('await_previous');
      case 'releaseNext':
        return call('release_next');
      case 'bulkLoad':
        return call('bulk_load', effect.to, effect.from, effect.bytes, effect.barrier);
      case 'bulkStore':
        return call('bulk_store', effect.to, effect.from, effect.bytes);
      case 'bulkCommit':
        return call('bulk_commit');
      case 'bulkWait':
        return `${prelude.use(effect.reads ? 'bulk_wait_reads' : 'bulk_wait')}<${effect.pending}>()`;
      case 'mbarrierInit':
        return call('mbarrier_init', effect.barrier, effect.count);
      case 'mbarrierExpect':
        return call('mbarrier_expect', effect.barrier, effect.bytes);
      case 'mbarrierAwait':
        return call('mbarrier_await', effect.barrier, effect.parity);
    }
  }

  #args(...args: readonly Expr[]): string {
    return args.map((arg) => this.#expressions.print(arg)).join(', ');
  }
}
