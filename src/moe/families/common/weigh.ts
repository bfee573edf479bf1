/**
 * Weigh: where combine applies the router weights, makes the one row of a token that travels from the rows that this
 * rank's experts left for its routes: Σ weight · row in order of k, as the tree of docs/semantics.md.
 *
 * A launch of its own before combine, on its stream: one-sided's pushing combine releases the slots right at its start,
 * and from then on the next dispatch may write over the ids and weights that are read here.
 */
import {
  device,
  kernel,
  peers,
  pointer,
  record,
  registers,
  type TypedLayout,
  windowOf,
} from '../../../lang/index.js';
import { dtypes, type Layer, sharing } from '../../layer/index.js';
import { type Bindings, type BufferPlan, type Place, type Step, step } from '../family.js';
import type { Spread } from './parts.js';
import { partialDtype, type ReceivedSections, rowsOf } from './received.js';
import { gatherParams, rowSum } from './sum.js';

/**
 * It reads and writes this rank's memory only, all slots of all sources, most of them empty. A simulated block costs
 * more than it brings.
 */
export function weighSpread(
  layer: Layer,
  { blocks, threads, parts }: Spread,
  { kind, sms, multiprocessors }: Pick<Place, 'kind' | 'sms' | 'multiprocessors'>,
): Spread | null {
  if (layer.output.weighting !== 'combine') return null;
  const pieces = sharing(layer).groups * layer.maxTokens * parts;
  // With more threads a sum of 32 rows would not fit in registers.
  const most = sms ?? (kind === 'sim' ? blocks : 2 * multiprocessors);
  return { blocks: Math.min(pieces, most), threads: Math.min(threads, 512), parts };
}

export interface Weighing extends Layer {
  /** Where combine applies the router weights: how the launch is spread that does it. */
  readonly weigh: Spread | null;
}

export function weighKernel(name: string, layer: Weighing, window: TypedLayout<ReceivedSections>) {
  const { maxTokens, topK, output, weigh } = layer;
  if (weigh === null) return null;
  const { dtype } = output;
  const partial = partialDtype(layer);
  // Rows of whole 16-byte vectors are read as such, others value by value.
  const { vectors, lanes, units } = rowsOf(layer, dtype);
  const partialLanes = 16 / dtypes[partial].size;
  return kernel(
    {
      name,
      maxThreads: weigh.threads,
      params: {
        win: peers(window),
        /** [source][token][k][hidden]: what the experts made of each route, not weighted. */
        rows: pointer(dtype),
      },
      using: {
        K: topK,
        MAX_TOKENS: maxTokens,
        PIECES: sharing(layer).groups * maxTokens * weigh.parts,
        PARTS: weigh.parts,
        PARTIAL: partial,
        VECTORS: vectors,
        LANES: lanes,
        UNITS: units,
        PART_UNITS: Math.ceil(units / weigh.parts),
        /** Vectors of sums for each vector of a row: two where rows of 16 bits become sums of 32. */
        SUM_VECTORS: Math.max(1, lanes / partialLanes),
        SUM_LANES: vectors ? partialLanes : 1,
        rowSum: rowSum({
          rows: topK,
          lane: vectors ? dtype : 'f32',
          lanes,
          scaled: true,
          at: routesOf(layer, window),
          gather: gatherRoutes(layer, window),
        }),
      },
    },
    (g, { win, rows }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const mine = win.at(g.rank);
      for (let piece = g.blockIdx.x; piece < u.PIECES; piece += g.gridDim.x) {
        const part = piece % u.PARTS;
        const source = piece / u.PARTS / u.MAX_TOKENS;
        const token = (piece / u.PARTS) % u.MAX_TOKENS;
        let here = false;
        if (g.laneId < u.K) here = g.load(mine.experts.at(source, token, g.laneId)) >= 0;
        const routes = g.warp.ballot(here);
        if (routes !== 0) {
          const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
          for (let i = part * u.PART_UNITS + g.threadIdx.x; i < end; i += g.blockDim.x) {
            const total = g.registers('f32', u.LANES);
            const left = g.registers('u32', 1, routes);
            u.rowSum({
              at: { mine, rows, source, token, left },
              count: g.popc(routes),
              unit: i,
              i,
              word: 0,
              values: total,
            });
            const to = mine.output.at(source, token);
            if (u.VECTORS) {
              for (const v of g.unroll(u.SUM_VECTORS)) {
                const some = g.registers('f32', u.SUM_LANES);
                for (const lane of g.unroll(u.SUM_LANES)) some[lane] = total[v * u.SUM_LANES + lane]!;
                g.store(to.as('v16').at(i * u.SUM_VECTORS + v), g.pack(u.PARTIAL, some));
              }
            } else {
              g.store(to.as(u.PARTIAL).at(i), g.convert(u.PARTIAL, total[0]!));
            }
          }
        }
      }
    },
  );
}

/** One vector of one slot's rows. `left`: a bit for each route whose row was not gathered yet. */
const routesOf = (layer: Layer, window: TypedLayout<ReceivedSections>) =>
  record({
    mine: windowOf(window),
    rows: pointer(layer.output.dtype),
    source: 'u32',
    token: 'u32',
    left: registers('u32', 1),
  });

/** The rows of the routes that are here, in their order, and their weights. */
function gatherRoutes(layer: Layer, window: TypedLayout<ReceivedSections>) {
  const { dtype } = layer.output;
  const { vectors, units } = rowsOf(layer, dtype);
  return device(
    {
      params: gatherParams(routesOf(layer, window)),
      using: { K: layer.topK, MAX_TOKENS: layer.maxTokens, UNITS: units, VECTORS: vectors },
    },
    (g, { at: { mine, rows: from, source, token, left }, i, first, rows, scales }, u) => {
      for (const r of g.unroll(rows.length)) {
        if (first + r < u.K && left[0] !== 0) {
          const k = g.ffs(left[0]!) - 1;
          left[0]! &= left[0]! - 1;
          scales[r] = g.load(mine.weights.at(source, token, k));
          const at = ((source * u.MAX_TOKENS + token) * u.K + k) * u.UNITS + i;
          if (u.VECTORS) rows[r] = g.load(from.as('v16').at(at), { cache: 'stream' });
          else rows[r] = g.pack('f32', [g.f32(g.load(from.at(at))), 0, 0, 0]);
        }
      }
    },
  );
}

/** Its launch, where combine weighs. `rank`: as a step's. */
export const weighSteps = (
  kernel: ReturnType<typeof weighKernel>,
  { weigh }: Weighing,
  { win }: Bindings,
  routes: BufferPlan | null,
  rank?: number,
): Step[] =>
  kernel === null || weigh === null || routes === null
    ? []
    : [
        step({
          ...{ kernel, blocks: weigh.blocks, threads: weigh.threads, bindings: { win, rows: routes } },
          summary: 'from a row a route to the row that travels',
          ...(rank !== undefined && { rank }),
        }),
      ];
