/** The table that a run prints: a line for each number of tokens, as it comes. */
import { type Column, textTable } from '../../base/table.js';
import { latestRank } from '../../moe/index.js';
import { columnsIn, layerInWords, number, percent } from './columns.js';
import type { BenchReport, Point } from './program.js';
import { type Row, rowOf } from './rows.js';
import type { Unit } from './statistics.js';
import { routerInWords } from './workload.js';

/** The description of the run, before the first line. */
export function heading({ workload: of, machine, method, barrier }: BenchReport): string {
  const nodes = method.nodes > 1 ? `${method.nodes} nodes, ` : '';
  const where = method.world === 'local' ? 'one process' : 'a process for each rank';
  const often = `${method.iterations} iteration${method.iterations === 1 ? '' : 's'}`;
  const lines = [
    `${layerInWords(of)}, ${of.dtype} there, ${of.combineDtype} back, ${routerInWords(of.router)}`,
    `${machine.gpus.length} × ${machine.gpus[0]}, ${nodes}${where}; ${often}, median of the slowest rank`,
  ];
  if (barrier !== null) lines.push(`flag barrier: ${number(barrier.median)} µs a meeting`);
  return lines.join('\n');
}

const time =
  (subject: Row['subject'], phase: Row['phase']) =>
  (point: Point): string =>
    number(rowOf(point, subject, phase)?.time ?? null);

/** The columns of a run. Ranks of several nodes have other limits than those of one. */
export function roundColumns({ unit, method }: BenchReport): readonly Column<Point>[] {
  const both = (point: Point) => rowOf(point, 'heddle', 'both');
  const range = (point: Point): string => {
    const spread = both(point)?.spread;
    return spread ? `${number(spread.p10)}–${number(spread.p90)}` : '–';
  };
  const oneNode = method.nodes === 1;
  const halves: readonly Column<Point>[] = [
    { head: `dispatch ${unit}`, cell: time('heddle', 'dispatch') },
    { head: `combine* ${unit}`, cell: time('heddle', 'combine') },
  ];
  const limits: readonly Column<Point>[] = [
    { head: 'NVLink GB/s', rate: true, cell: (p) => number(both(p)?.physical ?? null, 0) },
    { head: 'logical GB/s', rate: true, cell: (p) => number(both(p)?.logical ?? null, 0) },
    { head: 'stores µs', rate: true, cell: time('stores', 'both') },
    { head: 'of ceiling', rate: true, cell: (p) => percent(both(p)?.ofCeiling) },
    // Dispatch alone is measured.
    { head: 'dispatch of it', rate: true, cell: (p) => percent(rowOf(p, 'heddle', 'dispatch')?.ofCeiling) },
    { head: 'NCCL µs', rate: true, cell: time('nccl sparse', 'both') },
    { head: '× NCCL', rate: true, cell: (p) => number(both(p)?.overNccl ?? null, 2) },
    {
      head: 'NVLink KB a rank',
      cell: ({ bytes }) => number((bytes.dispatch.physical + bytes.combine.physical) / 1000, 0),
    },
  ];
  const placed: readonly Column<Point>[] = [
    { head: `placed ${unit}`, cell: time('heddle placed', 'both') },
    // The routes of the busiest rank, over the mean.
    { head: 'busiest', cell: ({ busiest }) => number(busiest?.plain ?? null, 2) },
    { head: 'busiest placed', cell: ({ busiest }) => number(busiest?.placed ?? null, 2) },
  ];
  return [
    tokensColumn,
    ...(oneNode ? halves : []),
    { head: `both ${unit}`, kind: 'main', cell: time('heddle', 'both') },
    { head: 'p10–p90', width: 16, rate: true, cell: range },
    ...(oneNode ? limits : acrossNodes),
    ...(method.places === undefined ? [] : placed),
  ];
}

/** The bytes that the proxies sent, as counted; and what hybrid sends, as the routes have it. */
const acrossNodes: readonly Column<Point>[] = [
  // The same messages by the network alone, and how many times as long Heddle takes.
  { head: 'network µs', rate: true, cell: time('network', 'both') },
  {
    ...({ head: '× network', rate: true } as const),
    cell: (p) => number(1 / (rowOf(p, 'heddle', 'both')?.ofCeiling ?? 0), 2),
  },
  {
    head: 'messages a rank',
    cell: ({ network }) => number(network && network.dispatch.messages + network.combine.messages, 0),
  },
  {
    head: 'network KB a rank',
    cell: ({ network }) => number(network && (network.dispatch.bytes + network.combine.bytes) / 1000, 0),
  },
  {
    head: 'network rows a token',
    cell: ({ tokens, bytes: { between } }) => number(between.rows / tokens, 2),
  },
];

export const tokensColumn: Column<{ readonly tokens: number }> = {
  ...{ head: 'tokens', width: 6, kind: 'name' },
  cell: ({ tokens }) => String(tokens),
};

