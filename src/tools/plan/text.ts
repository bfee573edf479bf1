/** The text that `heddle plan` prints for people. */
import { aligned, type Column, textTable } from '../../base/table.js';
import { advice, advised } from './advice.js';
import { type Cell, cellName } from './cells.js';
import type { KnownMachine } from './machines.js';
import { parameterNames, parameterUnits } from './model.js';
import {
  type Answer,
  assumed,
  type Candidate,
  candidateOf,
  plan,
  type Question,
  type SimulatedPhase,
  winners,
} from './plan.js';
import { busiestOf, hits, nodesOf, type RoutingLaw } from './routing.js';
import type { Disagreement } from './sources.js';
import type { Traffic } from './traffic.js';
import type { Check, SplitResult, Summary } from './validate.js';

export const micro = (us: number): string =>
  us >= 100 ? us.toFixed(0) : us >= 10 ? us.toFixed(1) : us.toFixed(2);
const range = (low: number, high: number): string => `${micro(low)}–${micro(high)}`;
/** A dash where nothing was counted. */
export const percent = (share: number): string =>
  Number.isFinite(share) ? `${(100 * share).toFixed(1)} %` : '–';
const mega = (bytes: number): string => (bytes / 1e6).toFixed(bytes < 1e7 ? 2 : 0);

export function lawInWords(law: RoutingLaw): string {
  switch (law.kind) {
    case 'uniform':
      return law.nodesAtMost === undefined
        ? 'uniform routes'
        : `uniform routes, ${law.nodesAtMost} nodes a token at most`;
    case 'perfect':
      return 'a perfect router';
    case 'skewed':
      return `skewed routes (n-th most popular expert ∝ n^-${law.exponent})`;
    case 'counts':
      return 'measured loads of the experts';
    case 'routes':
      return `${law.tokens.length} measured tokens`;
  }
}

export function heading({ model, layer, known, place, law, dtype, combineDtype }: Question): string {
  const nodes = nodesOf(place);
  const where = nodes === 1 ? 'one NVLink domain' : `${nodes} nodes of ${place.perNode}`;
  return [
    `${model}: hidden ${layer.hidden}, top-${layer.topK} of ${layer.experts} experts, ${dtype} there, ${combineDtype} back, ${lawInWords(law)}`,
    `EP${place.ranks} on ${where}: ${known.machine.title}`,
  ].join('\n');
}

/** `who`: what a line is called. */
export function answerColumns(who: (answer: Answer) => string): readonly Column<Answer>[] {
  const timed = (i: 0 | 1, name: string): readonly Column<Answer>[] => [
    { head: `${name} µs`, cell: ({ phases }) => micro(phases[i]!.time) },
    { head: '90 %', cell: ({ phases }) => range(phases[i]!.low, phases[i]!.high) },
  ];
  const moved = (of: (traffic: Traffic['busiest']) => number, { phases }: Answer): number =>
    phases.reduce((sum, { traffic }) => sum + of(traffic), 0);
  return [
    { head: 'tokens', kind: 'name', cell: ({ tokens }) => String(tokens) },
    { head: 'who', kind: 'name', cell: who },
    ...timed(0, 'dispatch'),
    ...timed(1, 'combine'),
    { head: 'both µs', cell: ({ time }) => micro(time) },
    { head: 'NVLink MB', cell: (answer) => mega(moved(({ nvlink }) => nvlink.bytes, answer)) },
    { head: 'NIC MB', cell: (answer) => mega(moved(({ network }) => network.bytes, answer)) },
    { head: 'messages', cell: (answer) => moved(({ network }) => network.messages, answer).toFixed(0) },
    { head: 'bound by', cell: ({ phases }) => [...new Set(phases.map(({ bound }) => bound))].join(', ') },
    {
      head: 'memory MB',
      cell: ({ memory, fits }) => (memory === null ? '–' : `${mega(memory)}${fits ? '' : ' !'}`),
    },
  ];
}

/** The load of the busiest rank, where routes are not even. */
function loadLine({ layer, place, law, placement }: Question): string[] {
  if (law.kind === 'uniform' || law.kind === 'perfect') return [];
  const inOrder = `${busiestOf(hits(layer, place, law)).toFixed(2)} × the mean of routes`;
  if (placement === undefined) return [`The busiest rank gets ${inOrder}.`];
  const now = busiestOf(hits(layer, place, law, placement)).toFixed(2);
  return [
    `The busiest rank gets ${now} × the mean of routes with experts in ${placement.places.length} places, ${inOrder} in order.`,
  ];
}

