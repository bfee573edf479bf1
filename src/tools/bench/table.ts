/** The table that a run prints: a line for each number of tokens, as it comes. */
import type { BenchReport, Point, Row } from './report.js';
import { rowOf } from './report.js';
import { routerInWords } from './workload.js';

/** What was run, before the first line. */
export function heading({ workload: of, machine, method, barrier, unit }: BenchReport): string {
  const gpus = `${machine.gpus.length} × ${machine.gpus[0] ?? 'no GPU'}`;
  const lines = [
    `${of.name}: hidden ${of.hidden}, top-${of.topK} of ${of.experts} experts, ep ${of.ranks}, ` +
      `${of.dtype} there, ${of.combineDtype} back, ${routerInWords(of.router)}`,
    `${gpus}, ${method.nodes > 1 ? `${method.nodes} nodes, ` : ''}${method.world === 'local' ? 'one process' : 'a process for each rank'}; ` +
      `${method.iterations} iterations, median of the slowest rank` +
      (unit === 'steps' ? '; simulated steps say nothing about a GPU’s time' : ''),
  ];
  if (barrier !== null) lines.push(`flag barrier: ${number(barrier.median)} µs a meeting`);
  return lines.join('\n');
}

interface Column {
  readonly head: string;
  readonly width: number;
  cell(point: Point): string;
}

const time =
  (subject: Row['subject'], phase: Row['phase']) =>
  (point: Point): string =>
    number(rowOf(point, subject, phase)?.time ?? null);

const percent = (share: number | null | undefined): string =>
  share === null || share === undefined ? '–' : `${(share * 100).toFixed(0)} %`;

/** What a table's columns depend on. */
type Kind = Pick<BenchReport, 'unit' | 'method'>;

function columns({ unit, method }: Kind): readonly Column[] {
  const both = (point: Point) => rowOf(point, 'heddle', 'both');
  const simulated = unit === 'steps';
  const nodes = method.nodes > 1 ? 'several' : 'one';
  const all: readonly (Column & { readonly simulated?: false; readonly nodes?: 'one' | 'several' })[] = [
    { head: 'tokens', width: 6, cell: ({ tokens }) => String(tokens) },
    { head: `dispatch ${unit}`, width: 14, cell: time('heddle', 'dispatch'), nodes: 'one' },
    { head: `combine* ${unit}`, width: 14, cell: time('heddle', 'combine'), nodes: 'one' },
    { head: `both ${unit}`, width: 10, cell: time('heddle', 'both') },
    {
      head: 'p10–p90',
      width: 15,
      cell: (point) => {
        const spread = both(point)?.spread;
        return spread === null || spread === undefined ? '–' : `${number(spread.p10)}–${number(spread.p90)}`;
      },
      simulated: false,
    },
    {
      head: 'NVLink GB/s',
      width: 12,
      cell: (p) => number(both(p)?.physical ?? null, 0),
      simulated: false,
      nodes: 'one',
    },
    {
      head: 'logical GB/s',
      width: 13,
      cell: (p) => number(both(p)?.logical ?? null, 0),
      simulated: false,
      nodes: 'one',
    },
    { head: 'stores µs', width: 10, cell: time('stores', 'both'), simulated: false, nodes: 'one' },
    {
      head: 'of ceiling',
      width: 17,
      // Both halves together, and dispatch alone, which is measured.
      cell: (p) => `${percent(both(p)?.ofCeiling)} (d ${percent(rowOf(p, 'heddle', 'dispatch')?.ofCeiling)})`,
      simulated: false,
      nodes: 'one',
    },
    { head: 'NCCL µs', width: 9, cell: time('nccl sparse', 'both'), simulated: false, nodes: 'one' },
    {
      head: '× NCCL',
      width: 7,
      cell: (p) => number(both(p)?.overNccl ?? null, 2),
      simulated: false,
      nodes: 'one',
    },
    ...networkColumns.map((column) => ({ ...column, simulated: false, nodes: 'several' }) as const),
    ...movedColumns({ method }),
  ];
  return all.filter(
    (column) =>
      (!simulated || column.simulated !== false) && (column.nodes === undefined || column.nodes === nodes),
  );
}

