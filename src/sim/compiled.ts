import type { IrModule } from '../lang/index.js';
import type { Site } from './detector.js';

/** `fast` checks nothing; `checked` checks every access and asks the scheduler before every synchronising one. */
export type Mode = 'fast' | 'checked';

export interface SharedRange {
  readonly name: string;
  readonly offset: number;
  readonly elementBytes: number;
  readonly length: number;
}

/** A kernel that the machine can run. */
export interface Compiled {
  readonly module: IrModule;
  /** Runs one thread (a `Thread`): to its end, or as a generator that yields `pause` codes. */
  readonly run: (thread: object, args: readonly unknown[]) => Iterator<number, void> | undefined;
  readonly isGenerator: boolean;
  readonly usesWarps: boolean;
  readonly shared: readonly SharedRange[];
  readonly sharedBytes: number;
  readonly sites: readonly Site[];
  /** The JavaScript, for people. */
  readonly text: string;
}

/** Why a thread gives up control: the value that its generator yields. */
export const pause = { preempt: 0, barrier: 1, warp: 2, wait: 3, previous: 4, sleep: 5 } as const;

export const warpOps = [
  'warpBarrier',
  'shuffle',
  'shuffleXor',
  'shuffleUp',
  'shuffleDown',
  'ballot',
  'any',
  'all',
  'match',
  'elect',
] as const;
export type WarpOp = (typeof warpOps)[number];
