/** The text that `heddle demo` shows a person. */
import { styleText } from 'node:util';
import type { Shape, Traffic } from '../moe/layer/index.js';
import type { Span } from '../tools/bench/index.js';
import type { Comparison } from '../verify/testing/index.js';

/** How the picture draws a kind of work, which is one call or several: a character, and its colour where there are colours. */
interface Bar {
  readonly name: string;
  readonly calls: readonly string[];
  readonly mark: string;
  readonly colour: Parameters<typeof styleText>[0];
}

/** The kinds of bars of a picture, in the order in which they are drawn: later ones cover earlier ones. */
const bars: readonly Bar[] = [
  { name: 'route', calls: ['router'], mark: '░', colour: 'green' },
  { name: 'dispatch', calls: ['dispatch', 'dispatchSend', 'dispatchRecv'], mark: '█', colour: 'cyan' },
  { name: 'experts', calls: ['plan', 'experts'], mark: '▒', colour: 'yellow' },
  { name: 'combine', calls: ['combine', 'combineSend', 'combineRecv'], mark: '▓', colour: 'magenta' },
  { name: 'shared', calls: ['shared'], mark: '▚', colour: 'blue' },
];

export interface DemoResult {
  readonly shape: Shape;
  readonly nodes: number;
  readonly simulated: boolean;
  /** The description of the run, a paragraph each. */
  readonly about: readonly string[];
  /** The subject of the verdicts. */
  readonly says: Readonly<Record<'right' | 'repeatable' | 'notRepeatable', string>>;
  readonly traffic: Traffic;
  /** All ranks' results with the reference's. */
  readonly comparison: Comparison;
  readonly bitwiseRepeatable: boolean;
  /** The subject of the picture. */
  readonly picture: string;
  /** The work that a rank's lines of the picture stand for, where it has several. */
  readonly lines?: string;
  readonly spans: readonly Span[];
  readonly seconds: number;
}

export type Paint = (style: Parameters<typeof styleText>[0], text: string) => string;

const plain: Paint = (_, text) => text;

/** A text in colours and of the terminal's width, where standard output is a terminal. */
export function rendered(text: (paint: Paint, columns: number) => string): string {
  const terminal = process.stdout.isTTY === true;
  return text(terminal ? styleText : plain, terminal ? process.stdout.columns || 80 : 80);
}