const withinNode: readonly Column[] = [
  {
    head: 'NVLink KB a rank',
    width: 17,
    cell: ({ bytes }) => number((bytes.dispatch.physical + bytes.combine.physical) / 1000, 0),
  },
];

/** The same messages by the network alone, and how many times as long Heddle takes. */
export const networkColumns: readonly Column[] = [
  { head: 'network µs', width: 11, cell: time('network', 'both') },
  {
    head: '× network',
    width: 10,
    cell: (point) => number(1 / (rowOf(point, 'heddle', 'both')?.ofCeiling ?? 0), 2),
  },
];

/** What the proxies sent, as counted; and what hybrid sends, as the routes have it. */
const acrossNodes: readonly Column[] = [
  {
    head: 'messages a rank',
    width: 16,
    cell: ({ network }) => number(network && network.dispatch.messages + network.combine.messages, 0),
  },
  {
    head: 'network KB a rank',
    width: 18,
    cell: ({ network }) => number(network && (network.dispatch.bytes + network.combine.bytes) / 1000, 0),
  },
  {
    head: 'network rows a token',
    width: 21,
    cell: ({ tokens, bytes: { between } }) => number(between.rows / tokens, 2),
  },
];

/** What a round moved. */
export const movedColumns = ({ method }: Pick<BenchReport, 'method'>): readonly Column[] =>
  method.nodes > 1 ? acrossNodes : withinNode;

export function tableHead(report: Kind): string {
  return columns(report)
    .map(({ head, width }) => head.padStart(width))
    .join(' ');
}

export function tableLine(report: Kind, point: Point): string {
  return columns(report)
    .map(({ cell, width }) => cell(point).padStart(width))
    .join(' ');
}

/** What `--iter-stats` adds below a line. */
export function spreadLines({ unit }: Pick<BenchReport, 'unit'>, point: Point): string {
  return point.rows
    .map(({ subject, phase, spread, derived, time: median }) => {
      const name = `${subject} ${phase}`.padEnd(22);
      if (spread === null) return `    ${name} ${number(median)} ${unit} (${derived})`;
      const { p10, p90, min, max, count } = spread;
      const values = `min ${number(min)}, p10 ${number(p10)}, median ${number(median)}, p90 ${number(p90)}`;
      return `    ${name} ${values}, max ${number(max)} ${unit}, n ${count}`;
    })
    .join('\n');
}

/** What `--kernel-breakdown` adds below a line. */
export function kernelLines({ unit }: Pick<BenchReport, 'unit'>, { kernels }: Point): string {
  return (kernels ?? [])
    .map(({ kernel, time: median, gap, blocks, threads, facts }) => {
      const compiled =
        facts === null
          ? ''
          : `, ${facts.registers} registers, ${facts.localBytes === 0 ? 'no spills' : `${facts.localBytes} bytes of local memory`}`;
      return (
        `    ${kernel.padEnd(9)} ${number(median)} ${unit} between events (${number(gap)} of it the events’ own), ` +
        `${blocks} × ${threads} threads${compiled}`
      );
    })
    .join('\n');
}

export const footnote = ({ unit, method, points }: BenchReport): string => {
  if (method.nodes > 1) {
    return [countedNote, ...(unit === 'steps' ? [] : [networkNote]), ...wireNotes(points)].join(' ');
  }
  return unit === 'steps'
    ? '* calculated: both − dispatch.'
    : '* calculated: both − dispatch. NVLink: bytes that leave a GPU; logical: a row for every route. ' +
        'Ceiling: plain stores of the busiest GPU’s bytes. NCCL: sparse all-to-all of the same rows, already packed, not added up.';
};

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