export function planText(
  question: Question,
  asked: readonly Candidate[],
  answers: readonly Answer[],
): string {
  const out = [heading(question), ''];
  const sources = [...new Map(answers.map((one) => [one.source, one])).keys()];
  const mark = (source: string): string =>
    source === 'Heddle' ? '' : ` [${sources.filter((s) => s !== 'Heddle').indexOf(source) + 1}]`;
  const who = ({ candidate, source, beyond }: Answer): string =>
    `${candidate}${mark(source)}${beyond.length > 0 ? ' *' : ''}`;
  out.push(textTable(answerColumns(who), answers), '');
  if (answers.some(({ fits }) => !fits))
    out.push(`! does not fit into the ${question.known.machine.memory} GB of a GPU, and is not ranked.`);
  out.push(
    'Bytes and messages: of a rank, both phases together, in the mean. Nine of ten measurements are expected in the range.',
  );
  out.push(...loadLine(question));
  for (const one of asked) {
    const beyond = assumed(one, answers);
    if (beyond.length > 0) out.push(`* ${one.name}${mark(one.source)}: ${beyond.join('; ')}`);
  }
  for (const [i, source] of sources.filter((s) => s !== 'Heddle').entries()) out.push(`[${i + 1}] ${source}`);
  out.push('', 'Fastest by the upper end of the range:');
  const fastest = winners(answers).map(({ from, candidate, source, close, predicted, instead }) => {
    const other = instead && `${instead.candidate}${mark(instead.source)}, ${micro(instead.time)} µs`;
    const notes = [
      ...(close ? ['not certain: ranges overlap'] : []),
      ...(predicted ? ['not measured here'] : []),
      ...(other === null ? [] : [`the fastest that was is ${other}`]),
    ];
    const begins = `  from ${from} token${from === 1 ? '' : 's'}`;
    return [begins, `${candidate}${mark(source)}${notes.length > 0 ? ` (${notes.join('; ')})` : ''}`];
  });
  if (fastest.length > 0) out.push(aligned(fastest, 2));
  const tokens = middle(question.tokens);
  for (const best of advised(answers, tokens)) {
    const candidate = candidateOf(best, asked);
    const changes = advice(question, candidate, tokens).slice(0, 6);
    const { placement, ...inOrder } = question;
    if (placement !== undefined) {
      const [without] = plan({ ...inOrder, tokens: [tokens] }, [candidate]);
      out.push(
        '',
        `${candidate.name}${mark(best.source)} at ${tokens} tokens: ${micro(best.time)} µs, with experts in order ${micro(without!.time)} µs.`,
      );
    }
    if (changes.length === 0) continue;
    out.push(
      '',
      `What would help ${candidate.name}${mark(best.source)} at ${tokens} tokens (${micro(best.time)} µs):`,
    );
    const lines = changes.map(({ what, before, after }) => [
      `  ${what}`,
      `${micro(after)} µs`,
      `−${percent(1 - after / before)}`,
    ]);
    out.push(aligned(lines));
  }
  return `${out.join('\n')}\n`;
}

/** The number of tokens that advice is about: the one nearest to 128, which most decoding is. */
export const middle = (tokens: readonly number[]): number =>
  tokens.reduce((best, one) => (Math.abs(Math.log(one / 128)) < Math.abs(Math.log(best / 128)) ? one : best));

/** Of all ranks' times the one that such a share does not exceed. */
const rankAt =
  (share: number) =>
  ({ found: { ranks } }: SimulatedPhase): string => {
    const sorted = [...ranks].sort((a, b) => a - b);
    return micro(sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]!);
  };

const simulatedColumns: readonly Column<SimulatedPhase>[] = [
  { head: 'tokens', kind: 'name', cell: ({ tokens }) => String(tokens) },
  { head: 'who', kind: 'name', cell: ({ name }) => name },
  { head: 'phase', kind: 'name', cell: ({ phase }) => phase },
  { head: 'closed form', cell: ({ closed }) => micro(closed) },
  { head: 'these routes', cell: ({ found }) => micro(found.closed) },
  { head: 'simulated', cell: ({ found }) => micro(found.time) },
  { head: 'median rank', cell: rankAt(0.5) },
  { head: '99 %', cell: rankAt(0.99) },
  { head: 'slowest', cell: rankAt(1) },
  { head: 'burst µs', cell: ({ found }) => micro(found.burst) },
  { head: 'transfers', cell: ({ found }) => String(found.transfers) },
];

export const simulatedText = (rows: readonly SimulatedPhase[]): string =>
  `Message by message, from drawn routes (µs):\n${textTable(simulatedColumns, rows)}\n`;

