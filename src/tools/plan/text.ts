/** What `heddle plan` prints for people. */
import { advice, advised } from './advice.js';
import { type Cell, cellName } from './cells.js';
import type { KnownMachine } from './machines.js';
import { type ParameterName, parameterNames } from './model.js';
import { type Answer, type Candidate, type Question, type SimulatedPhase, winners } from './plan.js';
import { nodesOf, type RoutingLaw } from './routing.js';
import type { Disagreement, SplitResult } from './validate.js';

/** Columns as wide as their widest cell; numbers to the right, the first `left` columns to the left. */
export function table(rows: readonly (readonly string[])[], left = 1): string {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  return rows
    .map((row) =>
      row
        .map((cell, i) => (i < left ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!)))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

export const micro = (us: number): string =>
  us >= 100 ? us.toFixed(0) : us >= 10 ? us.toFixed(1) : us.toFixed(2);
const range = (low: number, high: number): string => `${micro(low)}–${micro(high)}`;
const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;
export const memoryText = ({ memory, fits }: Answer): string =>
  memory === null ? '–' : `${mega(memory)}${fits ? '' : ' !'}`;
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

export function planText(
  question: Question,
  asked: readonly Candidate[],
  answers: readonly Answer[],
): string {
  const out = [heading(question), ''];
  const sources = [...new Map(answers.map((one) => [one.source, one])).keys()];
  const mark = (source: string): string =>
    source === 'Heddle' ? '' : ` [${sources.filter((s) => s !== 'Heddle').indexOf(source) + 1}]`;
  const head = [
    'tokens',
    'who',
    'dispatch µs',
    '90 %',
    'combine µs',
    '90 %',
    'both µs',
    'NVLink MB',
    'NIC MB',
    'messages',
    'bound by',
    'memory MB',
  ];
  const rows = answers.map((one) => {
    const [there, back] = one.phases as [Answer['phases'][number], Answer['phases'][number]];
    const bytes = (link: 'nvlink' | 'network') => mega(there.traffic[link].bytes + back.traffic[link].bytes);
    const bounds = [...new Set([there.bound, back.bound])].join(', ');
    return [
      String(one.tokens),
      `${one.candidate}${mark(one.source)}${one.beyond.length > 0 ? ' *' : ''}`,
      micro(there.time),
      range(there.low, there.high),
      micro(back.time),
      range(back.low, back.high),
      micro(one.time),
      bytes('nvlink'),
      bytes('network'),
      (there.traffic.network.messages + back.traffic.network.messages).toFixed(0),
      bounds,
      memoryText(one),
    ];
  });
  out.push(table([head, ...rows], 2), '');
  if (answers.some(({ fits }) => !fits))
    out.push(`! does not fit into the ${question.known.machine.memory} GB of a GPU, and is not ranked.`);
  out.push(
    'Bytes and messages: of a rank, both phases together, in the mean. Nine of ten measurements are expected in the range.',
  );
  for (const one of asked) {
    const beyond = [
      ...new Set(
        answers
          .filter(({ candidate, source }) => candidate === one.name && source === one.source)
          .flatMap((answer) => answer.beyond),
      ),
    ];
    if (beyond.length > 0) out.push(`* ${one.name}${mark(one.source)}: ${beyond.join('; ')}`);
  }
  for (const [i, source] of sources.filter((s) => s !== 'Heddle').entries()) out.push(`[${i + 1}] ${source}`);
  out.push('', 'Fastest, where all go as badly as their ranges allow:');
  for (const { from, candidate, source, close, predicted, instead } of winners(answers)) {
    const other = instead && `${instead.candidate}${mark(instead.source)}, ${micro(instead.time)} µs`;
    out.push(
      `  from ${from} tokens  ${candidate}${mark(source)}${close ? ', but another one’s range overlaps' : ''}` +
        (predicted ? '; beyond what was measured' : '') +
        (other === null ? '' : `: the first that was is ${other}`),
    );
  }
  const tokens = middle(question.tokens);
  for (const best of advised(answers, tokens)) {
    const candidate = asked.find(({ name, source }) => name === best.candidate && source === best.source)!;
    const changes = advice(question, candidate, tokens).slice(0, 6);
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
    out.push(table(lines));
  }
  return `${out.join('\n')}\n`;
}

/** The number of tokens that advice is about: the one nearest to 128, which most decoding is. */
export const middle = (tokens: readonly number[]): number =>
  tokens.reduce((best, one) => (Math.abs(Math.log(one / 128)) < Math.abs(Math.log(best / 128)) ? one : best));

export function simulatedText(rows: readonly SimulatedPhase[]): string {
  const head = [
    'tokens',
    'who',
    'phase',
    'closed form',
    'these routes',
    'simulated',
    'median rank',
    '99 %',
    'slowest',
    'burst µs',
    'transfers',
  ];
  const lines = rows.map(({ tokens, name, phase, closed, found }) => {
    const sorted = [...found.ranks].sort((a, b) => a - b);
    const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]!;
    return [
      String(tokens),
      name,
      phase,
      micro(closed),
      micro(found.closed),
      micro(found.time),
      micro(at(0.5)),
      micro(at(0.99)),
      micro(sorted.at(-1)!),
      micro(found.burst),
      String(found.transfers),
    ];
  });
  return `Message by message, from drawn routes (µs):\n${table([head, ...lines], 3)}\n`;
}

