/** How a launch is spread over a GPU. */
export interface Spread {
  readonly blocks: number;
  readonly threads: number;
  /** Into how many each row is cut. */
  readonly parts: number;
}

/** At least so many threads, as warps. */
export const wholeWarps = (threads: number): number => Math.ceil(threads / 32) * 32;
