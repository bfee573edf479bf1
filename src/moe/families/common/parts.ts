/** How a payload's rows are cut into parts, each of them a block's. */
import type { Payload } from '../../layer/index.js';
import { type Unit, unitBytes, widestUnit } from './units.js';

export interface Parts {
  readonly unit: Unit;
  readonly rowUnits: number;
  readonly partUnits: number;
  readonly partBytes: number;
}

export function partsOf({ rowBytes }: Pick<Payload, 'rowBytes'>, parts: number): Parts {
  const unit = widestUnit(rowBytes);
  const rowUnits = rowBytes / unitBytes[unit];
  const partUnits = Math.ceil(rowUnits / parts);
  return { unit, rowUnits, partUnits, partBytes: partUnits * unitBytes[unit] };
}