export function rowColumns(unit: Unit): readonly Column<Row>[] {
  const spread = (key: 'min' | 'p10' | 'p90' | 'max'): Column<Row> => ({
    head: key,
    cell: (row) => number(row.spread?.[key] ?? null),
  });
  return columnsIn(unit, [
    { head: 'what', kind: 'name', cell: ({ subject }) => subject },
    {
      head: 'phase',
      kind: 'name',
      cell: ({ phase, derived }) => (derived === null ? phase : `${phase} (${derived})`),
    },
    { head: `median, ${unit}`, kind: 'main', cell: ({ time }) => number(time) },
    ...(['min', 'p10', 'p90', 'max'] as const).map(spread),
    { head: 'NVLink GB/s', rate: true, cell: ({ physical }) => number(physical, 1) },
    { head: 'logical GB/s', rate: true, cell: ({ logical }) => number(logical, 1) },
    { head: 'of ceiling', rate: true, cell: ({ ofCeiling }) => percent(ofCeiling, 1) },
    { head: '× NCCL', rate: true, cell: ({ overNccl }) => number(overNccl, 2) },
  ]);
}

type Kernel = NonNullable<Point['kernels']>[number];

export const kernelColumns = (unit: Unit): readonly Column<Kernel>[] => [
  { head: 'kernel', kind: 'name', cell: ({ kernel }) => kernel },
  { head: `between events, ${unit}`, cell: ({ time }) => number(time) },
  { head: 'events alone', cell: ({ gap }) => number(gap) },
  { head: 'blocks × threads', cell: ({ blocks, threads }) => `${blocks} × ${threads}` },
  { head: 'registers', cell: ({ facts }) => (facts === null ? '–' : String(facts.registers)) },
  { head: 'local memory, bytes', cell: ({ facts }) => (facts === null ? '–' : String(facts.localBytes)) },
];

interface Waiting {
  readonly rank: number;
  readonly row: readonly number[];
}

/** How long each rank waits for each other, by phase; none where it was not measured. */
export const waitTables = ({ waits }: Point) =>
  (['dispatch', 'combine'] as const).flatMap((phase) => {
    if (waits === undefined) return [];
    const columns: readonly Column<Waiting>[] = [
      { head: phase, kind: 'name', cell: ({ rank }) => `rank ${rank} waits` },
      ...waits[phase].map((_, peer) => ({
        head: `for ${peer}`,
        cell: ({ row }: Waiting) => number(row[peer]!),
      })),
    ];
    return [{ phase, columns, lines: waits[phase].map((row, rank) => ({ rank, row })) }];
  });

/** The tables that flags add below the line of a number of tokens. */
export function detailLines({ unit }: Pick<BenchReport, 'unit'>, point: Point, iterStats = false): string {
  const { kernels, rows, waits } = point;
  const tables = [
    ...(kernels !== null ? [textTable(kernelColumns(unit), kernels)] : []),
    ...(iterStats ? [textTable(rowColumns(unit), rows)] : []),
    ...waitTables(point).map(({ columns, lines }) => textTable(columns, lines)),
  ];
  if (waits !== undefined) {
    const { rank, waited } = latestRank(waits);
    tables.push(
      `The others wait for rank ${rank} most: ${number(waited)} ${unit} a round, all of them together.`,
    );
  }
  return tables.join('\n').replaceAll(/^(?=.)/gm, '    ');
}

export const footnote = ({ unit, method, points }: BenchReport): string =>
  [
    ...(method.nodes > 1
      ? [countedNote, ...(unit === 'steps' ? [] : [networkNote]), ...wireNotes(points)]
      : ['* calculated: both − dispatch.', ...(unit === 'steps' ? [] : [limitsNote])]),
    ...placedNotes(method),
  ].join(' ');

const limitsNote =
  'NVLink: bytes that leave a GPU; logical: a row for every route. ' +
  'Ceiling: plain stores of the busiest GPU’s bytes. NCCL: sparse all-to-all of the same rows, already packed, not added up.';

export const placedNotes = ({ places }: Pick<BenchReport['method'], 'places'>): string[] =>
  places === undefined
    ? []
    : [
        `Placed: experts in ${places} places, by the counts of earlier routes. Busiest: the routes of the rank that gets most, over the mean.`,
      ];

/** Where messages lie, and why: the same at all points, as a rule. */
export const wireNotes = (points: readonly Point[]): string[] =>
  [...new Set(points.flatMap(({ wires }) => wires ?? []))].map((said) => `Messages lie ${said}.`);

const countedNote = 'Messages and KB: what proxies sent in a round, headers and all.';
const networkNote =
  'Network: the same messages by the transfer engine alone, host memory to host memory; × network: Heddle ÷ that.';
