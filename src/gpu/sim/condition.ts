/** The condition of a wait on a word. */
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
