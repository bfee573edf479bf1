/** The output of `printf` of a kernel. */
import type { SimBuffer } from '../memory.js';

/** An address of 64 bits: its upper word, and the lower one. */
export interface Address {
  readonly slot: number;
  readonly low: number;
}

const directive = /%[-+ #0]*\d*(?:\.\d+)?(hh|h|ll|l|z|j|t)?([diouxXcsfFeEgGaAp%])/g;

/** Values lie one after the other from `at` on, each aligned to its size: floats are f64. */
export function printed(format: string, values: SimBuffer, at: number): string {
  let end = at;
  const take = (bytes: 4 | 8): number => {
    end = Math.ceil(end / bytes) * bytes + bytes;
    return end - bytes;
  };
  const view = new DataView(values.u8.buffer);
  return format.replaceAll(directive, (text, length: string | undefined, kind: string) => {
    if (kind === '%') return '%';
    if ('fFeEgGaA'.includes(kind)) return String(view.getFloat64(take(8), true));
    const isLong = length === 'l' || length === 'll' || length === 'z' || kind === 'p' || kind === 's';
    const isSigned = kind === 'd' || kind === 'i';
    const value = isLong
      ? isSigned
        ? view.getBigInt64(take(8), true)
        : view.getBigUint64(take(8), true)
      : isSigned
        ? view.getInt32(take(4), true)
        : view.getUint32(take(4), true);
    if (kind === 'x' || kind === 'X' || kind === 'p')
      return `${kind === 'p' ? '0x' : ''}${value.toString(16)}`;
    if (kind === 'c') return String.fromCharCode(Number(value));
    return kind === 's' ? text : String(value);
  });
}
