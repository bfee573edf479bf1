/** The table that a run prints: a line for each number of tokens, as it comes. */
import { type Column, textTable } from '../../base/table.js';
import { latestRank } from '../../moe/index.js';
import type { BenchReport, Point, Row } from './report.js';
import { rowOf } from './report.js';
import { routerInWords, type Workload } from './workload.js';

type Described = Pick<Workload, 'name' | 'hidden' | 'topK' | 'experts' | 'ranks'>;

export const layerInWords = ({ name, hidden, topK, experts, ranks }: Described): string =>
  `${name}: hidden ${hidden}, top-${topK} of ${experts} experts, ep ${ranks}`;

/** The description of the run, before the first line. */
export function heading({ workload: of, machine, method, barrier, unit }: BenchReport): string {
  const gpus = `${machine.gpus.length} × ${machine.gpus[0] ?? 'no GPU'}`;
  const lines = [
    `${layerInWords(of)}, ${of.dtype} there, ${of.combineDtype} back, ${routerInWords(of.router)}`,
    `${gpus}, ${method.nodes > 1 ? `${method.nodes} nodes, ` : ''}${method.world === 'local' ? 'one process' : 'a process for each rank'}; ` +
      `${method.iterations} iteration${method.iterations === 1 ? '' : 's'}, median of the slowest rank` +
      (unit === 'steps' ? '; simulated steps say nothing about a GPU’s time' : ''),
  ];
  if (barrier !== null) lines.push(`flag barrier: ${number(barrier.median)} µs a meeting`);
  return lines.join('\n');
}

const inColumns = <Of>(columns: readonly Column<Of>[], cell: (column: Column<Of>) => string): string =>
  columns
    .map((column) => cell(column).padStart(column.width ?? Math.max(10, column.head.length + 2)))
    .join('');

export const headOf = <Of>(columns: readonly Column<Of>[]): string => inColumns(columns, ({ head }) => head);
export const lineOf = <Of>(columns: readonly Column<Of>[], of: Of): string =>
  inColumns(columns, ({ cell }) => cell(of));

const time =
  (subject: Row['subject'], phase: Row['phase']) =>
  (point: Point): string =>
    number(rowOf(point, subject, phase)?.time ?? null);

export const percent = (share: number | null | undefined, digits = 0): string =>
  share === null || share === undefined ? '–' : `${(share * 100).toFixed(digits)} %`;

type Kind = Pick<BenchReport, 'unit' | 'method'>;

/** The columns of a run; of a simulated one no rate follows, and ranks of several nodes have other limits. */
export function columnsOf({ unit, method }: Kind): readonly Column<Point>[] {
  const both = (point: Point) => rowOf(point, 'heddle', 'both');
  const real = unit === 'µs';
  const oneNode = method.nodes === 1;
  const range: Column<Point> = {
    head: 'p10–p90',
    width: 16,
    cell: (point) => {
      const spread = both(point)?.spread;
      return spread ? `${number(spread.p10)}–${number(spread.p90)}` : '–';
    },
  };
  const limits: readonly Column<Point>[] = [
    { head: 'NVLink GB/s', cell: (p) => number(both(p)?.physical ?? null, 0) },
    { head: 'logical GB/s', cell: (p) => number(both(p)?.logical ?? null, 0) },
    { head: 'stores µs', cell: time('stores', 'both') },
    { head: 'of ceiling', cell: (p) => percent(both(p)?.ofCeiling) },
    // Dispatch alone is measured.
    { head: 'dispatch of it', cell: (p) => percent(rowOf(p, 'heddle', 'dispatch')?.ofCeiling) },
    { head: 'NCCL µs', cell: time('nccl sparse', 'both') },
    { head: '× NCCL', cell: (p) => number(both(p)?.overNccl ?? null, 2) },
  ];
  /** The same messages by the network alone, and how many times as long Heddle takes. */
  const network: readonly Column<Point>[] = [
    { head: 'network µs', cell: time('network', 'both') },
    { head: '× network', cell: (p) => number(1 / (both(p)?.ofCeiling ?? 0), 2) },
  ];
  return [
    tokensColumn,
    ...(oneNode
      ? [
          { head: `dispatch ${unit}`, cell: time('heddle', 'dispatch') },
          { head: `combine* ${unit}`, cell: time('heddle', 'combine') },
        ]
      : []),
    { head: `both ${unit}`, kind: 'main', cell: time('heddle', 'both') },
    ...(real ? [range, ...(oneNode ? limits : network)] : []),
    ...(oneNode ? withinNode : acrossNodes),
    ...(method.places === undefined
      ? []
      : [{ head: `placed ${unit}`, cell: time('heddle placed', 'both') }, ...loads]),
  ];
}

