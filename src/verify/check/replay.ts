/** The schedule that a finding names, to be run again. */
import { ArgumentError, nearest } from '../../base/errors.js';
import type { CheckConfiguration } from './subject.js';

/**
 * The schedule that `text` names: 'push, 2 ranks/random-17', or 'random-17' for that schedule of every configuration. Anything else
 * is an error that shows the configurations whose names resemble it most.
 */
export function replayOf<C extends { readonly configuration: CheckConfiguration }>(
  text: string,
  cases: readonly C[],
): { readonly cases: readonly C[]; readonly seed: string } {
  const slash = text.lastIndexOf('/');
  const asked = slash < 0 ? null : text.slice(0, slash);
  const seed = text.slice(slash + 1);
  const named = cases.filter(({ configuration }) => asked === null || configuration.name === asked);
  if (named.length > 0 && /^(random|priority)-\d+$/.test(seed)) return { cases: named, seed };
  const names = cases.map(({ configuration }) => configuration.name);
  const shown = nearest(asked ?? text, names).map((name) => `\n  ${name}`);
  const one =
    names.length === shown.length
      ? 'is one of'
      : `is one of ${names.length} (heddle check --list <kernel> names Heddle's own), such as`;
  throw new ArgumentError(
    'replay',
    text,
    `'<configuration>/<seed>' as a finding names it: a seed is random-17 or priority-17; a configuration ${one}${shown.join('')}`,
  );
}
