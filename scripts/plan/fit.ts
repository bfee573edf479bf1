/** Published figures of rounds, and Heddle's own, and the numbers of `heddle plan` that say the same with fewer. */
import { type FormatName, rowBytes } from '../../src/moe/layer/index.js';
import {
  type Fit,
  fabrics,
  hits,
  type Measured,
  machineNamed,
  type Parameters,
  predict,
  type RoundHalf,
  systemOf,
  time,
  traffic,
  workOf,
} from '../../src/tools/plan/index.js';
import file from './cells.json' with { type: 'json' };
import { leastSquares } from './least-squares.js';

/** One measured time of one phase. Cells of one `set`, library and mode come from one source and one harness. */
export type Cell = ReturnType<typeof cellFrom>;

/** A source in cells.json: tables of one phase and format, EP → tokens a rank → the figure that it prints. */
interface Source extends Pick<Measured, 'lib' | 'mode' | 'machine' | 'src'> {
  readonly set: string;
  readonly tables: readonly {
    readonly phase: RoundHalf;
    readonly dtype: FormatName;
    /** The figure is GB/s, of rows that this counts. Without it: µs. */
    readonly gbps?: string;
    readonly cells: Readonly<Record<string, Readonly<Record<string, number>>>>;
  }[];
}

/** All figures are of DeepSeek-V3's layer. */
const layer = { hidden: 7168, experts: 256, topK: 8 };

export const cells: readonly Cell[] = (file as unknown as readonly Source[]).flatMap((source) =>
  source.tables.flatMap((table) =>
    Object.entries(table.cells).flatMap(([ep, row]) =>
      Object.entries(row).map(([tokens, figure]) =>
        cellFrom(source, table, Number(ep), Number(tokens), figure),
      ),
    ),
  ),
);

function cellFrom(
  { set, lib, mode, machine, src }: Source,
  { phase, dtype, gbps }: Source['tables'][number],
  ranks: number,
  tokens: number,
  figure: number,
) {
  const { way, law } = systemOf({ lib, mode });
  const place = { ranks, perNode: Math.min(machineNamed(machine).perNode, ranks) };
  const found = hits(layer, place, law);
  const row = rowBytes(dtype, layer.hidden);
  const load = { hits: found, place, tokens, topK: layer.topK, rowBytes: row, replicas: 1 };
  const sum = (all: Float64Array): number => all.reduce((a, b) => a + b, 0);
  // The rows of a token that the source divides by the time: one a node, one a rank, or one a route.
  const counted = gbps?.startsWith('rdma')
    ? sum(found.nodes)
    : gbps?.startsWith('nvlink')
      ? sum(found.ranks)
      : layer.topK;
  return {
    ...{ lib, mode, machine, src, phase, ranks, tokens },
    source: `${lib}/${mode} (${set})`,
    work: workOf(traffic(phase, way, load), place),
    us: gbps === undefined ? figure : (tokens * counted * row) / (figure * 1000),
  };
}

const names = ['floor', 'lead', 'nvlink', 'latency', 'doubling', 'message', 'nic'] as const;

/**
 * What is believed of each parameter before any cell is seen: a value, and how far off it may be (a standard deviation of the
 * logarithm). NVLink's and the NIC's follow from nominal figures; the others are a guess, and as wide as it is bad.
 */
function priors(machine: string): Readonly<Record<keyof Parameters, readonly [number, number]>> {
  const { nvlink, fabric } = machineNamed(machine);
  return {
    floor: [15, 1],
    lead: [10, 0.7],
    nvlink: [1000 / (0.75 * nvlink), 0.5],
    latency: [15, 0.8],
    doubling: [3, 1],
    message: [0.02, 1.5],
    nic: [1000 / (0.92 * (fabrics[fabric] || 50)), 0.2],
  };
}

/** How far off, as a logarithm, cells are expected to be: what they weigh beside the priors. */
const scatter = 0.15;

/** The parameters that fit cells of one phase of one system on one machine best. */
export function fitted(mine: readonly Cell[], machine: string): Parameters {
  const before = names.map((name) => priors(machine)[name]);
  const at = (logs: readonly number[]): Parameters =>
    Object.fromEntries(names.map((name, i) => [name, Math.exp(logs[i]!)])) as unknown as Parameters;
  const centre = before.map(([value]) => Math.log(value));
  const found = leastSquares(
    (logs) => [
      ...mine.map(({ us, work }) => Math.log(us / time(at(logs), work)) / scatter),
      ...logs.map((value, i) => (value - centre[i]!) / before[i]![1]),
    ],
    centre,
  );
  return at(found);
}

