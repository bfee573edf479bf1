/** The text that `heddle plan` prints for people. */
import { aligned, type Column, textTable } from '../base/table.js';
import {
  type Answer,
  bytesOfModel,
  fastest,
  mostTokens,
  nodesOf,
  type Question,
  type Room,
  type RoutingLaw,
  rooms,
  type Traffic,
  type WholeModel,
} from '../tools/plan/index.js';

const micro = (us: number): string => (us >= 100 ? us.toFixed(0) : us >= 10 ? us.toFixed(1) : us.toFixed(2));
const range = (low: number, high: number): string => `${micro(low)}–${micro(high)}`;
const mega = (bytes: number): string => (bytes / 1e6).toFixed(bytes < 1e7 ? 2 : 0);

function lawInWords(law: RoutingLaw): string {
  if (law.kind === 'perfect') return 'a perfect router';
  const { nodesAtMost } = law;
  return nodesAtMost === undefined
    ? 'uniform routes'
    : `uniform routes, ${nodesAtMost} nodes a token at most`;
}

function heading({ model, layer, machine, place, law, dtype, combineDtype }: Question): string {
  const nodes = nodesOf(place);
  const where = nodes === 1 ? 'one NVLink domain' : `${nodes} nodes of ${place.perNode}`;
  return [
    `${model}: hidden ${layer.hidden}, top-${layer.topK} of ${layer.experts} experts, ${dtype} there, ${combineDtype} back, ${lawInWords(law)}`,
    `EP${place.ranks} on ${where}: ${machine.title}`,
  ].join('\n');
}

/** `who`: what a line is called. */
function columnsOf(who: (answer: Answer) => string): readonly Column<Answer>[] {
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

export function planText(question: Question, answers: readonly Answer[]): string {
  const published = [...new Set(answers.map(({ source }) => source))].filter((source) => source !== 'Heddle');
  const mark = (source: string): string => (source === 'Heddle' ? '' : ` [${published.indexOf(source) + 1}]`);
  const named = ({ candidate, source }: Pick<Answer, 'candidate' | 'source'>): string =>
    `${candidate}${mark(source)}`;
  const who = (answer: Answer): string => `${named(answer)}${answer.beyond.length > 0 ? ' *' : ''}`;
  const out = [heading(question), '', textTable(columnsOf(who), answers), ''];
  if (answers.some(({ fits }) => !fits))
    out.push(`! does not fit into the ${question.machine.memory} GB of a GPU, and is not ranked.`);
  out.push(
    'Bytes and messages: of a rank, both phases together, in the mean. Nine of ten measurements are expected in the range.',
  );
  const beyond = new Map<string, Set<string>>();
  for (const answer of answers)
    for (const why of answer.beyond)
      beyond.set(named(answer), (beyond.get(named(answer)) ?? new Set()).add(why));
  for (const [name, whys] of beyond) out.push(`* ${name}: ${[...whys].join('; ')}`);
  for (const [i, source] of published.entries()) out.push(`[${i + 1}] ${source}`);
  out.push('', 'Fastest:');
  const lines = fastest(answers).map(({ from, among }) => [
    `  from ${from} token${from === 1 ? '' : 's'}`,
    `${among.length > 1 ? 'not certain, ranges overlap: ' : ''}${among.map(named).join(', ')}`,
  ]);
  if (lines.length > 0) out.push(aligned(lines, 2));
  return `${out.join('\n')}\n`;
}

/** The memory of a rank for a whole model, with buffers for each number of tokens. */
export function modelText(model: WholeModel, tokens: readonly number[]): string {
  const gibi = (count: number, room: Room, part: 'weights' | 'buffers'): string => {
    const bytes = bytesOfModel(model, count, room);
    return bytes === null ? '–' : (bytes[part] / 2 ** 30).toFixed(2);
  };
  const columns: readonly Column<number>[] = [
    { head: 'tokens', kind: 'name', cell: String },
    { head: 'weights GiB', cell: (count) => gibi(count, 'any routes', 'weights') },
    ...rooms.map(
      (room): Column<number> => ({
        head: `buffers GiB, ${room}`,
        cell: (count) => gibi(count, room, 'buffers'),
      }),
    ),
  ];
  const { layers, dtype, machine } = model;
  const most = rooms.map((room) => `${mostTokens(model, room)} with room for ${room}`).join(', ');
  return [
    '',
    `${layers} layers of experts, shared ones and routers, of ${dtype}, over one set of buffers:`,
    textTable(columns, tokens),
    `Most tokens a rank that fit into the ${machine.memory} GB of a GPU: ${most}.`,
    '',
  ].join('\n');
}
