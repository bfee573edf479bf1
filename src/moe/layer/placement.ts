/** Where experts live: each in one place or in several, and which of them a token goes to. */
import { ArgumentError, requireArray, requireInteger, requireObject } from '../../base/errors.js';
import { isExpert, type Layer, limits, type Shape, sharing } from './shape.js';

/** Where each of a layer's experts lives. A plain value: ranks may send it to each other as JSON. */
export interface Placement {
  /** How many there are; routes name them by 0 … experts − 1. */
  readonly experts: number;
  readonly ranks: number;
  /** [place]: the expert that lives there, −1 for none. Places are numbered rank by rank, and every rank has as many. */
  readonly places: readonly number[];
}

/**
 * Lots of a source's tokens. A token's index, modulo this, is its lot: all tokens of a source and a lot that name an expert
 * go to the same place.
 */
export const lotCount = 16;

/** Requires a placement that makes sense. An expert may live nowhere: routes to it are dropped, and counted. */
export function requirePlacement(argument: string, placement: Placement): Placement {
  requireObject(argument, placement, 'a placement: { experts, ranks, places }');
  const { experts, ranks, places } = placement;
  requireInteger(`${argument}.experts`, experts, 1, limits.experts);
  requireInteger(`${argument}.ranks`, ranks, 1, limits.ranks);
  requireArray(`${argument}.places`, places, 'an array: the expert of each place');
  requirePlaces(`${argument}.places.length`, places.length, { experts, ranks });
  // By index: a hole is no expert either.
  for (let place = 0; place < places.length; place++)
    requireInteger(`${argument}.places[${place}]`, places[place], -1, experts - 1);
  return placement;
}

/** Requires a number of places that ranks can have equally many of, and each expert one. */
export function requirePlaces(
  argument: string,
  places: number,
  { experts, ranks }: Pick<Placement, 'experts' | 'ranks'>,
): void {
  requireInteger(argument, places, 1, limits.experts);
  if (places < experts)
    throw new ArgumentError(argument, places, `at least ${experts}, as many as there are experts`);
  if (places % ranks !== 0)
    throw new ArgumentError(argument, places, `a multiple of the ${ranks} ranks: all have as many places`);
}

/** Requires a placement of the same experts in as many places on as many ranks. */
export function requireSamePlaces(placement: Placement, now: Placement): void {
  const { experts, ranks, places } = requirePlacement('placement', placement);
  if (experts !== now.experts) throw new ArgumentError('placement.experts', experts, `${now.experts}`);
  if (ranks !== now.ranks) throw new ArgumentError('placement.ranks', ranks, `${now.ranks}`);
  if (places.length !== now.places.length)
    throw new ArgumentError('placement.places.length', places.length, `${now.places.length}`);
}

/** A layer whose experts are placed: what arrives names places. */
export const placed = <S extends Shape>(
  shape: S,
  placement: Placement | undefined,
): S & Pick<Layer, 'placed'> =>
  placement === undefined ? shape : { ...shape, experts: placement.places.length, placed: shape.experts };

/** [expert]: its places, in ascending order. */
export function placesByExpert({ experts, places }: Placement): number[][] {
  const found = Array.from({ length: experts }, (): number[] => []);
  for (const [place, expert] of places.entries()) if (expert >= 0) found[expert]!.push(place);
  return found;
}

/** [rank]: its part of the counted routes, which an expert's places share equally. Routes to experts that live nowhere are nobody's. */
export function rankLoads(placement: Placement, counts: ArrayLike<number>): number[] {
  requirePlacement('placement', placement);
  requireCounts(counts, placement.experts);
  const loads = new Array<number>(placement.ranks).fill(0);
  for (const [expert, places] of placesByExpert(placement).entries())
    for (const place of places) loads[rankOfPlace(placement, place)]! += counts[expert]! / places.length;
  return loads;
}

