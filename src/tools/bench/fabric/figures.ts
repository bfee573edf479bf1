import type { ProviderName } from '../../../net/fabric/index.js';

/** One figure. */
export interface Figure {
  readonly provider: ProviderName;
  readonly what: string;
  readonly unit: string;
  readonly heddle: number;
  /** The same in C, where there is the same. */
  readonly c: number | null;
  /** Ours ÷ C's. */
  readonly ratio: number | null;
  readonly goal: string | null;
  readonly reached: boolean | null;
  /** What was counted, over what, how often. */
  readonly how: string;
}
