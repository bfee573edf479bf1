/** Variables of PTX modules as bytes. */
import { type PtxVariable, ptxBytes } from '../../../lang/ptx/index.js';

/** Writes what a variable begins as; what it does not say is zero. */
export function fillVariable(
  to: Uint8Array,
  { init, type }: PtxVariable,
  addressOf: (name: string) => number,
): void {
  const bytes = ptxBytes[type];
  init?.forEach((value, i) => {
    let bits: bigint;
    if (value.kind === 'integer') bits = value.value;
    else if (value.kind === 'symbol') bits = BigInt(addressOf(value.name) + value.offset);
    else bits = value.bits;
    for (let byte = 0; byte < bytes; byte++) to[bytes * i + byte] = Number((bits >> BigInt(8 * byte)) & 255n);
  });
}