export function validationText(results: readonly SplitResult[], sources: readonly Disagreement[]): string {
  const head = [
    'fitted → predicted',
    'cells',
    'mean',
    'worst',
    '≤ 12 %',
    'in range',
    'prior',
    'rule',
    'bytes alone',
    'goal',
  ];
  const rows = results.map(({ name, summary, goal, reached }) => [
    name,
    String(summary.cells),
    percent(summary.mean),
    percent(summary.worst),
    percent(summary.within12),
    percent(summary.inRange),
    percent(summary.prior),
    summary.rule === null ? '' : percent(summary.rule),
    percent(summary.bytesAlone),
    goal === undefined ? '' : `≤ ${percent(goal.mean)}: ${reached ? 'reached' : 'missed'}`,
  ]);
  const out = [table([head, ...rows]), ''];
  out.push(
    'Mean and worst: the size of predicted ÷ measured − 1. In range: measured within the predicted 90 %.',
    'Beside them the mean errors of what is believed before any cell is seen (prior), of half of the last step again for every',
    'doubling of EP (rule, where two steps are known), and of bytes over nominal bandwidth.',
  );
  if (sources.length > 0) {
    out.push('', 'Sources that disagree most about one kernel on one kind of machine:');
    const lines = sources
      .slice(0, 6)
      .map(({ system, what, figures, ratio }) => [
        `${system}, ${what}`,
        `${ratio.toFixed(2)} ×`,
        figures.map(({ hw, us }) => `${micro(us)} µs on ${hw}`).join(', '),
      ]);
    out.push(table(lines));
  }
  return `${out.join('\n')}\n`;
}

/** Every cell of a result beside its prediction. */
export function checksText({ checks }: SplitResult, unknown: readonly Cell[]): string {
  const head = ['cell', 'measured µs', 'predicted µs', '90 %', 'error', 'beyond'];
  const rows = checks.map(({ cell, measured, predicted, error }) => [
    cellName(cell),
    micro(measured),
    micro(predicted.time),
    range(predicted.low, predicted.high),
    `${error > 0 ? '+' : ''}${percent(error)}`,
    predicted.beyond.join('; '),
  ]);
  const missing = unknown.map((cell) => `no shipped cells of its system on its machine: ${cellName(cell)}`);
  return `${[table([head, ...rows]), ...missing].join('\n')}\n`;
}

const units: Readonly<Record<ParameterName, string>> = {
  floor: 'µs',
  lead: 'µs',
  nvlink: 'µs a MB',
  latency: 'µs',
  doubling: 'µs for each doubling of nodes',
  message: 'µs a message',
  nic: 'µs a MB',
};

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
      units[name],
    ]);
    const scatter = ['  scatter of cells', ...phases.map(([, one]) => percent(one.scatter)), ''];
    const cells = ['  cells', ...phases.map(([, { seen }]) => String(seen.length)), ''];
    return table([head, ...rows, scatter, cells]);
  });
  return `${machine.title}\n\n${blocks.join('\n\n')}\n`;
}