/** The questions that some cells of a source answer for its others: the parts that are left out in turn. */
export const questions: readonly {
  readonly name: string;
  parts(mine: readonly Cell[]): readonly ((cell: Cell) => boolean)[];
}[] = [
  {
    name: 'every other number of tokens, either way',
    parts(mine) {
      const sizes = distinct(mine.map(({ tokens }) => tokens));
      const turn = (rest: number) => (cell: Cell) => sizes.indexOf(cell.tokens) % 2 === rest;
      return sizes.length > 3 ? [turn(0), turn(1)] : [];
    },
  },
  {
    name: 'few tokens from many, many from few',
    parts(mine) {
      const sizes = distinct(mine.map(({ tokens }) => tokens));
      const few = (cell: Cell) => cell.tokens < sizes[sizes.length >> 1]!;
      return sizes.length > 1 ? [few, (cell) => !few(cell)] : [];
    },
  },
  {
    name: 'each EP from the others',
    parts(mine) {
      const sizes = distinct(mine.map(({ ranks }) => ranks));
      return sizes.length > 1 ? sizes.map((size) => (cell: Cell) => cell.ranks === size) : [];
    },
  },
  {
    name: 'EP64 and more from EP32 and less',
    parts: (mine) => (mine.some(({ ranks }) => ranks >= 64) ? [({ ranks }) => ranks >= 64] : []),
  },
];

const distinct = (values: readonly number[]): number[] => [...new Set(values)].sort((a, b) => a - b);

export function grouped(all: readonly Cell[], key: (cell: Cell) => string): Cell[][] {
  const groups = new Map<string, Cell[]>();
  for (const cell of all) groups.set(key(cell), [...(groups.get(key(cell)) ?? []), cell]);
  return [...groups.values()];
}

/** What is believed of `off` before any error of a source is seen, as if so many cells had said so. */
const usual = { off: 0.33, cells: 4 };

/** Cells that were left out, beside what the others of their source predict. */
export function leftOut(mine: readonly Cell[], parts: readonly ((cell: Cell) => boolean)[]) {
  return parts.flatMap((out) =>
    grouped(mine, ({ machine, phase }) => `${machine} ${phase}`).flatMap((alike) => {
      const rest = alike.filter((cell) => !out(cell));
      if (rest.length === 0) return [];
      const fit = { ...fitted(rest, rest[0]!.machine), ...spanOf(rest), off: 0 };
      return alike.filter(out).map((cell) => {
        const { time: us, high } = predict(fit, cell.work, cell.tokens, 'its own');
        // `far`: half the range that the distance from the other cells alone asks for.
        return { cell, us, off: Math.log(us / cell.us), far: Math.log(high / us) };
      });
    }),
  );
}

const spanOf = (mine: readonly Cell[]): Pick<Fit, 'ep' | 'tokens'> => {
  const span = (values: readonly number[]): [number, number] => [Math.min(...values), Math.max(...values)];
  return { ep: span(mine.map(({ ranks }) => ranks)), tokens: span(mine.map(({ tokens }) => tokens)) };
};

/** Half the range, as a logarithm, that nine of ten of a source's left-out cells need. */
export function offOf(mine: readonly Cell[]): number {
  const needed = [questions[0]!, questions[2]!]
    .flatMap(({ parts }) => leftOut(mine, parts(mine)))
    .map(({ off, far }) => Math.sqrt(Math.max(0, off ** 2 - far ** 2)))
    .sort((a, b) => a - b);
  if (needed.length === 0) return usual.off;
  const nine = Math.max(0.03, needed[Math.ceil(0.9 * needed.length) - 1]!);
  return usual.off * (nine / usual.off) ** (mine.length / (mine.length + usual.cells));
}

/** All that `heddle plan` knows: src/tools/plan/fits.json. */
export function fits(): Measured[] {
  return grouped(cells, ({ source }) => source).flatMap((mine) => {
    const off = offOf(mine);
    return grouped(mine, ({ machine }) => machine).map((here): Measured => {
      const { lib, mode, machine } = here[0]!;
      const of = (phase: RoundHalf): Fit => {
        const part = here.filter((cell) => cell.phase === phase);
        const found = { ...fitted(part, machine), off };
        const rounded = Object.fromEntries(
          Object.entries(found).map(([name, value]) => [name, Number(value.toPrecision(4))]),
        );
        return { ...(rounded as unknown as typeof found), ...spanOf(part) };
      };
      const src = [...new Set(here.map((cell) => cell.src))].join('; ');
      return { lib, mode, machine, src, dispatch: of('dispatch'), combine: of('combine') };
    });
  });
}
