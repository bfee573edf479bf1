/**
 * Choose: of each token's logits the topK best experts and their weights. A warp takes a token; lane l holds the scores of
 * experts l, l + 32 … An expert whose score is NaN is never chosen, and of equal scores the smaller id's is the better one.
 */
import { device, kernel, list, pointer, registers } from '../../../lang/index.js';
import { exp } from '../../families/common/exp.js';
import type { RouterShape } from './shape.js';

export function chooseKernel(shape: RouterShape, threads: number) {
  const kit = chooseKit(shape, threads);
  return kernel(
    {
      name: 'router_choose',
      maxThreads: threads,
      params: {
        /** [token][expert] */
        logits: pointer('f32'),
        /** [expert]: what is added to logits, and to scores where experts are chosen; each where there is one. */
        bias: list(pointer('f32'), shape.bias ? 1 : 0),
        correction: list(pointer('f32'), shape.correction ? 1 : 0),
        /** [token][k] */
        ids: pointer('i32'),
        weights: pointer('f32'),
        tokens: 'u32',
      },
      using: { ...kit, scoreOf: scoreOf(kit), dropGroups: dropGroups(kit) },
    },
    (g, { logits, bias, correction, ids, weights, tokens }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      for (let token = g.blockIdx.x * u.WARPS + g.warpId; token < tokens; token += g.gridDim.x * u.WARPS) {
        const row = logits.at(token * u.EXPERTS);
        // The scores by which experts are chosen; NaN where there is none, or it was taken.
        const rank = g.registers('f32', u.PER_LANE, g.bits('f32', g.u32(u.NONE)));
        for (const i of g.unroll(u.PER_LANE)) {
          const e = i * 32 + g.laneId;
          if (e < u.EXPERTS) {
            rank[i] = g.load(row.at(e));
            if (bias.length > 0) rank[i]! += g.load(bias[0]!.at(e));
          }
        }
        const spread = g.registers('f32', 2);
        if (u.SOFTMAX) {
          // A value that is NaN takes no part.
          let largest = g.bits('f32', g.u32(u.LEAST));
          for (const i of g.unroll(u.PER_LANE)) largest = g.max(largest, rank[i]!);
          for (const step of g.unroll(5)) largest = g.max(largest, g.warp.shuffleXor(largest, 16 >> step));
          let sum = g.f32(0);
          for (const i of g.unroll(u.PER_LANE)) {
            const part = u.exp({ x: rank[i]! - largest });
            if (part >= 0) sum += part;
          }
          spread[0] = largest;
          spread[1] = g.rcp(u.sumOf({ value: sum }));
        }
        for (const i of g.unroll(u.PER_LANE)) {
          const e = i * 32 + g.laneId;
          rank[i] = u.scoreOf({ logit: rank[i]!, spread });
          if (correction.length > 0 && e < u.EXPERTS) rank[i]! += g.load(correction[0]!.at(e));
        }
        if (u.GROUPS) u.dropGroups({ rank });
        // Lane k has the k-th.
        let mine = g.u32(u.EXPERTS);
        for (let k = g.u32(0); k < u.K; k += 1) {
          const best = u.bestOf({ values: rank, experts: g.u32(u.EXPERTS) });
          if (g.laneId === k) mine = best;
          for (const i of g.unroll(u.PER_LANE)) {
            if (i * 32 + g.laneId === best) rank[i] = g.bits('f32', g.u32(u.NONE));
          }
        }
        let weight = g.f32(0);
        if (mine < u.EXPERTS) {
          let logit = g.load(row.at(mine));
          if (bias.length > 0) logit += g.load(bias[0]!.at(mine));
          weight = u.scoreOf({ logit, spread });
        }
        if (u.NORMALISE) weight *= g.rcp(u.sumOf({ value: weight }) + 1e-20);
        if (g.laneId < u.K) {
          g.store(ids.at(token * u.K + g.laneId), mine < u.EXPERTS ? g.i32(mine) : g.i32(-1));
          g.store(weights.at(token * u.K + g.laneId), weight * u.SCALE);
        }
      }
    },
  );
}

