/** Measured loads of the experts, from a file: how often each was chosen, or what every token chose. */
import { ArgumentError } from '../../base/errors.js';
import { parseJson } from './cells.js';
import type { RoutingLaw } from './routing.js';

/** A list of numbers is counts, an entry for each expert; a list of lists is routes, an entry for each token. */
export function lawFrom(name: string, text: string): RoutingLaw {
  const value = parseJson(name, text);
  const wrong = (what: unknown) =>
    new ArgumentError(
      name,
      what,
      'a JSON list of counts (a number for each expert) or of routes (a list for each token)',
    );
  if (!Array.isArray(value) || value.length === 0) throw wrong(value);
  const isCount = (one: unknown): one is number =>
    typeof one === 'number' && one >= 0 && one <= Number.MAX_SAFE_INTEGER;
  const counts = value.filter(isCount);
  if (counts.length === value.length) return { kind: 'counts', counts };
  const tokens = value.map((ids: unknown) => {
    if (!Array.isArray(ids) || ids.length === 0) throw wrong(ids);
    return ids.map((id: unknown) => {
      if (!Number.isInteger(id)) throw wrong(id);
      return id as number;
    });
  });
  return { kind: 'routes', tokens };
}