function ninetyInWords({ inRange, possible: [low, high], holds }: Summary): string {
  if (holds === null) return `${(100 * low).toFixed(0)}–${(100 * high).toFixed(0)} %: too few to tell`;
  return `${percent(inRange)}: ${holds ? 'yes' : 'no'}`;
}

const resultColumns: readonly Column<SplitResult>[] = [
  { head: 'fitted → predicted', kind: 'name', cell: ({ name }) => name },
  { head: 'cells', cell: ({ summary }) => String(summary.cells) },
  { head: 'mean', cell: ({ summary }) => percent(summary.mean) },
  { head: 'worst', cell: ({ summary }) => percent(summary.worst) },
  { head: '≤ 12 %', cell: ({ summary }) => percent(summary.within12) },
  { head: 'in range', cell: ({ summary }) => String(summary.within) },
  { head: 'nine of ten', cell: ({ summary }) => ninetyInWords(summary) },
  { head: 'prior', cell: ({ summary }) => percent(summary.prior) },
  {
    head: 'rule (fit)',
    cell: ({ summary: { rule, besideRule } }) =>
      rule === null ? '' : `${percent(rule)} (${percent(besideRule!)})`,
  },
  { head: 'bytes alone', cell: ({ summary }) => percent(summary.bytesAlone) },
];

export function validationText(results: readonly SplitResult[], sources: readonly Disagreement[]): string {
  const out = [textTable(resultColumns, results), ''];
  out.push(
    'Mean and worst: the size of predicted ÷ measured − 1.',
    'In range: cells measured within the predicted 90 %.',
    'Nine of ten: whether that is 85 to 95 %. With fewer than 20 cells the column shows a confidence interval: the true shares that fit',
    'this count.',
    'Prior: the mean error of what is believed before any cell is seen.',
    'Rule (fit): the mean error where each doubling of EP adds half of the last step, for cells with two known steps; and the fit’s, for',
    'the same cells.',
    'Bytes alone: the mean error of bytes over nominal bandwidth.',
    'of …: a source’s cells, over all questions that its other cells answer.',
  );
  if (sources.length > 0) {
    out.push('', 'Sources that disagree most about one kernel on one kind of machine:');
    const lines = sources
      .slice(0, 6)
      .map(({ lib, mode, what, figures, ratio }) => [
        `${lib} ${mode}, ${what}`,
        `${ratio.toFixed(2)} ×`,
        figures.map(({ hw, us }) => `${micro(us)} µs on ${hw}`).join(', '),
      ]);
    out.push(aligned(lines));
  }
  return `${out.join('\n')}\n`;
}

const checkColumns: readonly Column<Check>[] = [
  { head: 'cell', kind: 'name', cell: ({ cell }) => cellName(cell) },
  { head: 'measured µs', cell: ({ measured }) => micro(measured) },
  { head: 'predicted µs', cell: ({ predicted }) => micro(predicted.time) },
  { head: '90 %', cell: ({ predicted }) => range(predicted.low, predicted.high) },
  { head: 'error', cell: ({ error }) => `${error > 0 ? '+' : ''}${percent(error)}` },
  { head: 'beyond', cell: ({ predicted }) => predicted.beyond.join('; ') },
];

export function checksText({ checks }: SplitResult, unknown: readonly Cell[]): string {
  const missing = unknown.map((cell) => `no shipped cells of its system on its machine: ${cellName(cell)}`);
  return `${[textTable(checkColumns, checks), ...missing].join('\n')}\n`;
}

export function calibrationText({ machine, calibrations, network }: KnownMachine): string {
  const all = network === undefined ? calibrations : [...calibrations, network];
  const blocks = all.map(({ set, lib, mode, fits }) => {
    const phases = Object.entries(fits);
    const head = [`${lib}/${mode} (${set})`, ...phases.map(([phase]) => phase), ''];
    const rows = parameterNames.map((name, i) => [
      `  ${name}`,
      ...phases.map(
        ([, { parameters, covariance }]) =>
          `${micro(parameters[name])} ± ${(100 * Math.sqrt(covariance[i]![i]!)).toFixed(0)} %`,
      ),
      parameterUnits[name],
    ]);
    const scatter = ['  scatter of cells', ...phases.map(([, one]) => percent(one.scatter)), ''];
    const cells = ['  cells', ...phases.map(([, { seen }]) => String(seen.length)), ''];
    return aligned([head, ...rows, scatter, cells]);
  });
  return `${machine.title}\n\n${blocks.join('\n\n')}\n`;
}
