/** Measured cells: one time of one phase of one round, with its source; and what each says about the model. */
import { ArgumentError, messageOf, requireInteger, requireOneOf, requireText } from '../../base/errors.js';
import type { Travel } from '../../moe/families/index.js';
import { formatNames, limits, type Profile, rowBytes } from '../../moe/layer/index.js';
import { workOf } from './model.js';
import sources from './rounds.json' with { type: 'json' };
import { hits, type RankPlacement, type RoutingLaw } from './routing.js';
import { traffic } from './traffic.js';

/** `both`: dispatch and combine, back to back. */
type CellPhase = 'dispatch' | 'combine' | 'both';

/** A line of a file of cells: cells of one `set` come from one source and one harness. */
export type Cell = Readonly<ReturnType<typeof cellFrom>>;

/** How a published system sends, and how its harness is known to have routed. */
interface System {
  readonly mode: string;
  /** Only of this library. */
  readonly lib?: string;
  readonly way: Travel;
  readonly law: RoutingLaw;
  /** Bytes that it takes on a rank, where its layout is known. */
  readonly memory?: (layer: Profile, tokens: number) => number;
}

/**
 * DeepEP's low latency: for each phase a place to send from and one to receive in, a bf16 row with a header for every expert
 * and token of a rank, and both twice, for rounds that follow each other.
 */
const lowLatencyBytes = ({ experts, hidden }: Profile, tokens: number): number =>
  2 * 2 * experts * tokens * (rowBytes('bf16', hidden) + 16);

const uniform: RoutingLaw = { kind: 'uniform' };
const oneSided: Travel = { rows: 'rank', message: 'row', metadata: 'rows' };
const rowAnExpert: Travel = { rows: 'expert', message: 'row', metadata: 'rows' };
const byRails: Travel = { rows: 'rails', message: 'peer', metadata: 'rows' };

/** The first that fits a cell says what it is. */
export const systems: readonly System[] = [
  // On routes of `heddle bench`.
  { lib: 'heddle', mode: 'one_sided', way: { ...oneSided, metadata: 'every rank' }, law: uniform },
  // Its source counts min(ep, topk) ranks a token, which only a perfect router reaches.
  { lib: 'trtllm', mode: 'one_sided', way: oneSided, law: { kind: 'perfect' } },
  { mode: 'one_sided', way: oneSided, law: uniform },
  { lib: 'deepep_v1', mode: 'll', way: rowAnExpert, law: uniform, memory: lowLatencyBytes },
  { mode: 'll', way: rowAnExpert, law: uniform },
  // DeepEP's test, which others run too, lets a token choose experts of four nodes at most.
  { mode: 'normal', way: byRails, law: { kind: 'uniform', nodesAtMost: 4 } },
  { mode: 'elastic', way: byRails, law: uniform },
  { mode: 'hybrid', way: { rows: 'expert', message: 'peer', metadata: 'rows' }, law: uniform },
  { mode: 'ibgda', way: rowAnExpert, law: uniform },
  { mode: 'ibrc', way: rowAnExpert, law: uniform },
  { mode: 'nvlink', way: rowAnExpert, law: uniform },
];

export function systemOf({ lib, mode }: Pick<Cell, 'lib' | 'mode'>): System {
  return systems.find((one) => one.mode === mode && (one.lib ?? lib) === lib)!;
}

/** The bytes that a source that prints GB/s divides by the time: rows a token. */
const countedRows: readonly {
  readonly name: string;
  rows(cell: Cell, place: RankPlacement, law: RoutingLaw): number;
}[] = [
  { name: 'rdma', rows: (cell, place, law) => sum(hits(layerOf(cell), place, law).nodes) },
  { name: 'nvlink', rows: (cell, place, law) => sum(hits(layerOf(cell), place, law).ranks) },
  { name: 'per-rank algorithmic', rows: ({ topk }) => topk },
];

const sum = (values: Float64Array): number => values.reduce((total, value) => total + value, 0);
const layerOf = ({ hidden, experts, topk }: Cell) => ({ hidden, experts, topK: topk });

export type Observation = ReturnType<typeof observe>;

/** The statement of a cell: so much work took so long. */
export function observe(cell: Cell) {
  const { way, law } = systemOf(cell);
  const place: RankPlacement = { ranks: cell.ep, perNode: Math.min(cell.domain, cell.ep) };
  const row = rowBytes(cell.dtype, cell.hidden);
  const load = {
    hits: hits(layerOf(cell), place, law),
    place,
    tokens: cell.tokens,
    topK: cell.topk,
    rowBytes: row,
    replicas: 1,
  };
  const phases = cell.phase === 'both' ? (['dispatch', 'combine'] as const) : [cell.phase];
  const work = workOf(
    phases.map((phase) => traffic(phase, way, load)),
    place,
  );
  return { cell, us: timeOf(cell, place, law), work };
}