export function demoText(result: DemoResult, paint: Paint, columns: number): string {
  const { shape, nodes, simulated, about } = result;
  const { ranks, maxTokens, experts, topK } = shape;
  const gpus = `${ranks} ${simulated ? 'simulated ' : ''}GPU${ranks === 1 ? '' : 's'}`;
  const where = nodes === 1 ? '' : ` on ${nodes} nodes`;
  const lines = [
    '',
    ...wrap(
      `${gpus}${where}, ${count(maxTokens, 'token')} each, top ${topK} of ${count(experts, 'expert')}`,
      columns,
    ).map((line) => paint('bold', line)),
    ...about.flatMap((paragraph) => wrap(paragraph, columns)),
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

function verdict(
  { comparison, bitwiseRepeatable, says }: DemoResult,
  paint: Paint,
  columns: number,
): string[] {
  const repeatable = bitwiseRepeatable
    ? say(paint, columns, true, `repeatable: ${says.repeatable}`)
    : say(paint, columns, false, `not repeatable: ${says.notRepeatable}`);
  return [...rightness(comparison, says.right, paint, columns), ...repeatable];
}

/** Whether results are right, and what is wrong with them. */
export function rightness(
  { compared, different, maxAbsError, first }: Comparison,
  right: string,
  paint: Paint,
  columns: number,
): string[] {
  const values = count(compared, 'value');
  if (different === 0)
    return say(paint, columns, true, `right: ${values}, ${right} (largest error ${maxAbsError})`);
  return [
    ...say(paint, columns, false, `wrong: ${number(different)} of ${values} differ, by up to ${maxAbsError}`),
    ...wrap(`the first: ${first}`, columns, '  '),
  ];
}

export function say(paint: Paint, columns: number, good: boolean, text: string): string[] {
  const mark = good ? paint('green', '✓') : paint('red', '✗');
  return wrap(text, columns, '  ').map((line, i) => (i === 0 ? `${mark} ${line.trimStart()}` : line));
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

/** Every stream of a rank a line, from the first launch to the last end; a call's bar covers what it overlaps. */
function timeline(
  { spans: all, simulated, picture, lines: meaning }: DemoResult,
  paint: Paint,
  columns: number,
): string[] {
  const spans = all.filter(
    ({ depth, name }) => depth === 0 && bars.some(({ calls }) => calls.includes(name)),
  );
  if (spans.length === 0) return [];
  const [start, end] = [Math.min(...spans.map((s) => s.start)), Math.max(...spans.map((s) => s.end))];
  const drawn = bars.filter(({ calls }) => spans.some(({ name }) => calls.includes(name)));
  const ranks = Math.max(...spans.map(({ rank }) => rank)) + 1;
  const streams = Math.max(...spans.map(({ track }) => track)) + 1;
  const label = `rank ${ranks - 1}`.length;
  const width = Math.max(10, columns - label - 5);
  const column = (at: number): number =>
    Math.min(width - 1, Math.floor(((at - start) / (end - start)) * width));
  const shown = Math.min(ranks, Math.max(1, Math.floor(16 / streams)));
  const lines = Array.from({ length: shown * streams }, (_, line) => {
    const [rank, stream] = [Math.floor(line / streams), line % streams];
    const cells: string[] = new Array(width).fill(' ');
    for (const { calls, mark, colour } of drawn) {
      for (const span of spans) {
        if (span.rank !== rank || span.track !== stream || !calls.includes(span.name)) continue;
        cells.fill(paint(colour, mark), column(span.start), column(span.end) + 1);
      }
    }
    const said = stream === 0 ? `rank ${rank}` : '';
    return `  ${said.padEnd(label)} │${cells.join('').trimEnd()}`;
  });
  // A step of the simulated machine is a nanosecond of its clock.
  const unit = simulated
    ? `${number(Math.round(1000 * (end - start)))} steps of the machine, not time`
    : `${(end - start).toFixed(1)} µs`;
  return [
    ...heading(picture, drawn, paint, columns),
    ...lines,
    ...(shown < ranks ? [`  and ${ranks - shown} more`] : []),
    ...wrap(unit, columns, '  '),
    ...(meaning === undefined ? [] : wrap(meaning, columns, '  ')),
  ];
}

/** The picture's name and what its marks mean: beside it where there is room, else below. */
function heading(picture: string, bars: readonly Bar[], paint: Paint, columns: number): string[] {
  // Spaces that do not break keep a mark with its name.
  const legend = bars.map(({ name, mark }) => `${mark}${mark}\u00a0${name}`).join('\u00a0 ');
  const painted = (line: string): string =>
    bars
      .reduce((text, { mark, colour }) => text.replace(mark + mark, paint(colour, mark + mark)), line)
      .replaceAll('\u00a0', ' ')
      .trimEnd();
  const beside = `${picture}   ${legend}`.length <= columns;
  const name = paint('bold', picture);
  return beside ? [painted(`${name}   ${legend}`)] : [name, ...wrap(legend, columns, '  ').map(painted)];
}

export function wrap(text: string, columns: number, indent = ''): string[] {
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

export const number = (n: number): string => n.toLocaleString('en-US');
export const count = (n: number, what: string): string => `${number(n)} ${what}${n === 1 ? '' : 's'}`;
const percent = (part: number, whole: number): string =>
  `${whole === 0 ? 0 : Math.round((part / whole) * 100)} %`;

/** Bytes in decimal units, like the data sheets of links. */
function size(bytes: number): string {
  const units = ['bytes', 'kB', 'MB', 'GB', 'TB'];
  let [value, unit] = [bytes, 0];
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}
