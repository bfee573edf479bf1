/** How rows of opaque bytes are cut: into the units that move them, and into parts, each of them a block's. */

import type { MemoryName } from '../../../lang/index.js';
import { areScales, type Layer } from '../../layer/index.js';

/** How rows of payload `p` are cut. Those that dispatch rounds are cut where a word of scales ends, and their scales likewise. */
export function partsOf(layer: Pick<Layer, 'payloads'>, p: number, parts: number) {
  const { rowBytes, rounded } = layer.payloads[p]!;
  const unit = unitOf(layer, p);
  const rowUnits = rowBytes / unitBytes[unit];
  const together = rounded ? 8 : 1;
  const partUnits = Math.ceil(rowUnits / together / parts) * together;
  return { unit, rowUnits, partUnits, partBytes: partUnits * unitBytes[unit] };
}

/** The element that moves rows of payload `p`. Scales that dispatch makes are words, one for 8 vectors. */
export const unitOf = (layer: Pick<Layer, 'payloads'>, p: number): Unit =>
  areScales(layer, p) ? 'u32' : widestUnit(layer.payloads[p]!.rowBytes);

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