/**
 * The largest EP's cells continued to more ranks by the rule that each doubling adds half of what the last one added, as
 * bytes for other nodes do. The step before must have crossed the network where this one does.
 */
export function continuedBeyond(
  observations: readonly Observation[],
): (Pick<Observation, 'work' | 'us'> & { readonly tokens: number })[] {
  const shapeOf = ({ tokens, dtype, hidden, topk, experts, domain }: Cell): string =>
    JSON.stringify([tokens, dtype, hidden, topk, experts, domain]);
  return observations.flatMap(({ cell, us }) => {
    const alike = observations.filter((one) => shapeOf(one.cell) === shapeOf(cell));
    const half = alike.find((one) => one.cell.ep === cell.ep / 2);
    const crosses = cell.ep > cell.domain;
    if (half === undefined || crosses !== half.cell.ep > cell.domain) return [];
    if (alike.some((one) => one.cell.ep > cell.ep)) return [];
    const most = Math.min(cell.experts, crosses ? limits.worldRanks : cell.domain);
    return continuation({ us, before: half.us, ep: cell.ep }, most)
      .filter((one) => one.us > 0)
      .map((one) => ({
        tokens: cell.tokens,
        us: one.us,
        work: observe({ ...cell, ep: one.ep, us: 1 }).work,
      }));
  });
}

/** Half of the last step, which began at `before`, again, and again, for every doubling to `most` ranks. */
export function continuation(
  { us, before, ep }: { readonly us: number; readonly before: number; readonly ep: number },
  most: number,
) {
  const found: { readonly ep: number; readonly us: number }[] = [];
  for (let n = 2; n * ep <= most; n *= 2) found.push({ ep: n * ep, us: us + (us - before) * (1 - 1 / n) });
  return found;
}

function timeOf(cell: Cell, place: RankPlacement, law: RoutingLaw): number {
  if (cell.us !== null) return cell.us;
  const counted = countedRows.find(({ name }) => cell.gbps_def!.startsWith(name))!;
  const bytes = cell.tokens * counted.rows(cell, place, law) * rowBytes(cell.dtype, cell.hidden);
  return bytes / (cell.gbps! * 1000);
}

/** Cells of one phase and format, in rounds.json beside others of their source, system and machine. */
interface Table {
  /** The number that is printed: µs; or GB/s, where it says what the source counts for them. */
  readonly gbps?: string;
  /** EP, tokens a rank → the figure. */
  readonly cells: Readonly<Record<string, Readonly<Record<string, number>>>>;
}

/**
 * All that is shipped, of DeepSeek-V3's layer: what others published, as they print it, so sources may disagree; and what
 * Heddle was measured to need, of which docs/results has the runs.
 */
export const shippedCells = once((): readonly Cell[] =>
  (sources as readonly { readonly tables: readonly Table[] }[]).flatMap(({ tables, ...source }) =>
    tables.flatMap(({ cells, gbps, ...of }) =>
      Object.entries(cells).flatMap(([ep, row]) =>
        Object.entries(row).map(([tokens, figure]) =>
          cellFrom('rounds.json', {
            ...{
              ...source,
              ...of,
              ep: Number(ep),
              tokens: Number(tokens),
              hidden: 7168,
              topk: 8,
              experts: 256,
            },
            ...(gbps === undefined ? { us: figure } : { gbps: figure, gbps_def: gbps }),
          }),
        ),
      ),
    ),
  ),
);

/** A value that is made when it is first asked for. */
export function once<T>(make: () => T): () => T {
  let made: T | undefined;
  return () => (made ??= make());
}

const texts = ['set', 'lib', 'mode', 'hw', 'fabric', 'dtype', 'phase', 'src'] as const;
const integers = ['ep', 'domain', 'tokens', 'hidden', 'topk', 'experts'] as const;
const phases: readonly CellPhase[] = ['dispatch', 'combine', 'both'];

/** Cells from the text of a file; `name` is how errors call it. */
export function parseCells(name: string, text: string): Cell[] {
  const all = parseJson(name, text);
  if (!Array.isArray(all) || all.length === 0)
    throw new ArgumentError(name, all, 'a JSON list of at least one cell');
  return all.map((value: unknown, i) => cellFrom(`${name}[${i}]`, value));
}

export function parseJson(name: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new ArgumentError(name, text, `JSON (${messageOf(error)})`);
  }
}

