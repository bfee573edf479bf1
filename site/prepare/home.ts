/**
 * The first screen of the site: a race that the checker finds, the same kernel mended, README's figures as a chart, and
 * how to get and run it. Everything in it is real output: the playground's programs run here, and README is read.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { programs } from '../../test/gpu/sim/gallery/programs.js';
import { explore, type Outcome } from '../playground/explore.js';

const shown = programs.find(({ file }) => file === 'missing-acquire.ts')!;

/** What README's two commands do, and the one before them. */
const does = [
  'the sources; all else that it takes is Node.js 20.19 or newer',
  'a round of a layer, on GPUs or simulated ones',
  'every test, and every kernel under the race detector',
];

/** HTML for the head of the first page. Vue leaves it as it is. */
export async function firstScreen(root: string): Promise<string> {
  const wrong = readFileSync(join(root, 'test/gpu/sim/gallery/programs', shown.file), 'utf8');
  const mended = shown.mend.reduce((text, { from, to }) => text.replace(from, to), wrong);
  const [found, clean] = [await explore(shown.file, wrong), await explore(shown.file, mended)];
  const readme = readFileSync(join(root, 'README.md'), 'utf8');
  const fromReadme = [...readme.matchAll(/^```sh\n(.*)\n```$/gm)].slice(0, 2).map(([, line]) => line!);
  const commands = ['git clone <this repository> heddle && cd heddle', ...fromReadme];
  return [
    '<div class="first" v-pre>',
    '<div class="first-race" role="img" aria-label="heddle check finds a data race; after one word has changed it finds none">',
    ...framesOf(wrong, found, mended, clean),
    '</div>',
    '<div class="first-side">',
    chartOf(readme),
    ...commands.map(
      (line, i) => `<pre class="first-command"><span># ${does[i]}</span>${escaped(line)}</pre>`,
    ),
    '</div>',
    '</div>',
    '',
  ].join('\n');
}

/** Three pictures that follow each other: a kernel, what the checker says of it, and the kernel mended. */
function framesOf(wrong: string, found: Outcome, mended: string, clean: Outcome): string[] {
  const [mistake] = found.findings;
  if (mistake === undefined || clean.findings.length > 0)
    throw new Error(`${shown.file} changed its findings`);
  const changed = mended.split('\n').flatMap((line, i) => (line === wrong.split('\n')[i] ? [] : [i + 1]));
  return [
    frame(
      'ask',
      'Rank 0 writes, and raises a flag. Does rank 1 read what was written?',
      wrong,
      [],
      'Running schedules …',
    ),
    frame(
      'wrong',
      `A data race, found in ${found.schedules === 1 ? 'the first schedule' : `schedule ${found.schedules}`}`,
      wrong,
      mistake.lines,
      mistake.text,
    ),
    frame(
      'clean',
      `Mended: ${clean.schedules === 1 ? 'one schedule' : `${clean.schedules} schedules`}, no finding`,
      mended,
      changed,
      `${shown.mend[0]!.from.trim()} … }\n  became\n${shown.mend[0]!.to.trim()} … }`,
    ),
  ];
}

function frame(kind: string, verdict: string, text: string, marked: readonly number[], says: string): string {
  const lines = text.split('\n').map((line, i) => ({ line, number: i + 1 }));
  const kernel = lines.slice(lines.findIndex(({ line }) => line.includes('(g, {')) + 1);
  const body = kernel.slice(
    0,
    kernel.findIndex(({ line }) => line.startsWith('  },')),
  );
  const code = body.map(({ line, number }) => {
    const mark = marked.includes(number) ? ' class="first-marked"' : '';
    return `<span${mark}>${String(number).padStart(2)}  ${escaped(line.slice(4))}</span>`;
  });
  return [
    `<div class="first-frame first-${kind}">`,
    `<p class="first-verdict">${escaped(verdict)}</p>`,
    `<pre class="first-code">${code.join('&#10;')}</pre>`,
    `<pre class="first-finding">${escaped(says).replaceAll('\n', '&#10;')}</pre>`,
    '</div>',
  ].join('');
}

const [width, height, left, bottom] = [520, 215, 44, 28];
const classes: Readonly<Record<string, string>> = {
  Heddle: 'ours',
  FlashInfer: 'theirs',
  'NCCL sparse': 'nccl',
};

/** README's table of measured times as lines, both axes logarithmic. */
function chartOf(readme: string): string {
  const table = readme.slice(readme.indexOf('| tokens a rank'));
  const rows = table
    .slice(0, table.indexOf('\n\n'))
    .split('\n')
    .map((row) => row.split('|').slice(1, -1));
  const [head, , ...series] = rows.map((row) => row.map((cell) => cell.trim()));
  const tokens = head!.slice(1).map(Number);
  const scale = (value: number, least: number, most: number) =>
    Math.log(value / least) / Math.log(most / least);
  const x = (value: number) => left + scale(value, 1, 4096) * (width - left - 20);
  const y = (value: number) => height - bottom - scale(value, 5, 1200) * (height - bottom - 26);
  const text = (at: readonly [number, number], says: string, attributes = '') =>
    `<text x="${at[0].toFixed(1)}" y="${at[1].toFixed(1)}" ${attributes}>${escaped(says)}</text>`;
  const drawn = series.filter(([name]) => classes[name!] !== undefined);
  const lines = drawn.map(([name, ...cells], i) => {
    const points = cells.flatMap((cell, j) =>
      Number(cell) > 0 ? [[x(tokens[j]!), y(Number(cell))] as const] : [],
    );
    const path = points.map((point) => point.map((n) => n.toFixed(1)).join(',')).join(' ');
    const key = text([left + 26, 40 + 16 * i], name!);
    return `<g class="first-${classes[name!]}"><polyline points="${path}"/><path d="M${left + 8} ${36 + 16 * i}h14"/>${key}</g>`;
  });
  return [
    `<svg class="first-chart" viewBox="0 0 ${width} ${height}" role="img" aria-label="Microseconds of a round: Heddle, FlashInfer, NCCL">`,
    text([0, 12], 'A round of DeepSeek-V3’s layer on 4 × H200, µs by tokens a rank'),
    ...tokens.map((n) => text([x(n), height - 8], String(n), 'text-anchor="middle"')),
    ...[10, 100, 1000].map(
      (n) =>
        `<path class="first-grid" d="M${left} ${y(n).toFixed(1)}H${width}"/>${text([left - 6, y(n) + 4], String(n), 'text-anchor="end"')}`,
    ),
    ...lines,
    '</svg>',
  ].join('');
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
