import type { AccessForm, IrModule } from '../../lang/index.js';
import type { PtxKernel } from '../../lang/ptx/index.js';
import type { DetectedForm, Site } from './detector/detector.js';
import type { LaneMeeting } from './lanes.js';

/** The effect of a statement on memory. There is one object for each, which generated code names by its number. */
export interface StatementAccess extends DetectedForm {
  readonly site: number;
}

/** A weak access. What an agent does on behalf of a thread is told as one, too. */
export const weakly = (kind: AccessForm['kind'], bytes: number, site: number): StatementAccess => {
  return { kind, order: 'weak', scope: 'cta', bytes, site };
};

/** The memory at which a waiting statement looks: a word, the last word of 16 bytes, or the phase of an mbarrier. */
export interface StatementWait extends Pick<Condition, 'until'> {
  readonly kind: 'word' | 'long' | 'filled' | 'phase';
  readonly access: StatementAccess;
}

/** The dimensions of a field that an index was outside of. */
export interface IndexedPlace {
  readonly layout: string;
  readonly field: string;
  /** Dimensions that were indexed before; their indices are not known any more. */
  readonly before: number;
  /** Names of all dimensions, or none. */
  readonly dimensions: readonly string[];
  readonly extents: readonly number[];
}

/** `fast` checks nothing; `checked` checks every access and asks the scheduler before every synchronising one. */
export type Mode = 'fast' | 'checked';

/** The kinds of kernels that a machine can load. */
export type KernelModule = IrModule | PtxKernel;

export const isPtx = (module: KernelModule): module is PtxKernel =>
  typeof module === 'object' && module !== null && 'kind' in module && module.kind === 'ptx';

/** A buffer that each block has of its own, and what lies in it. */
export interface SharedMemory {
  readonly bytes: number;
  readonly ranges: readonly {
    readonly name: string;
    readonly offset: number;
    readonly elementBytes: number;
    readonly length: number;
  }[];
}

export interface Compiled {
  readonly module: KernelModule;
  /**
   * Runs a `Thread`: to its end; or, if it is a generator, until it yields a `pause` code. A generator that yielded
   * `pause.end` can go on as another thread once the Thread object has become that.
   */
  readonly run: (thread: object) => Iterator<number, void> | undefined;
  readonly isGenerator: boolean;
  /** Whether lanes bring words to their meetings. */
  readonly usesWords: boolean;
  readonly shared: readonly SharedMemory[];
  readonly sites: readonly Site[];
  /** By the numbers that its code uses. */
  readonly accesses: readonly StatementAccess[];
  readonly waits: readonly StatementWait[];
  readonly meetings: readonly LaneMeeting[];
  /** The JavaScript, for people. */
  readonly text: string;
}

/** Why a thread gives up control: the value that its generator yields. */
export const pause = {
  preempt: 0,
  barrier: 1,
  wait: 2,
  previous: 3,
  sleep: 4,
  end: 5,
  group: 6,
  cluster: 7,
  lanes: 8,
  arrived: 9,
  quiet: 10,
} as const;

export interface Condition {
  readonly until: '>=' | '==' | '!=';
  /** The bits that count; words are signed here, so -1 is all of them. */
  readonly mask: number;
  readonly wanted: number;
}

/** `>=` is safe when counters wrap: it asks whether the difference is negative. */
export function holds({ until, mask, wanted }: Condition, word: number): boolean {
  const is = word & mask;
  if (until === '>=') return ((is - wanted) | 0) >= 0;
  return (is === (wanted | 0)) === (until === '==');
}

export function describeCondition({ until, mask, wanted }: Condition): string {
  const words = { '>=': 'at least ', '==': '', '!=': 'anything but ' }[until];
  const bits = mask === -1 ? '' : ` in the bits 0x${(mask >>> 0).toString(16)}`;
  return `${words}${wanted >>> 0}${bits}`;
}

/** A compiler that compiles each module once for each mode. */
export function onceForEachMode<M extends KernelModule>(
  compile: (module: M, isChecked: boolean) => Compiled,
) {
  const cache = { fast: new WeakMap<M, Compiled>(), checked: new WeakMap<M, Compiled>() };
  return (module: M, mode: Mode): Compiled => {
    const compiled = cache[mode].get(module) ?? compile(module, mode === 'checked');
    cache[mode].set(module, compiled);
    return compiled;
  };
}
