/** The frame of an HTML page, its style, its tables and its charts. */
import type { Column } from '../base/table.js';

/** A whole page, which loads nothing from anywhere and runs nothing. */
export const page = (title: string, body: string): string => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${text(title)}</title>
<style>${style}</style>
</head>
<body>
<h1>${text(title)}</h1>
${body}
</body>
</html>
`;

export function text(value: string): string {
  return value.replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]!);
}

export const list = (items: readonly string[]): string =>
  `<ul>${items.map((item) => `<li>${text(item)}</li>`).join('')}</ul>`;

/** JSON that may stand inside a script element. */
export const json = (value: unknown): string => JSON.stringify(value).replaceAll('<', '\\u003c');

/** A table. Where several lines have one value in the first column, a rule stands above each new value. */
export function htmlTable<Of>(columns: readonly Column<Of>[], lines: readonly Of[]): string {
  const first = lines.map((line) => columns[0]!.cell(line));
  const rows = lines.map((line, i) => {
    const begins =
      i > 0 && first[i] !== first[i - 1] && first.indexOf(first[i]!) !== first.lastIndexOf(first[i]!);
    const cells = columns.map(
      ({ kind, cell }) => `<td${kind === undefined ? '' : ` class="${kind}"`}>${text(cell(line))}</td>`,
    );
    return `<tr${begins ? ' class="first"' : ''}>${cells.join('')}</tr>`;
  });
  const heads = columns.map(({ head }) => `<th>${text(head)}</th>`).join('');
  return `<div class="scroll"><table><thead><tr>${heads}</tr></thead><tbody>${rows.join('\n')}</tbody></table></div>`;
}

export interface Chart {
  readonly x: readonly number[];
  /** The text under the x axis. */
  readonly label: string;
  /** Whether the y axis is logarithmic. The x axis always is. */
  readonly log: boolean;
  readonly unit: string;
  readonly series: readonly Series[];
}

interface Series {
  readonly label: string;
  /** A custom property of the page's style. */
  readonly colour: string;
  readonly dash?: string;
  readonly width: number;
  readonly values: readonly (number | null)[];
}

const [width, height] = [1000, 420];
const [left, right, top, bottom] = [56, width - 24, 10, height - 46];

/** A chart with its caption. A point tells its value where the mouse rests on it. */
export function figure(caption: string, { x, label, log, unit, series }: Chart): string {
  const all = series.flatMap(({ values }) => values.filter((value) => value !== null));
  const most = Math.max(...all) * (log ? 1.25 : 1.06);
  const least = log ? Math.min(...all) * 0.8 : 0;
  const across = scale(Math.log2, [x[0]!, x.at(-1)!], [left + 12, right - 12]);
  const up = scale(log ? Math.log10 : (y) => y, [least, most], [bottom, top]);
  const grid = [
    ...(log ? decades(least, most) : steps(most)).map(
      (y) => line(left, up(y), right, up(y)) + words(left - 8, up(y) + 4, 'end', String(y)),
    ),
    ...x.map((n) => line(across(n), top, across(n), bottom)),
    ...withRoom(x, across).map((n) => words(across(n), bottom + 18, 'middle', String(n))),
    words((left + right) / 2, height - 8, 'middle', label),
    words(left + 6, top + 12, 'start', unit),
  ];
  const lines = series.map(({ label, colour, dash = '', width, values }) => {
    const points = x.flatMap((n, i) => {
      const value = values[i] ?? null;
      return value === null ? [] : [{ value, n, at: [across(n), up(value)] as const }];
    });
    const dots = points.map(({ value, n, at: [cx, cy] }) => {
      const title = text(`${label}, ${n}: ${value.toPrecision(3)} ${unit}`);
      return `<circle cx="${cx}" cy="${cy}" r="3" fill="var(--${colour})"><title>${title}</title></circle>`;
    });
    const how = `stroke="var(--${colour})" stroke-width="${width}" stroke-dasharray="${dash}"`;
    return `<polyline points="${points.map(({ at }) => at.join()).join(' ')}" ${how}/>${dots.join('')}`;
  });
  const legend = series.map(
    ({ label, colour, dash }) =>
      `<span><b style="color:var(--${colour})">${dash ? '╌╌' : '━━'}</b>${text(label)}</span>`,
  );
  return `<figure><figcaption>${text(caption)}</figcaption>