/** Requires a time or a rate of a size with which all later results stay finite, and above 0. */
export function figure(name: string, value: unknown): number {
  if (typeof value === 'number' && value >= 1e-9 && value <= 1e12) return value;
  throw new ArgumentError(name, value, 'a number above 0, at most 1e12');
}

/** @throws ArgumentError where the value is no cell; `at` is how it calls it. */
export function cellFrom(at: string, value: unknown) {
  if (!isRecord(value)) throw new ArgumentError(at, value, 'an object');
  const timed = value.us !== undefined || value.gbps !== undefined;
  const needed = [...texts, ...integers, ...(timed ? [] : ['us'])];
  const missing = needed.filter((field) => value[field] === undefined);
  if (missing.length > 0) {
    throw new ArgumentError(
      at,
      value,
      `a cell with ${missing.join(', ')} too; it has ${Object.keys(value).join(', ')}`,
    );
  }
  const text = (field: string) => requireText(`${at}.${field}`, value[field]);
  const oneOf = <T extends string>(field: string, names: readonly T[]): T =>
    requireOneOf(`${at}.${field}`, value[field], names);
  const whole = (field: string) => requireInteger(`${at}.${field}`, value[field], 1, 2 ** 22);
  const positive = (field: string) => {
    const found = value[field] ?? null;
    return found === null ? null : figure(`${at}.${field}`, found);
  };
  const us = positive('us');
  const gbps = positive('gbps');
  if (us === null && gbps === null)
    throw new ArgumentError(`${at}.us`, null, 'microseconds, where gbps is null');
  const definition = us === null ? text('gbps_def') : null;
  if (definition !== null && !countedRows.some(({ name }) => definition.startsWith(name))) {
    const known = countedRows.map(({ name }) => name).join(', ');
    throw new ArgumentError(`${at}.gbps_def`, definition, `one of ${known}`);
  }
  const [ep, domain] = [whole('ep'), whole('domain')];
  if (ep > domain && ep % domain !== 0)
    throw new ArgumentError(`${at}.ep`, ep, `at most its domain, ${domain}, or a multiple of it`);
  const [topk, experts] = [whole('topk'), whole('experts')];
  if (topk > experts) throw new ArgumentError(`${at}.topk`, topk, `at most experts, ${experts}`);
  return {
    set: text('set'),
    lib: text('lib'),
    // The way in which the library sends: a mode of `systems`.
    mode: oneOf('mode', [...new Set(systems.map(({ mode }) => mode))]),
    hw: text('hw'),
    fabric: text('fabric'),
    ep,
    // GPUs that share NVLink.
    domain,
    tokens: whole('tokens'),
    hidden: whole('hidden'),
    topk,
    experts,
    dtype: oneOf('dtype', formatNames),
    phase: oneOf('phase', phases),
    // Microseconds; or null, and GB/s of bytes as `gbps_def` counts them.
    us,
    gbps,
    gbps_def: definition,
    src: text('src'),
    note: typeof value.note === 'string' ? value.note : '',
  };
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Cells of the same key, in the order of the first of each. */
export function grouped(cells: readonly Cell[], key: (cell: Cell) => string): Cell[][] {
  const groups = new Map<string, Cell[]>();
  for (const cell of cells) groups.set(key(cell), [...(groups.get(key(cell)) ?? []), cell]);
  return [...groups.values()];
}

/** How errors and tables call a cell. */
export const cellName = ({ lib, mode, hw, phase, dtype, ep, tokens }: Cell): string =>
  `${lib} ${mode} on ${hw}, ${phase} ${dtype}, EP${ep}, ${tokens} tokens`;

/**
 * Measured loads of the experts, from a file: how often each was chosen, or what every token chose.
 * A list of numbers is counts, an entry for each expert; a list of lists is routes, an entry for each token.
 */
export function lawFrom(name: string, text: string): RoutingLaw {
  const value = parseJson(name, text);
  const wrong = (what: unknown) =>
    new ArgumentError(
      name,
      what,
      'a JSON list of counts (a number for each expert) or of routes (a list for each token)',
    );
  if (!Array.isArray(value) || value.length === 0) throw wrong(value);
  const isCount = (one: unknown): one is number =>
    typeof one === 'number' && one >= 0 && one <= Number.MAX_SAFE_INTEGER;
  const counts = value.filter(isCount);
  if (counts.length === value.length) return { kind: 'counts', counts };
  const tokens = value.map((ids: unknown) => {
    if (!Array.isArray(ids) || ids.length === 0) throw wrong(ids);
    return ids.map((id: unknown) => {
      if (!Number.isInteger(id)) throw wrong(id);
      return id as number;
    });
  });
  return { kind: 'routes', tokens };
}
