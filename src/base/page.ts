/** The common parts of every HTML report: its frame, its style, and the script that draws its charts with uPlot. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

/** A whole page, which loads nothing from anywhere. An element of `body` with `data-chart` is where the chart of that name goes. */
export function page(title: string, body: string, charts: Readonly<Record<string, Chart>>): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${text(title)}</title>
<style>${uplot('uPlot.min.css')}${style}</style>
</head>
<body>
<h1>${text(title)}</h1>
${body}
<script type="application/json" id="charts">${json(charts)}</script>
<script>${uplot('uPlot.iife.min.js')}</script>
<script>${script}</script>
</body>
</html>
`;
}

export interface Series {
  readonly label: string;
  /** A custom property of the page's style. */
  readonly colour: string;
  readonly dash?: readonly number[];
  readonly width: number;
  readonly values: readonly (number | null)[];
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

/** Text as it may stand in HTML. */
export function text(value: string): string {
  return value.replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]!);
}

/** The place of a chart, with its caption. */
export const figure = (name: string, caption: string): string =>
  `<figure data-chart="${name}"><figcaption>${text(caption)}</figcaption><div class="chart"></div></figure>`;

export const list = (items: readonly string[]): string =>
  `<ul>${items.map((item) => `<li>${text(item)}</li>`).join('')}</ul>`;

/** JSON that may stand inside a script element. */
export const json = (value: unknown): string => JSON.stringify(value).replaceAll('<', '\\u003c');

/** A file of the charting library, as it is installed. */
function uplot(file: string): string {
  const folder = dirname(createRequire(import.meta.url).resolve('uplot'));
  return readFileSync(join(folder, file), 'utf8');
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
.uplot, .u-legend { font: inherit; }
.u-legend { text-align: left; font-size: .85rem; color: var(--ink); }
.u-legend th { color: var(--ink); font-weight: 400; border: 0; padding: 0; }
.u-legend td { border: 0; padding: 0; min-width: 3.2rem; display: inline-block; text-align: left; }
.u-inline tr { margin-right: 1.1rem; }
.u-hz .u-cursor-x, .u-hz .u-cursor-y { border-color: var(--soft); }
`;

/**
 * Runs in the reader's browser. Every figure with data-chart draws the chart of that name from the JSON in
 * #charts: a `Chart` above.
 */
const script = `
const charts = JSON.parse(document.getElementById('charts').textContent);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
const round = (v) => v == null ? '–' : v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2);
const ticks = (min, max) => {
  const all = [];
  for (let power = 10 ** Math.floor(Math.log10(min)); power <= max; power *= 10)
    for (const step of [1, 2, 5]) if (step * power >= min && step * power <= max) all.push(step * power);
  return all;
};
const withRoom = (u, all) => {
  let free = -Infinity;
  return all.map((v) => {
    const half = 5 + 4 * String(v).length, at = u.valToPos(v, 'x');
    if (at - half < free) return null;
    free = at + half;
    return v;
  });
};
for (const figure of document.querySelectorAll('figure[data-chart]')) {
  const chart = charts[figure.dataset.chart];
  const place = figure.querySelector('.chart');
  const axis = { stroke: () => css('soft'), font: '12px system-ui, sans-serif', labelFont: '12px system-ui, sans-serif',
    grid: { stroke: () => css('line'), width: 1 }, ticks: { stroke: () => css('line'), width: 1 } };
  const plot = new uPlot({
    width: place.clientWidth, height: 420,
    scales: {
      x: { time: false, distr: 3, log: 2 },
      y: chart.log ? { distr: 3, log: 10, range: (u, min, max) => [min * 0.8, max * 1.25] } : { range: (u, min, max) => [0, max * 1.06] },
    },
    axes: [
      // Each tick has its line, but a number only where the one before it leaves room.
      { ...axis, label: chart.label, size: 42, labelSize: 20, splits: () => chart.x, filter: withRoom,
        values: (u, all) => all.map((v) => v == null ? '' : String(v)) },
      { ...axis, label: chart.unit, size: 62,
        ...(chart.log ? { splits: (u, i, min, max) => ticks(min, max), filter: (u, all) => all } : {}),
        values: (u, all) => all.map((v) => v == null ? '' : String(+v.toPrecision(3))) },
    ],
    series: [
      { label: chart.label },
      ...chart.series.map((s) => ({
        label: s.label, stroke: () => css(s.colour), width: s.width, dash: s.dash, spanGaps: true,
        points: { show: true, size: 5, fill: () => css(s.colour) },
        value: (u, v) => round(v),
      })),
    ],
    cursor: { drag: { x: false, y: false } },
  }, [chart.x, ...chart.series.map((s) => s.values)], place);
  new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: 420 })).observe(place);
}
`;
