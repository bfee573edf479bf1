/** The text that `heddle demo --rebalance` and `--lose` show a person. */
import type { ChangesResult, Stretch } from './demo-changes.js';
import { count, type Paint, rightness, say, wrap } from './print-demo.js';

/** The routes of the busiest rank, divided by the mean of the ranks that are left. */
export function busiest({ routes, lost }: Stretch): number {
  const mean = routes.reduce((a, b) => a + b, 0) / (routes.length - lost.length);
  return mean === 0 ? 1 : Math.max(...routes) / mean;
}

export function changesText(result: ChangesResult, paint: Paint, columns: number): string {
  const { shape, stretches, moved, comparison, seconds, placesOfRank } = result;
  const { ranks, maxTokens, experts, topK } = shape;
  const lines = [
    '',
    ...wrap(
      `${ranks} simulated GPUs, ${count(maxTokens, 'token')} each, top ${topK} of ${count(experts, 'expert')}, of which a few get most tokens`,
      columns,
    ).map((line) => paint('bold', line)),
    ...wrap(
      `${count(placesOfRank, 'place')} for experts on each; ${count(stretches.at(-1)!.to, 'round')} in ${seconds.toFixed(1)} s`,
      columns,
    ),
    '',
    ...rightness(comparison, 'every bit as in the reference', paint, columns),
    ...(moved.rounds === 0 ? [] : say(paint, columns, true, movedText(result))),
    ...(stretches.at(-1)!.lost.length === 0 ? [] : say(paint, columns, true, lostText(result))),
    '',
    ...picture(result, paint, columns),
    '',
  ];
  return `${lines.join('\n')}\n`;
}

const movedText = ({ moved, stretches: [before, after] }: ChangesResult): string =>
  `rebalanced: ${count(moved.experts, 'expert')} came to other ranks while ${count(moved.rounds, 'round')} ran; ` +
  `the busiest rank got ${busiest(before!).toFixed(2)} × the mean, and gets ${busiest(after!).toFixed(2)} ×`;

function lostText({ stretches, repeated }: ChangesResult): string {
  const { lost, dropped } = stretches.at(-1)!;
  const who = lost.length === 1 ? `rank ${lost[0]} stopped` : `ranks ${lost.join(', ')} stopped`;
  const again =
    repeated.length === 0
      ? 'between two rounds'
      : `round${repeated.length === 1 ? '' : 's'} ${repeated.join(' and ')} began anew without ${lost.length === 1 ? 'it' : 'them'}`;
  const routes = dropped === 0 ? 'no route was dropped' : `${count(dropped, 'route')} had no expert any more`;
  return `went on: ${who}, ${again}, in the same world; ${routes}`;
}

/** Ranks are lines, stretches of rounds columns: side by side as far as there is room. */
function picture({ stretches, placesOfRank, shape }: ChangesResult, paint: Paint, columns: number): string[] {
  const { ranks, experts } = shape;
  const digits = `${experts - 1}`.length;
  const label = Math.max(`rank ${ranks - 1}`.length, 'busiest'.length) + 4;
  const titles = stretches.map(({ from, to }) => `rounds ${from}–${to}`);
  const width = Math.max(placesOfRank * (digits + 1), ...titles.map(({ length }) => length + 1)) + 1;

  const had = (rank: number, n: number): readonly number[] =>
    stretches[n]!.places.slice(rank * placesOfRank, (rank + 1) * placesOfRank);
  const cell = (rank: number, n: number): string => {
    if (stretches[n]!.lost.includes(rank)) return paint('red', 'stopped'.padEnd(width));
    const before = had(rank, Math.max(0, n - 1));
    const shown = had(rank, n).map((expert) => {
      const text = (expert === -1 ? '·' : `${expert}`).padStart(digits);
      return before.includes(expert) ? text : paint('cyan', text);
    });
    return `${shown.join(' ')}${' '.repeat(width - placesOfRank * (digits + 1) + 1)}`;
  };

  const abreast = Math.max(1, Math.floor((columns - label) / width));
  const lines: string[] = [];
  for (let start = 0; start < stretches.length; start += abreast) {
    const some = [...stretches.keys()].slice(start, start + abreast);
    const line = (name: string, of: (n: number) => string): string =>
      `  ${name.padEnd(label - 2)}${some.map(of).join('')}`.trimEnd();
    lines.push(
      line('', (n) => titles[n]!.padEnd(width)),
      ...Array.from({ length: ranks }, (_, rank) => line(`rank ${rank}`, (n) => cell(rank, n))),
      line('busiest', (n) => `${busiest(stretches[n]!).toFixed(2)} ×`.padEnd(width)),
    );
  }
  return [
    paint('bold', 'Who had which expert'),
    ...lines,
    ...wrap('busiest: routes of the busiest rank ÷ the mean', columns, '  '),
  ];
}
