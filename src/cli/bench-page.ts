/** One self-contained HTML page from a run's results: charts, tables, method. Nothing is loaded from anywhere. */
import {
  type BenchReport,
  columnsOf,
  kernelColumns,
  type MeasuredPhase,
  type Point,
  placedNotes,
  type Row,
  roundBench,
  routerInWords,
  rowColumns,
  rowOf,
  type Subject,
  tokensColumn,
  waitTables,
  wireNotes,
} from '../tools/bench/index.js';
import { type Chart, figure, htmlTable, json, list, page, text } from './page.js';

export function htmlReport(report: BenchReport): string {
  const { workload: of } = report;
  const title = `Heddle bench: ${of.name}, EP${of.ranks}, ${of.dtype} there, ${of.combineDtype} back`;
  const simulated = report.unit === 'steps';
  const body = `<p class="soft">Dispatch and combine of a Mixture-of-Experts layer: hidden ${of.hidden}, top-${of.topK} of ${of.experts} experts, ${text(routerInWords(of.router))}.</p>
${simulated ? simulatedNotice : ''}
${facts(report)}
${simulated ? '' : figures(report)}
<h2>Round trips</h2>
${htmlTable(columnsOf(roundBench, report), report.points)}
<p class="soft">* calculated: both − dispatch.</p>
<details><summary>Every measured row</summary>${rowsTable(report)}</details>
${waitsTables(report)}
${kernelsTable(report)}
<h2>Method</h2>
${list(methodLines(report))}
${report.notes.length === 0 ? '' : `<h2>Notes</h2>${list(report.notes)}`}
<script type="application/json" id="results">${json(report)}</script>`;
  return page(title, body);
}

const simulatedNotice =
  '<p><b>Simulated.</b> Steps of a simulated machine count instructions; they say nothing about the time of a GPU.</p>';

/** Label, colour, whose time of which phase, and the line's width; limits are dashed. */
type Line = readonly [string, string, Subject, MeasuredPhase, width: number];

const rivals: readonly Line[] = [
  ['Heddle, both', 'heddle', 'heddle', 'both', 3],
  ['Heddle, dispatch', 'half', 'heddle', 'dispatch', 1.5],
  ['NCCL sparse, both', 'nccl', 'nccl sparse', 'both', 2],
];

const latencies: readonly Line[] = [
  ...rivals,
  ['NCCL dense, both', 'dense', 'nccl dense', 'both', 1.5],
  ['NVSHMEM dense, both', 'dense', 'nvshmem dense', 'both', 1.5],
  ['NCCL gather + scatter, both', 'gather', 'nccl gather', 'both', 1.5],
  ['ceiling: plain stores, both', 'ceiling', 'stores', 'both', 1.5],
  ['ceiling: the network alone, both', 'ceiling', 'network', 'both', 1.5],
];

const rates: readonly Line[] = [
  ...rivals,
  ['ceiling: plain stores', 'ceiling', 'stores', 'dispatch', 1.5],
  ['plain loads', 'loads', 'loads', 'dispatch', 1.5],
];

const limits: readonly Subject[] = ['stores', 'loads', 'network'];

/** Lines that nobody measured are left out. */
const chart = (
  points: readonly Point[],
  unit: string,
  lines: readonly Line[],
  of: 'time' | 'physical',
): Chart => ({
  ...{ x: points.map(({ tokens }) => tokens), label: 'tokens a rank', log: of === 'time', unit },
  series: lines
    .map(([label, colour, subject, phase, width]) => ({
      ...{ label, colour, width, ...(limits.includes(subject) && { dash: '6 4' }) },
      values: points.map((point) => rowOf(point, subject, phase)?.[of] ?? null),
    }))
    .filter(({ values }) => values.some((value) => value !== null)),
});

function facts({ machine, method, date, version, commit }: BenchReport): string {
  const names = [...new Set(machine.gpus)].join(', ');
  const software = [
    machine.driver === null ? '' : `driver ${machine.driver}`,
    machine.compiler ?? '',
    machine.nccl === null ? '' : `NCCL ${machine.nccl}`,
    `Node.js ${machine.node}`,
  ].filter(Boolean);
  const rows: [string, string][] = [
    ['Machine', `${machine.gpus.length} × ${names}`],
    ['Software', software.join(', ')],
    ['World', method.world === 'local' ? 'all ranks in one process' : 'a process for each rank'],
    ['Date', date.replace('T', ' ').replace(/\.\d+Z$/, ' UTC')],
    ['Heddle', commit === null ? version : `${version}, commit ${commit}`],
  ];
  return `<dl>${rows.map(([name, value]) => `<dt>${name}</dt><dd>${text(value)}</dd>`).join('')}</dl>`;
}