/** The routes of the busiest rank, over the mean. */
const loads: readonly Column<Point>[] = [
  { head: 'busiest', cell: ({ busiest }) => number(busiest?.plain ?? null, 2) },
  { head: 'busiest placed', cell: ({ busiest }) => number(busiest?.placed ?? null, 2) },
];

const withinNode: readonly Column<Point>[] = [
  {
    head: 'NVLink KB a rank',
    cell: ({ bytes }) => number((bytes.dispatch.physical + bytes.combine.physical) / 1000, 0),
  },
];

/** The bytes that the proxies sent, as counted; and what hybrid sends, as the routes have it. */
const acrossNodes: readonly Column<Point>[] = [
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

export function rowColumns(unit: BenchReport['unit']): readonly Column<Row>[] {
  const spread = (key: 'min' | 'p10' | 'p90' | 'max'): Column<Row> => ({
    head: key,
    cell: (row) => number(row.spread?.[key] ?? null),
  });
  return [
    { head: 'what', kind: 'name', cell: ({ subject }) => subject },
    {
      head: 'phase',
      kind: 'name',
      cell: ({ phase, derived }) => (derived === null ? phase : `${phase} (${derived})`),
    },
    { head: `median, ${unit}`, kind: 'main', cell: ({ time }) => number(time) },
    ...(['min', 'p10', 'p90', 'max'] as const).map(spread),
    { head: 'NVLink GB/s', cell: ({ physical }) => number(physical, 1) },
    { head: 'logical GB/s', cell: ({ logical }) => number(logical, 1) },
    { head: 'of ceiling', cell: ({ ofCeiling }) => percent(ofCeiling, 1) },
    { head: '× NCCL', cell: ({ overNccl }) => number(overNccl, 2) },
  ];
}

type Kernel = NonNullable<Point['kernels']>[number];

export const kernelColumns = (unit: BenchReport['unit']): readonly Column<Kernel>[] => [
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
export function detailLines(
  { unit }: Pick<BenchReport, 'unit'>,
  point: Point,
  { kernelBreakdown = false, iterStats = false }: DetailFlags,
): string {
  const { kernels, rows, waits } = point;
  const tables = [
    ...(kernelBreakdown && kernels !== null ? [textTable(kernelColumns(unit), kernels)] : []),
    ...(iterStats ? [textTable(rowColumns(unit), rows)] : []),
    ...waitTables(point).map(({ columns, lines }) => textTable(columns, lines)),
  ];
  if (waits !== undefined) {
    const { rank, waited } = latestRank(waits);
    tables.push(
      `The others wait for rank ${rank} most: ${number(waited)} ${unit} a round, all of them together.`,
    );
  }
  return tables.map((table) => `${table.replaceAll(/^/gm, '    ')}\n`).join('');
}

interface DetailFlags {
  readonly kernelBreakdown?: boolean;
  readonly iterStats?: boolean;
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

/** Three significant digits where that matters; a dash for nothing. */
export function number(value: number | null, digits?: number): string {
  if (value === null || !Number.isFinite(value)) return '–';
  if (digits !== undefined) return value.toFixed(value < 10 && digits === 0 ? 1 : digits);
  return value >= 1000 ? value.toFixed(0) : value >= 100 ? value.toFixed(1) : value.toFixed(2);
}
