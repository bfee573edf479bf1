/** The elements that move rows of opaque bytes. */
import type { MemoryName } from '../../../lang/index.js';

/** The element that moves a row: the widest whose size divides the row's bytes and every address involved. */
export type Unit = Extract<MemoryName, 'v16' | 'u64' | 'u32' | 'u16' | 'u8'>;
export const unitBytes: Readonly<Record<Unit, number>> = { v16: 16, u64: 8, u32: 4, u16: 2, u8: 1 };

/** The widest unit that divides `bytes`. */
export function widestUnit(bytes: number): Unit {
  const units: Unit[] = ['v16', 'u64', 'u32', 'u16'];
  return units.find((unit) => bytes % unitBytes[unit] === 0) ?? 'u8';
}
