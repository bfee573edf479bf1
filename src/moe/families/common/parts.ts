/** How rows of opaque bytes are cut: into the units that move them, and into parts, each of them a block's. */

import type { MemoryName } from '../../../lang/index.js';
import type { Payload } from '../../layer/index.js';

export function partsOf({ rowBytes }: Pick<Payload, 'rowBytes'>, parts: number) {
  const unit = widestUnit(rowBytes);
  const rowUnits = rowBytes / unitBytes[unit];
  const partUnits = Math.ceil(rowUnits / parts);
  return { unit, rowUnits, partUnits, partBytes: partUnits * unitBytes[unit] };
}

/** The element that moves a row: the widest whose size divides the row's bytes and every address involved. */
export type Unit = Extract<MemoryName, 'v16' | 'u64' | 'u32' | 'u16' | 'u8'>;
export const unitBytes: Readonly<Record<Unit, number>> = { v16: 16, u64: 8, u32: 4, u16: 2, u8: 1 };

/** The widest unit that divides `bytes`. */
export function widestUnit(bytes: number): Unit {
  const units: Unit[] = ['v16', 'u64', 'u32', 'u16'];
  return units.find((unit) => bytes % unitBytes[unit] === 0) ?? 'u8';
}

/** How a launch is spread over a GPU. */
export interface Spread {
  readonly blocks: number;
  readonly threads: number;
  /** Into how many each row is cut. */
  readonly parts: number;
}

/** At least so many threads, as warps. */
export const wholeWarps = (threads: number): number => Math.ceil(threads / 32) * 32;
