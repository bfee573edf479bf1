/**
 * Where routes go. Without a placement they go to the expert that they name. With one a table in this rank's memory says in
 * which place the expert lives, for this source and this lot of its tokens; from there on a place is what an expert is
 * elsewhere. Dispatch alone reads the table: it notes the places of each token, and combine reads those. So a round
 * goes by one table, whatever is written there while it is under way.
 *
 * | part | written by | read by | free for the next round because |
 * | --- | --- | --- | --- |
 * | table | the host, between launches | dispatch | the copy and the launches are on one stream |
 * | places | dispatch | combine | the next dispatch is behind combine on the stream |
 * | counts | dispatch adds | the host | they only grow |
 */
import { device, list, pointer } from '../../../lang/index.js';
import { type Layer, lotCount, sharing } from '../../layer/index.js';
import type { BufferPlan, PlacingPlan, PlanMemory, View } from '../family.js';

/** The arguments of kernels that read routes: the table, the places, the counts; nothing where ids are places. */
export const placingParam = ({ placed }: Layer) =>
  list(pointer('i32'), placed === undefined ? 0 : placingParts.length);

const placingParts = ['table', 'places', 'counts'] as const;

/** The memory of it; null where there is no placement. */
export function placingPlan({ placed, maxTokens, topK }: Layer): PlacingPlan | null {
  if (placed === undefined) return null;
  const lengths = { table: placed * lotCount, places: maxTokens * topK, counts: 2 * placed };
  const all = lengths.table + lengths.places + lengths.counts;
  const buffer: BufferPlan = { kind: 'buffer', purpose: 'placement', bytes: 4 * all };
  const view = (offset: number, dtype: 'i32' | 'u32', length: number): View => ({
    ...{ in: buffer, offset: 4 * offset, dtype, shape: [length] },
  });
  return {
    buffer,
    table: view(0, 'i32', lengths.table),
    places: view(lengths.table, 'i32', lengths.places),
    counts: view(lengths.table + lengths.places, 'u32', lengths.counts),
  };
}

/** The parts of it, as kernels take them. */
export const placingAddresses = (placing: PlacingPlan | null) => (memory: PlanMemory) =>
  placing === null ? [] : placingParts.map((part) => memory.address(placing.buffer) + placing[part].offset);

/** Where route k of a token goes: a place, or anything else for nowhere. */
export const placeAt = (layer: Layer) =>
  device(
    {
      params: { topkIds: pointer('i32'), placing: placingParam(layer), token: 'u32', k: 'u32' },
      returns: 'i32',
      using: {
        K: layer.topK,
        PLACED: layer.placed !== undefined,
        EXPERTS: layer.placed ?? 0,
        LOTS: lotCount,
      },
    },
    (g, { topkIds, placing, token, k }, { K, PLACED, EXPERTS, LOTS }) => {
      let id = g.load(topkIds.at(token * K + k));
      if (PLACED) {
        const expert = g.u32(id);
        id = g.i32(-1);
        if (expert < EXPERTS) id = g.load(placing[0]!.at(expert * LOTS + (token % LOTS)));
      }
      return id;
    },
  );

/**
 * A warp notes where the routes of one turn go: combine needs that, which may add up the tokens of the whole group. It also counts the
 * routes of this rank's own token by expert; those that go nowhere have a count of their own.
 */
export const notePlaces = (layer: Layer) =>
  device(
    {
      params: { topkIds: pointer('i32'), placing: placingParam(layer), turn: 'u32', tokens: 'u32' },
      using: {
        REPLICAS: sharing(layer).replicas,
        K: layer.topK,
        EXPERTS: layer.placed ?? 0,
        placeAt: placeAt(layer),
      },
    },
    (g, { topkIds, placing, turn, tokens }, u) => {
      for (let member = g.u32(0); member < u.REPLICAS; member += 1) {
        const token = turn * u.REPLICAS + member;
        if (token < tokens && g.laneId < u.K) {
          const place = u.placeAt({ topkIds, placing, token, k: g.laneId });
          g.store(placing[1]!.at(token * u.K + g.laneId), place);
          const expert = g.u32(g.load(topkIds.at(token * u.K + g.laneId)));
          if (member === g.rank % u.REPLICAS && expert < u.EXPERTS) {
            const count = placing[2]!.at(place < 0 ? u.EXPERTS + expert : expert);
            g.atomicAdd(count, 1, { order: 'relaxed', scope: 'gpu' });
          }
        }
      }
    },
  );