<svg viewBox="0 0 ${width} ${height}" role="img">${[...grid, ...lines].join('\n')}</svg>
<div class="legend">${legend.join('')}</div></figure>`;
}

const line = (x1: number, y1: number, x2: number, y2: number): string =>
  `<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}"/>`;
const words = (x: number, y: number, anchor: 'start' | 'middle' | 'end', what: string): string =>
  `<text x="${x}" y="${y}" text-anchor="${anchor}">${text(what)}</text>`;

type Range = readonly [from: number, to: number];

/** Takes values to places between two, evenly in what `of` makes of them. */
function scale(of: (value: number) => number, [from, to]: Range, [start, end]: Range) {
  const whole = of(to) - of(from);
  return (value: number): number => {
    const share = whole === 0 ? 0.5 : (of(value) - of(from)) / whole;
    return Math.round(10 * (start + share * (end - start))) / 10;
  };
}

/** 1, 2 and 5 times powers of ten. */
function decades(least: number, most: number): number[] {
  const first = Math.floor(Math.log10(least));
  const powers = Array.from({ length: Math.ceil(Math.log10(most)) - first + 1 }, (_, i) => first + i);
  return powers
    .flatMap((power) => [1, 2, 5].map((step) => Number(`${step}e${power}`)))
    .filter((tick) => least <= tick && tick <= most);
}

/** At most eight even steps from 0. */
function steps(most: number): number[] {
  const step = decades(most / 8, most)[0]!;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

/** The ticks whose numbers stand free of those before them. */
function withRoom(ticks: readonly number[], at: (tick: number) => number): number[] {
  let free = Number.NEGATIVE_INFINITY;
  return ticks.filter((tick) => {
    const half = 5 + 4 * String(tick).length;
    const fits = at(tick) - half >= free;
    if (fits) free = at(tick) + half;
    return fits;
  });
}

const style = `
:root {
  --page: #ffffff; --ink: #1b1f24; --soft: #59636e; --line: #d8dee4; --panel: #f6f8fa;
  --heddle: #0b62d6; --half: #6ba3f2; --nccl: #c2560c; --dense: #d99a2b; --gather: #8f7a5b;
  --ceiling: #59636e; --loads: #9aa4ae;
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 72rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.1rem; margin: 2.5rem 0 .5rem; }
p { margin: .4rem 0; max-width: 60rem; }
.soft, figcaption { color: var(--soft); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 1rem 0; }
dt { color: var(--soft); } dd { margin: 0; }
figure { margin: 1rem 0 2rem; padding: 1rem; background: var(--panel); border: 1px solid var(--line); border-radius: 8px; }
figcaption { margin-bottom: .5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .88rem; width: 100%; }
th, td { padding: .28rem .5rem; text-align: right; border-bottom: 1px solid var(--line); }
td { white-space: nowrap; }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; line-height: 1.25; }
th:first-child, td.name { text-align: left; }
tr.first td { border-top: 2px solid var(--line); }
td.main { font-weight: 650; color: var(--heddle); }
details { margin: 1rem 0; } summary { cursor: pointer; color: var(--soft); }
li { margin: .2rem 0; }
svg { display: block; width: 100%; height: auto; font: 13px system-ui, sans-serif; fill: var(--soft); }
svg line { stroke: var(--line); } svg polyline { fill: none; }
.legend span { display: inline-block; margin-right: 1.1rem; } .legend b { letter-spacing: -.1em; margin-right: .35em; }
`;
