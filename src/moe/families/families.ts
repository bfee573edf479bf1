/** Every family; of those that can carry a layer the first does, unless another is asked for. */
import { ArgumentError } from '../../base/errors.js';
import type { Family } from './family.js';
import { hybrid } from './hybrid/family.js';
import { oneSided } from './one-sided/family.js';
import { portable } from './portable/family.js';

export const families: readonly Family[] = [oneSided, hybrid, portable];

/** @throws ArgumentError for a name that no family has. */
export function familyNamed(name: string): Family {
  const found = families.find((family) => family.name === name);
  if (found !== undefined) return found;
  throw new ArgumentError(
    'family',
    name,
    `one of ${families.map((family) => `'${family.name}'`).join(', ')}`,
  );
}
