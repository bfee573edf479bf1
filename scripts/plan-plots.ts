/** Draws the plots of docs/results/2026-11-23-plan.md: predicted against measured, a dot for each held-out cell. */
import { writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { text } from '../src/base/page.js';
import { type Check, type SplitResult, validate } from '../src/tools/plan/index.js';

const size = 440;
const margin = { left: 54, bottom: 40, top: 42, right: 12 };

/** Both axes logarithmic and alike; the band is 12 % to either side. */
function plot({ name, checks, summary }: SplitResult): string {
  const values = checks.flatMap(({ measured, predicted }) => [measured, predicted.low, predicted.high]);
  const least = Math.log(Math.min(...values) / 1.15);
  const most = Math.log(Math.max(...values) * 1.15);
  const wide = size - margin.left - margin.right;
  const high = size - margin.top - margin.bottom;
  const x = (us: number): string =>
    (margin.left + ((Math.log(us) - least) / (most - least)) * wide).toFixed(1);
  const y = (us: number): string =>
    (size - margin.bottom - ((Math.log(us) - least) / (most - least)) * high).toFixed(1);
  const [first, last] = [Math.exp(least), Math.exp(most)];
  const ticks = ticksBetween(first, last);
  const edge = (by: number): string => `${x(first)},${y(first * by)} ${x(last)},${y(last * by)}`;
  const [below, above] = [edge(1 / 1.12), edge(1.12).split(' ').reverse().join(' ')];
  const colour = ({ cell }: Check): string => (cell.phase === 'combine' ? '#c2560c' : '#0b62d6');
  const dots = checks.map(
    (check) =>
      `<path d="M${x(check.measured)} ${y(check.predicted.low)}V${y(check.predicted.high)}" stroke="${colour(check)}" stroke-opacity=".35" stroke-width="2"/>` +
      `<circle cx="${x(check.measured)}" cy="${y(check.predicted.time)}" r="3" fill="${colour(check)}"/>`,
  );
  const marks = ticks.map(
    (us) =>
      `<path d="M${x(us)} ${margin.top}V${size - margin.bottom}M${margin.left} ${y(us)}H${size - margin.right}" stroke="#d8dee4"/>` +
      `<text x="${x(us)}" y="${size - margin.bottom + 14}" text-anchor="middle">${us}</text>` +
      `<text x="${margin.left - 5}" y="${y(us)}" text-anchor="end" dominant-baseline="middle">${us}</text>`,
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${size} ${size}" width="${size}" height="${size}" font-family="system-ui, sans-serif" font-size="11" fill="#59636e">
<title>${text(name)}</title>
<rect width="${size}" height="${size}" fill="#fff"/>
<clipPath id="inside"><rect x="${margin.left}" y="${margin.top}" width="${wide}" height="${high}"/></clipPath>
${marks.join('\n')}
<g clip-path="url(#inside)">
<polygon points="${below} ${above}" fill="#0b62d6" fill-opacity=".08"/>
<path d="M${x(first)} ${y(first)}L${x(last)} ${y(last)}" stroke="#59636e" stroke-dasharray="5 4"/>
${dots.join('\n')}
</g>
<text x="10" y="16" fill="#1b1f24">${text(name)}</text>
<text x="10" y="31">mean error ${(100 * summary.mean).toFixed(1)} %, ${summary.cells} cells</text>
<text x="${size / 2}" y="${size - 8}" text-anchor="middle">measured, µs (blue: dispatch, or both phases; orange: combine)</text>
<text x="12" y="${size / 2}" text-anchor="middle" transform="rotate(-90 12 ${size / 2})">predicted, µs, with its range</text>
</svg>
`;
}

function ticksBetween(least: number, most: number): number[] {
  const found: number[] = [];
  for (let power = 10 ** Math.floor(Math.log10(least)); power <= most; power *= 10)
    for (const step of [1, 2, 5]) if (step * power >= least && step * power <= most) found.push(step * power);
  return found;
}

const fileName = (name: string): string =>
  name
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '');

const shown = ['each EP from the others: all', 'EP64 and more from EP32 and less: all'];
for (const result of validate().filter(({ name }) => shown.includes(name))) {
  const path = resolve(import.meta.dirname, `../docs/plots/${fileName(result.name)}.svg`);
  writeFileSync(path, plot(result));
  console.log(path);
}
