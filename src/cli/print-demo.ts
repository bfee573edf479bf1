/** What `heddle demo` shows a person. */
import { styleText } from 'node:util';
import type { Shape, Traffic } from '../layer/index.js';
import type { Comparison } from '../testing/index.js';

/** One kernel of one rank: in steps of the simulated machine, or microseconds. */
export interface KernelSpan {
  readonly rank: number;
  readonly kernel: string;
  readonly start: number;
  readonly end: number;
}

export interface DemoResult {
  readonly shape: Shape;
  readonly nodes: number;
  readonly simulated: boolean;
  /** libfabric's provider between the nodes of the second run, on GPUs of both; null where none was used. */
  readonly network: string | null;
  readonly traffic: Traffic;
  /** All ranks' results with the reference's. */
  readonly comparison: Comparison;
  readonly bitwiseRepeatable: boolean;
  readonly spans: readonly KernelSpan[];
  readonly seconds: number;
}

type Paint = (style: Parameters<typeof styleText>[0], text: string) => string;

/** The order of a round, with what draws it where there is no colour, and its colour. */
const kernels = [
  { name: 'dispatch', mark: '█', colour: 'cyan' },
  { name: 'experts', mark: '▒', colour: 'yellow' },
  { name: 'combine', mark: '▓', colour: 'magenta' },
] as const;

const plain: Paint = (_, text) => text;

/** The summary; colours and the terminal's width where standard output is a terminal. */
export function renderDemo(result: DemoResult): string {
  const terminal = process.stdout.isTTY === true;
  return demoText(result, terminal ? styleText : plain, terminal ? process.stdout.columns || 80 : 80);
}

/** The summary, `columns` wide. */
export function demoText(result: DemoResult, paint: Paint, columns: number): string {
  const { shape, nodes, simulated, seconds } = result;
  const { ranks, maxTokens, experts, topK, output } = shape;
  const gpus = `${ranks} ${simulated ? 'simulated ' : ''}GPU${ranks === 1 ? '' : 's'}`;
  const where = nodes === 1 ? '' : ` on ${nodes} nodes`;
  const lines = [
    '',
    ...wrap(
      `${gpus}${where}, ${count(maxTokens, 'token')} each, top ${topK} of ${count(experts, 'expert')}`,
      columns,
    ).map((line) => paint('bold', line)),
    ...wrap(
      `rows of ${output.hidden} ${output.dtype}; dispatch, experts, combine: twice, in ${seconds.toFixed(1)} s`,
      columns,
    ),
    ...(nodes === 1 ? [] : wrap(`between nodes: ${networks(result)}`, columns)),
    '',
    ...verdict(result, paint, columns),
    '',
    ...movement(result, paint, columns),
    '',
    ...timeline(result, paint, columns),
    '',
  ];
  return `${lines.join('\n')}\n`;
}

function networks({ nodes, simulated, network }: DemoResult): string {
  if (!simulated) return `libfabric (${network})`;
  const again =
    network === null
      ? 'both times (with libfabric1 installed, the second run is of processes)'
      : `then libfabric (${network}) between ${nodes} processes`;
  return `the simulated machine's network, ${again}`;
}

function verdict({ comparison, bitwiseRepeatable }: DemoResult, paint: Paint, columns: number): string[] {
  const { compared, different, maxAbsError, first } = comparison;
  const good = paint('green', '✓');
  const bad = paint('red', '✗');
  const say = (mark: string, text: string): string[] =>
    wrap(text, columns, '  ').map((line, i) => (i === 0 ? `${mark} ${line.trimStart()}` : line));
  const right =
    different === 0
      ? say(
          good,
          `right: ${count(compared, 'value')}, every bit as in the reference (largest error ${maxAbsError})`,
        )
      : [
          ...say(
            bad,
            `wrong: ${number(different)} of ${count(compared, 'value')} differ, by up to ${maxAbsError}`,
          ),
          ...wrap(`the first: ${first}`, columns, '  '),
        ];
  const repeatable = bitwiseRepeatable
    ? say(good, 'repeatable: the second run gave the same bits')
    : say(bad, 'not repeatable: the second run gave other bits');
  return [...right, ...repeatable];
}

