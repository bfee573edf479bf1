/** The text that `heddle demo` shows a person. */
import { styleText } from 'node:util';
import type { DemoResult } from './demo-rounds.js';

/** The marks of calls that begin with a name, and their colours. Later ones cover earlier ones. */
const bars = [
  { name: 'dispatch', mark: '█', colour: 'cyan' },
  { name: 'experts', mark: '▒', colour: 'yellow' },
  { name: 'combine', mark: '▓', colour: 'magenta' },
] as const;

type Paint = (style: Parameters<typeof styleText>[0], text: string) => string;

const plain: Paint = (_, text) => text;

/** The text in colours and of the terminal's width, where standard output is a terminal. */
export function demoText(
  result: DemoResult,
  paint: Paint = process.stdout.isTTY ? styleText : plain,
  columns = process.stdout.columns || 80,
): string {
  const { shape, simulated, seconds } = result;
  const { ranks, maxTokens, experts, topK, output } = shape;
  const gpus = `${ranks} ${simulated ? 'simulated ' : ''}GPU${ranks === 1 ? '' : 's'}`;
  const title = `${gpus}, ${count(maxTokens, 'token')} each, top ${topK} of ${count(experts, 'expert')}`;
  const lines = [
    '',
    ...wrap(title, columns).map((line) => paint('bold', line)),
    ...wrap(
      `rows of ${output.hidden} ${output.dtype}; dispatch, experts, combine: twice, in ${seconds.toFixed(1)} s`,
      columns,
    ),
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

/** Whether results are right and repeatable, and what is wrong with them. */
function verdict({ comparison, bitwiseRepeatable }: DemoResult, paint: Paint, columns: number): string[] {
  const { compared, different, maxAbsError, first } = comparison;
  const say = (good: boolean, text: string): string[] => {
    const mark = good ? paint('green', '✓') : paint('red', '✗');
    return wrap(text, columns, '  ').map((line, i) => (i === 0 ? `${mark} ${line.trimStart()}` : line));
  };
  const values = count(compared, 'value');
  return [
    ...(different === 0
      ? say(true, `right: ${values}, every bit as in the reference (largest error ${maxAbsError})`)
      : say(false, `wrong: ${number(different)} of ${values} differ, by up to ${maxAbsError}`)),
    ...(first === undefined ? [] : wrap(`the first: ${first}`, columns, '  ')),
    ...(bitwiseRepeatable
      ? say(true, 'repeatable: the second run gave the same bits')
      : say(false, 'not repeatable: the second run gave other bits')),
  ];
}

function movement({ traffic }: DemoResult, paint: Paint, columns: number): string[] {
  const { tokens, routes, rows, dispatch, combine, withoutDedup, remote } = traffic;
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
  ];
}

/** Every rank a line, from the first launch to the last end; a call's bar covers what it overlaps. */
function timeline({ spans: all, simulated }: DemoResult, paint: Paint, columns: number): string[] {
  const spans = all.filter(({ depth, name }) => depth === 0 && bars.some((bar) => name.startsWith(bar.name)));
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
    for (const { name, mark, colour } of bars)
      for (const span of spans)
        if (span.rank === rank && span.name.startsWith(name))
          cells.fill(paint(colour, mark), column(span.start), column(span.end) + 1);
    return `  ${`rank ${rank}`.padEnd(label)} │${cells.join('').trimEnd()}`;
  });
  // A step of the simulated machine is a nanosecond of its clock.
  const unit = simulated
    ? `${number(Math.round(1000 * (end - start)))} steps of the machine, not time`
    : `${(end - start).toFixed(1)} µs`;
  return [
    ...heading(paint, columns),
    ...lines,
    ...(shown < ranks ? [`  and ${ranks - shown} more`] : []),
    ...wrap(unit, columns, '  '),
  ];
}

/** The picture's name and what its marks mean: beside it where there is room, else below. */
function heading(paint: Paint, columns: number): string[] {
  const picture = 'One round';
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
