import { type Chart, json, text, uplot } from './parts.js';
import { script, style } from './style.js';

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
