/** The text and the page of `heddle plan serve`, for a person who has to buy or rent. */
import { type Chart, page, type Series, text } from '../../base/page.js';
import { type Demand, expertLayers, pareto, type Service } from './serve.js';
import { lawInWords, micro, table } from './text.js';

const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;

function lines({ model, layer, known, tokensPerSecond, law, gemm, rest }: Demand): string[] {
  return [
    `${model}: ${expertLayers[model]} layers of top-${layer.topK} of ${layer.experts} experts, ${lawInWords(law)}, ${tokensPerSecond} tokens a second`,
    `${known.machine.title}; experts by ${gemm.name}: ${micro(gemm.bandwidth)} GB/s of weights, ${micro(gemm.rate)} TFLOP/s at best`,
    rest > 0
      ? `All else (attention, router, shared expert): ${rest} µs a layer, as given.`
      : 'Attention, router and shared expert are left out (--rest says what they take): more GPUs and longer waits than these, in truth.',
  ];
}

const sources = ({ gemm }: Demand): string[] => [
  `GEMMs: ${gemm.src}.`,
  'Dispatch and combine: as heddle plan says, the first in rank for each EP and number of tokens.',
  'A layer is dispatch, GEMMs and combine in a row: what overlaps is saved. Ranges are nine tenths; errors of parts add up.',
  'Copies: what one more expert on every rank would save where loads are skewed; rows travel as before.',
];

const columns = [
  ...['GPUs', 'EP', 'tokens a rank', 'ms a token', '90 %', 'layer µs', 'dispatch + combine'],
  ...['weights', 'multiplying', 'bound by', 'copies save', 'carried by'],
];

const cells = (one: Service): string[] => [
  ...[one.gpus, one.ep, one.tokens].map(String),
  micro(one.latency),
  `${micro(one.low)}–${micro(one.high)}`,
  micro(one.layer),
  micro(one.parts.network),
  micro(one.parts.memory),
  micro(one.parts.compute),
  one.bound,
  percent(one.replicas),
  `${one.carrier}${one.beyond.length > 0 ? ' *' : ''}`,
];

export function serveText(demand: Demand, all: readonly Service[]): string {
  const best = pareto(all);
  if (best.length === 0) return `${lines(demand).join('\n')}\n\nNo EP of this machine holds the model.\n`;
  const starred = [...new Set(best.flatMap(({ beyond }) => beyond))];
  return `${[
    ...lines(demand),
    '',
    table([columns, ...best.map(cells)], 0),
    '',
    'Fewest GPUs first; no other is better in both GPUs and waiting. µs are of one layer: the busiest rank’s.',
    ...(starred.length > 0 ? [`* ${starred.join('; ')}`] : []),
    ...sources(demand),
  ].join('\n')}\n`;
}

const colours = ['heddle', 'nccl', 'published', 'dense', 'teal', 'rose', 'olive', 'brick', 'ceiling'];

export function servePage(demand: Demand, all: readonly Service[]): string {
  const best = pareto(all);
  const x = [...new Set(all.map(({ gpus }) => gpus))].sort((a, b) => a - b);
  const line = (label: string, colour: string, some: readonly Service[], width: number): Series => {
    const at = x.map((gpus) => some.find((one) => one.gpus === gpus) ?? null);
    return {
      ...{ label, colour, line: true, width, points: 5 },
      values: at.map((one) => one?.latency ?? null),
      ...(width > 2 ? { band: at.map((one) => one && ([one.low, one.high] as const)) } : {}),
    };
  };
  const sizes = [...new Set(all.map(({ ep }) => ep))];
  const chart: Chart = {
    x,
    label: 'GPUs',
    log: true,
    unit: 'ms a token',
    series: [
      line('the best', 'ink', best, 3),
      ...sizes.map((ep, i) => {
        const mine = pareto(all.filter((one) => one.ep === ep));
        return line(`EP${ep}`, colours[i % colours.length]!, mine, 1.5);
      }),
    ],
  };
  const rows = best.map(
    (one) =>
      `<tr>${cells(one)
        .map((cell) => `<td>${text(cell)}</td>`)
        .join('')}</tr>`,
  );
  const body = `${lines(demand)
    .map((one) => `<p class="soft">${text(one)}</p>`)
    .join('\n')}
<p>Predictions, not measurements. Nine of ten measurements are expected within ranges and the band.</p>
<h2>GPUs against waiting</h2>
<figure data-chart="pareto"><figcaption>Milliseconds between two tokens of one request against GPUs, both logarithmic. To the right a smaller batch.</figcaption><div class="chart"></div></figure>
<h2>What no other beats in both</h2>
<div class="scroll"><table><thead><tr>${columns.map((one) => `<th>${text(one)}</th>`).join('')}</tr></thead><tbody>${rows.join('\n')}</tbody></table></div>
<h2>Sources</h2>
<ul>${[...sources(demand), ...new Set(best.flatMap(({ beyond }) => beyond))].map((one) => `<li>${text(one)}</li>`).join('')}</ul>`;
  const title = `Heddle plan: ${demand.tokensPerSecond} tokens a second of ${demand.model} on ${demand.known.machine.name}`;
  return page(title, body, { pareto: chart });
}