/** Requires a count of routes for each expert. */
export function requireCounts(counts: ArrayLike<number>, experts?: number): void {
  const listed = Array.isArray(counts) || (ArrayBuffer.isView(counts) && !(counts instanceof DataView));
  const many = experts === undefined ? '' : ` for each of ${experts} experts`;
  if (!listed || (experts !== undefined && counts.length !== experts))
    throw new ArgumentError('counts', counts, `an array: routes${many}`);
  for (let expert = 0; expert < counts.length; expert++) {
    const count = counts[expert];
    if (typeof count !== 'number' || !(count >= 0 && count <= Number.MAX_SAFE_INTEGER))
      throw new ArgumentError(`counts[${expert}]`, count, 'a number of routes');
  }
}

/**
 * `[experts, lotCount]`: the place that the routes of a source's tokens go to. Of all lots of all sources together, an
 * expert's places get equally many (±1). A source whose own rank has the expert keeps to it, and one whose node has it keeps to
 * the node, as far as that leaves the parts equal.
 *
 * Sources are equal groups of consecutive ranks, and so are nodes.
 */
export function placeTable(
  placement: Placement,
  {
    source,
    sources,
    nodes = 1,
  }: { readonly source: number; readonly sources: number; readonly nodes?: number },
): Int32Array<ArrayBuffer> {
  requirePlacement('placement', placement);
  requireInteger('sources', sources, 1, placement.ranks);
  requireInteger('source', source, 0, sources - 1);
  requireInteger('nodes', nodes, 1, placement.ranks);
  const table = new Int32Array(placement.experts * lotCount).fill(-1);
  for (const [expert, places] of placesByExpert(placement).entries())
    table.set(dealt(placement, places, sources, nodes)[source]!, expert * lotCount);
  return table;
}

/** The routes of all ranks as the placement has them: their ids are places. `nodes`: as `placeTable` has it. */
export function placedRoutes<R extends { readonly topkIds: Int32Array }>(
  shape: Pick<Shape, 'ranks' | 'experts' | 'topK' | 'maxTokens' | 'replicas'>,
  routes: readonly R[],
  placement: Placement,
  nodes = 1,
): R[] {
  const { groups, replicas } = sharing(shape);
  return routes.map((own, rank) => {
    const table = placeTable(placement, { source: Math.floor(rank / replicas), sources: groups, nodes });
    const at = (id: number, i: number): number =>
      isExpert(shape, id) ? table[id * lotCount + (Math.floor(i / shape.topK) % lotCount)]! : -1;
    return { ...own, topkIds: own.topkIds.map(at) };
  });
}

/** [source][lot]: which of an expert's places. */
function dealt(placement: Placement, places: readonly number[], sources: number, nodes: number): number[][] {
  const count = places.length;
  const all = sources * lotCount;
  const table = Array.from({ length: sources }, () => new Array<number>(lotCount).fill(-1));
  /** Shares that each place has still to get. */
  const left = places.map((_, i) => Math.floor(((i + 1) * all) / count) - Math.floor((i * all) / count));
  const part = (of: number, parts: number, whole: number): number => Math.floor((of * parts) / whole);
  const near = (source: number, place: number, parts: number): boolean =>
    part(source, parts, sources) === part(rankOfPlace(placement, place), parts, placement.ranks);
  // Places of the source itself first, then of its node, then any.
  for (const parts of [sources, nodes, 1]) {
    for (let lot = 0; lot < lotCount; lot++) {
      for (const [source, own] of table.entries()) {
        if (own[lot] !== -1) continue;
        let best = -1;
        for (let i = 0; i < count; i++) {
          // Equal ones take turns, from source to source and from lot to lot.
          const at = (source + lot + i) % count;
          if (left[at]! > Math.max(0, left[best] ?? 0) && near(source, places[at]!, parts)) best = at;
        }
        if (best === -1) continue;
        own[lot] = places[best]!;
        left[best]!--;
      }
    }
  }
  return table;
}

export const rankOfPlace = ({ ranks, places }: Placement, place: number): number =>
  Math.floor((place * ranks) / places.length);
