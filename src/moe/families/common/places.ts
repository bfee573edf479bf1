/**
 * Where routes go. Without a placement they go to the expert that they name. With one a table in this rank's memory says in
 * which place the expert lives, for this source and this lot of its tokens; from there on a place is what an expert is
 * elsewhere. Dispatch alone reads the table: it notes the places of each token, and combine reads those. So a round
 * goes by one table, whatever is written there while it is under way.
 *
 * | part | written by | read by | free for the next round because |
 * | --- | --- | --- | --- |
 * | table | the host, between launches | dispatch | the copy and the launches of its layer are on one stream |
 * | places | dispatch | combine | the next dispatch, of whichever layer, is behind combine on the stream |
 * | counts | dispatch adds | the host | they only grow |
 *
 * The table and the counts are a layer's own, the places are shared by all layers whose rounds follow each other.
 */
import { device, list, pointer } from '../../../lang/index.js';
import { type Layer, lotCount, sharing } from '../../layer/index.js';
import type { BufferPlan, PlacingPlan, View } from '../family.js';

/** The arguments of kernels that read routes: the table, the places, the counts; nothing where ids are places. */
export const placingParam = ({ placed }: Layer) => list(pointer('i32'), placed === undefined ? 0 : 3);

/** The memory of it: what is a layer's own, what layers share, and the parts of both. */
export function placingMemory({ placed = 0, maxTokens, topK }: Layer) {
  const buffer = (purpose: string, words: number): BufferPlan => ({
    kind: 'buffer',
    purpose,
    bytes: 4 * words,
  });
  const table = placed * lotCount;
  const counts = 2 * placed;
  const ofLayer = buffer('placement', table + counts);
  const shared = buffer('places of routes', maxTokens * topK);
  const view = (of: BufferPlan, dtype: 'i32' | 'u32', start: number, length: number): View => ({
    ...{ in: of, offset: 4 * start, dtype, shape: [length] },
  });
  const placing: PlacingPlan = {
    table: view(ofLayer, 'i32', 0, table),
    places: view(shared, 'i32', 0, maxTokens * topK),
    counts: view(ofLayer, 'u32', table, counts),
  };
  return placed === 0
    ? { ofLayer: null, buffers: [], placing: null }
    : { ofLayer, buffers: [shared], placing };
}

/** Where route k of a token goes: a place, or anything else for nowhere. */
export const placeAt = (layer: Layer) =>
  device(
    {
      params: { topkIds: pointer('i32'), placing: placingParam(layer), token: 'u32', k: 'u32' },
      returns: 'i32',
      using: {
        ...{ K: layer.topK, PLACED: layer.placed !== undefined, EXPERTS: layer.placed ?? 0, LOTS: lotCount },
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
        ...{ REPLICAS: sharing(layer).replicas, K: layer.topK, EXPERTS: layer.placed ?? 0 },
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
