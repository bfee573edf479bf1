/** Texts of JavaScript that both generators write. */

/** A word without its sign, for comparisons and the like. */
export const unsigned = (text: string): string => (/^\d+$/.test(text) ? text : `(${text} >>> 0)`);

/** A number, in parentheses where it has a sign. */
export function literal(value: number): string {
  if (Object.is(value, -0)) return '(-0)';
  return value < 0 ? `(${value})` : String(value);
}