/** Constants of the kernel and its parts. */
function chooseKit({ experts, topK, routing }: RouterShape, threads: number) {
  const { groups: { count, top } = { count: 1, top: 1 }, scores, normalise, scale } = routing;
  return {
    ...{ EXPERTS: experts, PER_LANE: Math.ceil(experts / 32), K: topK, WARPS: threads / 32 },
    ...{ SOFTMAX: scores === 'softmax', GROUPS: top < count, NORMALISE: normalise, SCALE: scale },
    ...{ COUNT: count, SIZE: experts / count, TOP: top },
    ...{ NONE: 0x7fc00000, LEAST: 0xff800000, exp, bestOf, sumOf },
  };
}
type ChooseKit = ReturnType<typeof chooseKit>;

/** What becomes of a logit. `spread`, of softmax: the largest logit, and 1 / the sum of what remains of the others beside it. */
const scoreOf = (kit: ChooseKit) =>
  device(
    { params: { logit: 'f32', spread: registers('f32', 2) }, returns: 'f32', using: kit },
    (g, { logit, spread }, { SOFTMAX, exp }) => {
      if (SOFTMAX) return exp({ x: logit - spread[0]! }) * spread[1]!;
      return g.rcp(1 + exp({ x: -logit }));
    },
  );

const sumOf = device({ params: { value: 'f32' }, returns: 'f32' }, (g, { value }) => {
  let sum = value;
  for (const step of g.unroll(5)) sum += g.warp.shuffleXor(sum, 16 >> step);
  return sum;
});

/** The expert with the largest of the warp's values; `experts` where all are NaN. */
const bestOf = device(
  { params: { values: registers('f32'), experts: 'u32' }, returns: 'u32', using: { LEAST: 0xff800000 } },
  (g, { values, experts }, { LEAST }) => {
    let best = g.bits('f32', g.u32(LEAST));
    let id = experts;
    for (const i of g.unroll(values.length)) {
      const e = i * 32 + g.laneId;
      if (values[i]! > best || (values[i]! === best && e < id)) {
        best = values[i]!;
        id = e;
      }
    }
    for (const step of g.unroll(5)) {
      const other = g.warp.shuffleXor(best, 16 >> step);
      const theirs = g.warp.shuffleXor(id, 16 >> step);
      if (other > best || (other === best && theirs < id)) {
        best = other;
        id = theirs;
      }
    }
    return id;
  },
);

/**
 * Makes NaN of the values of all groups but the best: groups are compared by the sum of their two largest values, where
 * what is missing counts as −∞. Lane n adds up group n, from shared memory.
 */
const dropGroups = (kit: ChooseKit) =>
  device({ params: { rank: registers('f32') }, using: kit }, (g, { rank }, u) => {
    const shared = g.shared('f32', u.WARPS * u.EXPERTS);
    const all = shared.at(g.warpId * u.EXPERTS);
    for (const i of g.unroll(rank.length)) {
      const e = i * 32 + g.laneId;
      if (e < u.EXPERTS) g.store(all.at(e), rank[i]!);
    }
    g.warp.barrier();
    const sums = g.registers('f32', 1, g.bits('f32', g.u32(u.NONE)));
    if (g.laneId < u.COUNT) {
      let first = g.bits('f32', g.u32(u.LEAST));
      let second = g.bits('f32', g.u32(u.LEAST));
      for (let i = g.u32(0); i < u.SIZE; i += 1) {
        // Lanes begin at different places, and so in different banks.
        const value = g.load(all.at(g.laneId * u.SIZE + ((i + g.laneId) % u.SIZE)));
        if (value > first) {
          second = first;
          first = value;
        } else if (value > second) {
          second = value;
        }
      }
      sums[0] = u.SIZE === 1 ? first : first + second;
    }
    g.warp.barrier();
    let kept = g.u32(0);
    for (let n = g.u32(0); n < u.TOP; n += 1) {
      const best = u.bestOf({ values: sums, experts: g.u32(u.COUNT) });
      if (best < u.COUNT) kept |= 1 << best;
      if (g.laneId === best) sums[0] = g.bits('f32', g.u32(u.NONE));
    }
    for (const i of g.unroll(rank.length)) {
      const group = (i * 32 + g.laneId) / u.SIZE;
      if (((kept >> group) & 1) === 0) rank[i] = g.bits('f32', g.u32(u.NONE));
    }
  });
