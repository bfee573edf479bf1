/**
 * Weigh: where combine applies the router weights, makes the one row of a token that travels from the rows that this
 * rank's experts left for its routes: Σ weight · row in order of k, as the tree of docs/semantics.md.
 *
 * A launch of its own before combine, on its stream: one-sided's pushing combine releases the slots right at its start,
 * and from then on the next dispatch may write over the ids and weights that are read here.
 */
import { kernel, peers, type TypedLayout } from '../../../lang/index.js';
import { combineWeighs, dtypes, type Layer, sharing } from '../../layer/index.js';
import type { PlanTarget } from '../family.js';
import { routeParams } from './params.js';
import type { Spread } from './parts.js';
import { type Launch, launch } from './plan.js';
import { partialDtype, type ReceivedSections, rowsOf } from './received.js';
import { inOrder, routeSum } from './route-sum.js';

/**
 * It reads and writes this rank's memory only, all slots of all sources, most of them empty. Many small blocks keep the most loads under
 * way. A simulated block costs more than it brings.
 */
export function weighSpread(
  layer: Layer,
  { blocks, threads, parts }: Spread,
  { kind, sms, multiprocessors }: Pick<PlanTarget, 'kind' | 'sms' | 'multiprocessors'>,
): Spread | null {
  if (!combineWeighs(layer)) return null;
  const pieces = sharing(layer).groups * layer.maxTokens * parts;
  if (kind === 'sim')
    return { blocks: Math.min(pieces, sms ?? blocks), threads: Math.min(threads, 512), parts };
  // Where blocks are few, their threads must be many; with more than 512 a sum of 32 rows would not fit in registers.
  if (sms !== null) return { blocks: Math.min(pieces, sms), threads: 512, parts };
  return { blocks: Math.min(pieces, 8 * multiprocessors), threads: 256, parts };
}

export interface Weighing extends Layer {
  /** Where combine applies the router weights: how the launch is spread that does it. */
  readonly weigh: Spread | null;
}

export function weighLaunch(
  name: string,
  layer: Weighing,
  window: TypedLayout<ReceivedSections>,
): Launch | null {
  const { weigh } = layer;
  if (weigh === null) return null;
  return launch(weighKernel(name, layer, weigh, window), weigh, 'from a row a route to the row that travels');
}

function weighKernel(name: string, layer: Layer, weigh: Spread, window: TypedLayout<ReceivedSections>) {
  const { maxTokens, topK, output } = layer;
  const { dtype } = output;
  const partial = partialDtype(layer);
  // Rows of whole 16-byte vectors are read as such, others value by value.
  const { vectors, lanes, units } = rowsOf(layer, dtype);
  const partialLanes = 16 / dtypes[partial].size;
  return kernel(
    {
      name,
      maxThreads: weigh.threads,
      params: { win: peers(window), ...routeParams(layer, true, false) },
      using: {
        ...{ K: topK, MAX_TOKENS: maxTokens, PIECES: sharing(layer).groups * maxTokens * weigh.parts },
        ...{ PARTS: weigh.parts, PARTIAL: partial, VECTORS: vectors, LANES: lanes, UNITS: units },
        PART_UNITS: Math.ceil(units / weigh.parts),
        /** Vectors of sums for each vector of a row: two where rows of 16 bits become sums of 32. */
        SUM_VECTORS: Math.max(1, lanes / partialLanes),
        ...{ SUM_LANES: vectors ? partialLanes : 1, inOrder, routeSum: routeSum(layer) },
      },
    },
    (g, { win, made, madeRows, scatter }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const mine = win.at(g.rank);
      for (let piece = g.blockIdx.x; piece < u.PIECES; piece += g.gridDim.x) {
        const part = piece % u.PARTS;
        const source = piece / u.PARTS / u.MAX_TOKENS;
        const token = (piece / u.PARTS) % u.MAX_TOKENS;
        const route = (source * u.MAX_TOKENS + token) * u.K + g.laneId;
        let here = false;
        let has = false;
        let row = route;
        let weight = g.f32(1);
        if (g.laneId < u.K) {
          here = g.load(mine.experts.at(source, token, g.laneId)) >= 0;
          weight = g.load(mine.weights.at(source, token, g.laneId));
          row = g.u32(g.load(scatter[0]!.at(route)));
          has = row < madeRows[0]!;
        }
        // A token whose routes found no rows in a plan travels all the same.
        if (g.warp.any(here)) {
          const places = g.registers('u32', u.K);
          const scales = g.registers('f32', u.K);
          const routes = g.warp.ballot(has);
          u.inOrder({ routes, row, weight, places, scales });
          const count = g.popc(routes);
          const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
          for (let i = part * u.PART_UNITS + g.threadIdx.x; i < end; i += g.blockDim.x) {
            const total = g.registers('f32', u.LANES);
            u.routeSum({ at: { from: made[0]!, places, scales }, count, unit: i, i, word: 0, values: total });
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
