/** The text and the page of `heddle plan serve`, for a person who has to buy or rent. */
import { type Chart, figure, list, page, type Series, softLines } from '../../base/page.js';
import { type Column, htmlTable, textTable } from '../../base/table.js';
import { limits } from '../../moe/layer/index.js';
import { type Demand, expertLayers, pareto, type Service } from './serve.js';
import { lawInWords, micro, percent } from './text.js';

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
  `Busiest: the routes of the busiest rank over the mean; where loads are skewed, also with one more place on every rank, by rebalance (at most ${limits.ranks} ranks).`,
  'Places save: so much less does a layer take then.',
];

const columns: readonly Column<Service>[] = [
  { head: 'GPUs', cell: ({ gpus }) => String(gpus) },
  { head: 'EP', cell: ({ ep }) => String(ep) },
  { head: 'tokens a rank', cell: ({ tokens }) => String(tokens) },
  { head: 'ms a token', cell: ({ latency }) => micro(latency) },
  { head: '90 %', cell: ({ low, high }) => `${micro(low)}–${micro(high)}` },
  { head: 'layer µs', cell: ({ layer }) => micro(layer) },
  { head: 'dispatch + combine', cell: ({ parts }) => micro(parts.network) },
  { head: 'weights', cell: ({ parts }) => micro(parts.memory) },
  { head: 'multiplying', cell: ({ parts }) => micro(parts.compute) },
  { head: 'bound by', cell: ({ bound }) => bound },
  { head: 'busiest', cell: ({ busiest }) => [...new Set(busiest.map((one) => one.toFixed(2)))].join(' → ') },
  { head: 'places save', cell: ({ placed }) => percent(placed) },
  { head: 'carried by', cell: ({ carrier, beyond }) => `${carrier}${beyond.length > 0 ? ' *' : ''}` },
];

/** For each carrier of rows: where its predictions go beyond what was measured. */
function starred(some: readonly Service[]): string[] {
  const carriers = [...new Set(some.map(({ carrier }) => carrier))];
  return carriers.flatMap((name) => {
    const beyond = some.filter(({ carrier }) => carrier === name).flatMap((one) => one.beyond);
    return beyond.length === 0 ? [] : [`* ${name}: ${[...new Set(beyond)].join('; ')}`];
  });
}

export function serveText(demand: Demand, all: readonly Service[]): string {
  const best = pareto(all);
  if (best.length === 0) return `${lines(demand).join('\n')}\n\nNo EP of this machine holds the model.\n`;
  return `${[
    ...lines(demand),
    '',
    textTable(columns, best),
    '',
    'Fewest GPUs first; no other is better in both GPUs and waiting. µs are of one layer: the busiest rank’s.',
    ...starred(best),
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
      ...{ label, colour, width },
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
  const body = `${softLines(lines(demand))}
<p>Predictions, not measurements. Nine of ten measurements are expected within ranges and the band.</p>
<h2>GPUs against waiting</h2>
${figure('pareto', 'Milliseconds between two tokens of one request against GPUs, both logarithmic. To the right a smaller batch.')}
<h2>What no other beats in both</h2>
${htmlTable(columns, best)}
<h2>Sources</h2>
${list([...sources(demand), ...starred(best)])}`;
  const title = `Heddle plan: ${demand.tokensPerSecond} tokens a second of ${demand.model} on ${demand.known.machine.name}`;
  return page(title, body, { pareto: chart });
}