function figures({ method, points }: BenchReport): string {
  // Charts go from left to right, in whatever order points were measured.
  const rising = [...points].sort((a, b) => a.tokens - b.tokens);
  const latency = figure(
    'Microseconds of a round against tokens a rank, both logarithmic; lower is better.',
    chart(rising, 'µs a round', latencies, 'time'),
  );
  const bandwidth = figure(
    'Bytes that leave a GPU over NVLink ÷ time; higher is better. The dashed lines are what the links carry.',
    chart(rising, 'GB/s leaving a GPU', rates, 'physical'),
  );
  return `<h2>Latency</h2>\n${latency}${method.nodes > 1 ? '' : `\n<h2>Bandwidth</h2>\n${bandwidth}`}`;
}

const rowsTable = ({ points, unit }: BenchReport): string =>
  htmlTable<Row & { readonly tokens: number }>(
    [tokensColumn, ...rowColumns(unit)],
    points.flatMap(({ tokens, rows }) => rows.map((row) => ({ ...row, tokens }))),
  );

/** Who waits for whom: a table for each number of tokens and each phase. */
function waitsTables({ points, unit }: BenchReport): string {
  const tables = points.flatMap((point) =>
    waitTables(point).map(({ phase, columns, lines }) => {
      const [first, ...others] = columns;
      return htmlTable([{ ...first!, head: `${point.tokens} tokens, ${phase}` }, ...others], lines);
    }),
  );
  if (tables.length === 0) return '';
  return `<h2>Who waits for whom</h2><p class="soft">${unit} a round, the mean of the last rounds. A column whose numbers are large is a rank that is late.</p>${tables.join('')}`;
}

function kernelsTable({ points, unit }: BenchReport): string {
  const lines = points.flatMap(({ tokens, kernels }) => (kernels ?? []).map((one) => ({ ...one, tokens })));
  if (lines.length === 0) return '';
  return `<h2>Kernels</h2><p class="soft">Launched directly, with events between them, which cost time of their own: the sum is more than a round in a graph.</p>${htmlTable<(typeof lines)[number]>([tokensColumn, ...kernelColumns(unit)], lines)}`;
}

function methodLines({ method, unit, workload: of, points }: BenchReport): string[] {
  const lines = [
    'A round is dispatch and combine back to back, with no experts between them. Every round of a graph reads its own inputs and routes; together they exceed L2 three times, or differ in every round. The receive window is the same in all rounds, as in a real layer.',
    `Rounds (${points.map(({ tokens, rounds }) => `${rounds} at ${tokens}`).join(', ')} tokens) are captured in a CUDA graph on every rank. An iteration evicts L2, aligns all ranks on the device by flags, then times the graph with events. ${method.iterations} iterations after ${method.warmups} to warm up; of each the slowest rank counts; the table shows medians.`,
    'Dispatch alone is the same kernel as in a round whose combine pulls, because such slots need no release; combine is calculated: both − dispatch.',
    'NVLink GB/s count rows that leave a GPU: each once per (token, other rank that owns one of its experts). Logical GB/s count a row for every route, wherever its expert is. Ids, weights and flags are not counted.',
    'The ceiling is the time that a kernel of plain 16-byte stores to all peers at once needs for the bytes of the busiest GPU, without ids, flags or rendezvous; its share is that time ÷ the measured one.',
    'NCCL sparse: grouped sends and receives of exactly the rows of dispatch (and back), counts known to the host, rows packed already, nothing added up; dense: padded to all tokens for every rank; gather: all-gather, then reduce-scatter. All in graphs, with rotating send buffers, NVLink multicast off. × NCCL is sparse ÷ Heddle.',
    'After timing, a round into wiped memory is compared byte by byte on a sample of rows of every rank.',
    `Seed ${of.seed}; ${of.ranks} ranks; every rank brings the same number of tokens.`,
  ];
  const those =
    method.nodes > 1
      ? [lines[0]!, ...networkMethod, ...wireNotes(points), lines[6]!, lines[7]!]
      : unit === 'steps'
        ? [lines[0]!, lines[3]!, lines[6]!, lines[7]!]
        : lines;
  return [...those, ...placedNotes(method)];
}

const networkMethod = [
  'Ranks of different nodes have no flags in common, so each iteration runs the graph twice: ranks meet in the first, the second counts; of each the slowest rank.',
  'Messages and bytes are those that the ranks’ proxies sent in a round of each input set, headers, ids and weights included: a second program of each proxy wrote them down.',
  'The network alone: threads like the proxies’ send each other the same messages in the same rounds, by the transfer engine, from host memory to host memory; a phase ends for a rank when all that it gets has come. As many rounds before those that count.',
];