function movement({ traffic, nodes }: DemoResult, paint: Paint, columns: number): string[] {
  const { tokens, routes, rows, dispatch, combine, withoutDedup, remote, between } = traffic;
  const all = Math.max(withoutDedup, 1);
  const width = Math.max(0, columns - 42);
  const bar = (bytes: number): string => '━'.repeat(Math.round((bytes / all) * width));
  const line = (what: string, bytes: number, drawn: string): string =>
    `  ${what.padEnd(23)}${size(bytes).padStart(10)}  ${drawn}`.trimEnd();
  const saved = routes === 0 ? 0 : 1 - rows / routes;
  return [
    paint('bold', 'What moved'),
    line('dispatch', dispatch, paint('cyan', bar(dispatch))),
    line('combine', combine, paint('magenta', bar(combine))),
    line('without deduplication', withoutDedup, paint('dim', bar(withoutDedup))),
    ...wrap(
      `${count(tokens, 'token')}, ${count(routes, 'route')}, but ${count(rows, 'row')} each way: a token goes once to a rank, however many of its experts live there. That saved ${(saved * 100).toFixed(0)} % of the bytes; ${percent(remote.rows, rows)} of the rows left their GPU.`,
      columns,
      '  ',
    ),
    ...(nodes === 1
      ? []
      : wrap(
          `Between nodes ${count(between.rows, 'row')} crossed the network each way, ${size(between.dispatch)} there and ${size(between.combine)} back: a token goes once to a node.`,
          columns,
          '  ',
        )),
  ];
}

/** Every rank a line, from the first launch to the last end; a kernel's bar covers what it overlaps. */
function timeline({ spans, simulated }: DemoResult, paint: Paint, columns: number): string[] {
  if (spans.length === 0) return [];
  const [start, end] = [Math.min(...spans.map((s) => s.start)), Math.max(...spans.map((s) => s.end))];
  const ranks = Math.max(...spans.map(({ rank }) => rank)) + 1;
  const label = `rank ${ranks - 1}`.length;
  const width = Math.max(10, columns - label - 5);
  const column = (at: number): number =>
    Math.min(width - 1, Math.floor(((at - start) / (end - start)) * width));
  const shown = Math.min(ranks, 16);
  const lines = Array.from({ length: shown }, (_, rank) => {
    const cells: string[] = new Array(width).fill(' ');
    for (const { name, mark, colour } of kernels) {
      for (const span of spans.filter((s) => s.rank === rank && s.kernel === name)) {
        cells.fill(paint(colour, mark), column(span.start), column(span.end) + 1);
      }
    }
    return `  ${`rank ${rank}`.padEnd(label)} │${cells.join('').trimEnd()}`;
  });
  const legend = kernels
    .map(({ name, mark, colour }) => `${paint(colour, mark.repeat(2))} ${name}`)
    .join('  ');
  const unit = simulated
    ? `${number(end - start)} steps of the machine, not time`
    : `${(end - start).toFixed(1)} µs`;
  return [
    ...(columns < 44
      ? [paint('bold', 'One round'), `  ${legend}`]
      : [`${paint('bold', 'One round')}   ${legend}`]),
    ...lines,
    ...(shown < ranks ? [`  and ${ranks - shown} more`] : []),
    ...wrap(unit, columns, '  '),
  ];
}

/** Text in lines of at most so many columns. */
function wrap(text: string, columns: number, indent = ''): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && indent.length + line.length + 1 + word.length > columns) {
      lines.push(indent + line);
      line = '';
    }
    line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, indent + line];
}

const number = (n: number): string => n.toLocaleString('en-US');
const count = (n: number, what: string): string => `${number(n)} ${what}${n === 1 ? '' : 's'}`;
const percent = (part: number, whole: number): string =>
  `${whole === 0 ? 0 : Math.round((part / whole) * 100)} %`;

/** Decimal units, as links are measured in. */
function size(bytes: number): string {
  const units = ['bytes', 'kB', 'MB', 'GB', 'TB'];
  let [value, unit] = [bytes, 0];
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}
