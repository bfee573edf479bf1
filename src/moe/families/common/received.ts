/** The results that every family delivers, and where: the sections of its window that users see, and who counts and zeroes there. */
import { constant, device, field, type TypedLayout, windowOf } from '../../../lang/index.js';
import {
  combineWeighs,
  dtypes,
  expertShares,
  expertsOf,
  formatOf,
  type Layer,
  type RowDtype,
  sharing,
} from '../../layer/index.js';
import { unitBytes, unitOf } from './parts.js';

/** Most experts any rank owns: the first own one more where they do not divide. */
export const localExperts = (layer: Pick<Layer, 'experts' | 'ranks'>): number => expertsOf(layer, 0).count;

/** The type of `output`: what experts leave, or a weighted sum that waits to travel. */
export const partialDtype = ({ output }: Pick<Layer, 'output'>): RowDtype =>
  combineWeighs({ output }) ? formatOf(output).sums(output.dtype) : output.dtype;

/** How kernels see rows of values: as vectors of so many lanes where they are whole vectors, else value by value. */
export function rowsOf({ output: { hidden } }: Pick<Layer, 'output'>, dtype: RowDtype) {
  const { size } = dtypes[dtype];
  const vectors = (hidden * size) % 16 === 0;
  const lanes = vectors ? 16 / size : 1;
  return { vectors, lanes, units: hidden / lanes, unit: vectors ? ('v16' as const) : dtype };
}

/** Units in a part of a row of sums, where a row has so many. */
export function unitsOfPart({ output }: Pick<Layer, 'output'>, units: number, parts: number): number {
  const together = formatOf(output).together(output.dtype);
  return Math.ceil(units / together / parts) * together;
}

/** Slots: one for each (source, token). A source is a rank; with replicas, a group of them. */
export const slotShape = (layer: Layer) => [sharing(layer).groups, layer.maxTokens] as const;

/** Slot (source, token) is the token's own: nothing is counted, agreed on or reset. */
export function receivedSections(layer: Layer, holdsOutput = true) {
  const { topK } = layer;
  const slots = slotShape(layer);
  const { unit, units } = rowsOf(layer, partialDtype(layer));
  return {
    counts: field('u32', [localExperts(layer)]),
    /** The expert id where this rank owns it, else -1. */
    experts: field('i32', [...slots, topK]),
    weights: field('f32', [...slots, layer.weights ? topK : 0]),
    payloads: layer.payloads.map(({ rowBytes }, p) => {
      const unit = unitOf(layer, p);
      return field(unit, [...slots, rowBytes / unitBytes[unit]]);
    }),
    /** The result of this rank's experts for each slot: the row that travels, before it does. */
    output: field(unit, [...slots, holdsOutput ? units : 0]),
  };
}
export type ReceivedSections = ReturnType<typeof receivedSections>;

/**
 * Counts the routes of one turn, a token each of `sources` ranks from `first` on, whose ids have arrived at `rank`; all
 * threads of a block.
 */
export function countRoutes(layer: Layer, window: TypedLayout<ReceivedSections>) {
  const { base, extra } = expertShares(layer);
  return device(
    {
      params: { mine: windowOf(window), rank: 'u32', turn: 'u32', first: 'u32', sources: constant() },
      using: { REPLICAS: sharing(layer).replicas, K: layer.topK, BASE: base, EXTRA: extra },
    },
    (g, { mine, rank, turn, first, sources }, { REPLICAS, K, BASE, EXTRA }) => {
      const firstId = rank * BASE + g.min(rank, g.u32(EXTRA));
      for (let i = g.threadIdx.x; i < sources * K; i += g.blockDim.x) {
        const source = first + i / K;
        const id = g.load(mine.experts.at(source / REPLICAS, turn * REPLICAS + (source % REPLICAS), i % K));
        if (id >= 0) g.atomicAdd(mine.counts.at(g.u32(id) - firstId), 1, { order: 'relaxed', scope: 'gpu' });
      }
    },
  );
}

/** Block 0 zeroes the counts, behind the experts that read them and before the next dispatch adds to them (stream order). */
export const zeroCounts = (layer: Layer, window: TypedLayout<ReceivedSections>) =>
  device(
    { params: { mine: windowOf(window) }, using: { LOCAL_EXPERTS: localExperts(layer) } },
    (g, { mine }, { LOCAL_EXPERTS }) => {
      if (g.blockIdx.x === 0) {
        for (let e = g.threadIdx.x; e < LOCAL_EXPERTS; e += g.blockDim.x) g.store(mine.counts.at(e), 0);
      }
    },
  );
