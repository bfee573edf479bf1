/**
 * Plan: sorts the routes that arrived by expert. A route is numbered `slot · topK + k`, so its number says its source,
 * token and place, and an expert's routes get their rows in the order of their numbers.
 *
 * A stable counting sort in one launch whose blocks never meet: each counts all routes, but places only its own. Counting
 * is cheap, since every block reads the same few bytes from the cache, and so nothing need be resident at once, awaited or
 * reset. Block b's routes are a stretch, each warp's a part of it; a route counts for the warp that will place it, or as one
 * of the blocks before or after. Those counts, summed up for each expert, say where each warp begins.
 *
 * Where dispatch says how many tokens came at most, only their routes are looked at, and numbered without a gap in between; all others are
 * told that they have no row.
 */
import { device, kernel, list, pointer, record } from '../../../lang/index.js';
import type { Spread } from '../../families/common/parts.js';
import { sumUpTo } from '../../families/common/sum.js';
import { type ExpertsShape, fewRows, keepsWeights, routesOf, rowsOfPlan, slotsOf } from './shape.js';

/** Vectors of ids that a thread has in flight. */
const inFlight = 8;

type PlanKit = ReturnType<typeof planKit>;

function planKit(shape: ExpertsShape, { threads, blocks }: Omit<Spread, 'parts'>) {
  const { layer, experts, reached = false, alignment } = shape;
  const [warps, routes] = [threads / 32, routesOf(layer)];
  const keeps = keepsWeights(layer);
  /** The blocks before, each warp, the blocks behind. */
  const parts = warps + 2;
  const vectors = (reached ? layer.maxTokens * layer.topK : routes) % 4 === 0;
  return {
    /** The arguments of a launch. */
    plan: record({
      /** [slot][k]: expert ids, −1 where the route is elsewhere. */
      ids: pointer('i32'),
      /** The most tokens that a source brought. */
      reached: list(pointer('u32'), reached ? 1 : 0),
      /** The id of this rank's first expert. */
      first: 'u32',
      /**
       * The numbers that describe the experts: `counts`, `offsets` and one more for their end, then `overflow`. Where few rows may come
       * instead of many: `counts` for the kernels of few, and of many; zeros for those that have no work.
       */
      sizes: pointer('u32'),
      /** [row]: its route; −1 in rows that only align the next expert. */
      routes: pointer('i32'),
      /** [slot][k]: the route's row; −1 where it has none. */
      scatter: pointer('i32'),
      /** [slot][k]: the weights that arrived, and where they are kept. */
      weights: list(pointer('f32'), keeps ? 1 : 0),
      kept: list(pointer('f32'), keeps ? 1 : 0),
    }),
    u: {
      ...{ EXPERTS: experts, WARPS: warps, PARTS: parts, KEEPS: keeps },
      // Routes of all warps in one step of their lanes.
      ...{ TOGETHER: blocks * warps * 32, REACHED: reached, MAX_TOKENS: layer.maxTokens, K: layer.topK },
      SOURCES: slotsOf(layer) / layer.maxTokens,
      // Odd, so that experts lie in different banks.
      STRIDE: parts + 1 - (parts % 2),
      ...{ VECTORS: vectors, LANES: vectors ? 4 : 1, DEPTH: inFlight },
      ...{ ALIGNMENT: alignment, MASKED: shape.form === 'masked', CAPACITY: shape.capacity },
      ...{ ROWS: rowsOfPlan(shape), FEW: fewRows(shape), sumUpTo },
    },
  };
}

export function expertsPlanKernel(shape: ExpertsShape, spread: Omit<Spread, 'parts'>) {
  const kit = planKit(shape, spread);
  return kernel(
    {
      name: 'experts_plan',
      maxThreads: spread.threads,
      params: kit.plan.of,
      using: {
        ...{ ...kit.u, lookedAt: lookedAt(kit), countAll: countAll(kit), beginWarps: beginWarps(kit) },
        ...{ beginExperts: beginExperts(kit), placeOwn: placeOwn(kit), passOver: passOver(kit) },
      },
    },
    (g, { ids, reached, first, sizes, routes, scatter, weights, kept }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const look = u.lookedAt({ reached });
      // [expert][part]: routes; then how many come before that part's.
      const counted = g.shared('u32', u.EXPERTS * u.STRIDE);
      const wanted = g.shared('u32', u.EXPERTS);
      const starts = g.shared('u32', u.EXPERTS);
      const ends = g.shared('u32', u.EXPERTS);
      for (let i = g.threadIdx.x; i < u.EXPERTS * u.STRIDE; i += g.blockDim.x) g.store(counted.at(i), 0);
      g.barrier();
      u.countAll({ ids, first, counted, look });
      g.barrier();
      u.beginWarps({ counted, wanted });
      g.barrier();
      if (g.warpId === 0) u.beginExperts({ wanted, starts, ends, sizes });
      g.barrier();
      const plan = { ids, reached, first, sizes, routes, scatter, weights, kept };
      u.placeOwn({ plan, counted, starts, ends, look });
      if (u.REACHED) u.passOver({ scatter, look });
      // The padding that aligns the next expert.
      for (let e = g.blockIdx.x * u.WARPS + g.warpId; e < u.EXPERTS; e += g.gridDim.x * u.WARPS) {
        const end = g.load(ends.at(e));
        const aligned = ((end + u.ALIGNMENT - 1) / u.ALIGNMENT) * u.ALIGNMENT;
        for (let row = end + g.laneId; row < aligned; row += 32) g.store(routes.at(row), -1);
      }
    },
  );
}

/** The routes that a plan looks at: all of them, or those of the tokens that came. */
const looks = record({
  /** How many there are, and how many of each source. */
  routes: 'u32',
  ofSource: 'u32',
  /** Routes between those of two sources. */
  gap: 'u32',
  /** Steps in which a warp places its own. */
  steps: 'u32',
});

const lookedAt = ({ plan, u: numbers }: PlanKit) =>
  device({ params: { reached: plan.of.reached }, returns: looks, using: numbers }, (g, { reached }, u) => {
    let tokens = g.u32(u.MAX_TOKENS);
    // Whole vectors of ids belong to one source.
    if (u.REACHED) tokens = g.min(((g.min(g.load(reached[0]!.at(0)), tokens) + 3) / 4) * 4, tokens);
    const ofSource = tokens * u.K;
    const routes = ofSource * u.SOURCES;
    const gap = u.MAX_TOKENS * u.K - ofSource;
    return { routes, ofSource, gap, steps: (routes + u.TOGETHER - 1) / u.TOGETHER };
  });

/** Tells the routes that nobody looked at that they have no row. */
const passOver = ({ u: numbers }: PlanKit) =>
  device({ params: { scatter: pointer('i32'), look: looks }, using: numbers }, (g, { scatter, look }, u) => {
    const none = g.pack('i32', [-1, -1, -1, -1]);
    const thread = g.blockIdx.x * g.blockDim.x + g.threadIdx.x;
    for (let i = thread; i < (look.gap * u.SOURCES) / u.LANES; i += g.gridDim.x * g.blockDim.x) {
      const route = i * u.LANES + ((i * u.LANES) / look.gap + 1) * look.ofSource;
      if (u.VECTORS) g.store(scatter.at(route).as('v16'), none);
      else g.store(scatter.at(route), -1);
    }
  });

/** Counts every route for its expert and part: sums of which the order is all the same. */
const countAll = ({ u: numbers }: PlanKit) =>
  device(
    { params: { ids: pointer('i32'), first: 'u32', counted: pointer('u32'), look: looks }, using: numbers },
    (g, { ids, first, counted, look }, u) => {
      const start = g.blockIdx.x * (u.WARPS * look.steps * 32);
      for (let base = g.threadIdx.x; base < look.routes / u.LANES; base += g.blockDim.x * u.DEPTH) {
        const some = g.registers('v16', u.DEPTH);
        for (const d of g.unroll(u.DEPTH)) {
          const i = base + d * g.blockDim.x;
          if (i < look.routes / u.LANES) {
            let route = i * u.LANES;
            if (u.REACHED) route += (route / look.ofSource) * look.gap;
            if (u.VECTORS) some[d] = g.load(ids.at(route).as('v16'));
            else some[d] = g.pack('i32', [g.load(ids.at(route)), -1, -1, -1]);
          }
        }
        for (const d of g.unroll(u.DEPTH)) {
          const i = base + d * g.blockDim.x;
          if (i < look.routes / u.LANES) {
            // All of a vector are one part's.
            const route = i * u.LANES;
            let part = g.u32(0);
            if (route >= start) part = g.min(1 + (route - start) / (look.steps * 32), g.u32(u.WARPS + 1));
            for (const lane of g.unroll(u.LANES)) {
              const expert = g.u32(g.lane(some[d]!, 'i32', lane)) - first; // −1 becomes a huge one
              if (expert < u.EXPERTS) {
                g.atomicAdd(counted.at(expert * u.STRIDE + part), 1, { order: 'relaxed', scope: 'cta' });
              }
            }
          }
        }
      }
    },
  );

/** For each expert how many routes each part finds before its own, and how many there are. A warp takes an expert. */
const beginWarps = ({ u: numbers }: PlanKit) =>
  device(
    { params: { counted: pointer('u32'), wanted: pointer('u32') }, using: numbers },
    (g, { counted, wanted }, u) => {
      for (let e = g.warpId; e < u.EXPERTS; e += u.WARPS) {
        const part = counted.at(e * u.STRIDE + g.laneId);
        let own = g.u32(0);
        if (g.laneId < u.PARTS) own = g.load(part);
        const sum = u.sumUpTo({ value: own });
        if (g.laneId < u.PARTS) g.store(part, sum - own);
        if (g.laneId === 31) g.store(wanted.at(e), sum);
      }
    },
  );

/** Where each expert's rows begin and end, for all blocks; the first tells the host and the experts. One warp. */
const beginExperts = ({ u: numbers }: PlanKit) =>
  device(
    {
      params: {
        ...{ wanted: pointer('u32'), starts: pointer('u32'), ends: pointer('u32'), sizes: pointer('u32') },
      },
      using: numbers,
    },
    (g, { wanted, starts, ends, sizes }, u) => {
      let before = g.u32(0);
      let left = g.u32(0);
      for (let base = g.u32(0); base < u.EXPERTS; base += 32) {
        const e = base + g.laneId;
        let routes = g.u32(0);
        if (e < u.EXPERTS) routes = g.load(wanted.at(e));
        const rows = ((routes + u.ALIGNMENT - 1) / u.ALIGNMENT) * u.ALIGNMENT;
        const upTo = before + u.sumUpTo({ value: rows });
        let start = g.min(upTo - rows, g.u32(u.CAPACITY));
        let room = u.CAPACITY - start;
        if (u.MASKED) {
          start = e * u.CAPACITY;
          room = g.u32(u.CAPACITY);
        }
        const kept = g.min(routes, room);
        left += routes - kept;
        before = g.warp.shuffle(upTo, 31);
        if (e < u.EXPERTS) {
          g.store(starts.at(e), start);
          g.store(ends.at(e), start + kept);
          if (g.blockIdx.x === 0) {
            g.store(sizes.at(e), kept);
            g.store(sizes.at(u.EXPERTS + e), start);
          }
        }
      }
      const overflow = u.sumUpTo({ value: left });
      if (g.blockIdx.x === 0 && g.laneId === 31) {
        g.store(sizes.at(2 * u.EXPERTS), u.MASKED ? u.ROWS : g.min(before, g.u32(u.ROWS)));
        g.store(sizes.at(2 * u.EXPERTS + 1), overflow);
      }
      if (u.FEW > 0) {
        if (g.blockIdx.x === 0) {
          const few = before <= u.FEW;
          for (let e = g.laneId; e < u.EXPERTS; e += 32) {
            const rows = g.load(ends.at(e)) - g.load(starts.at(e));
            g.store(sizes.at(2 * u.EXPERTS + 2 + e), few ? rows : 0);
            g.store(sizes.at(3 * u.EXPERTS + 2 + e), few ? 0 : rows);
          }
        }
      }
    },
  );

/** Gives this warp's routes their rows, 32 at a time, and keeps their weights. */
const placeOwn = ({ plan, u: numbers }: PlanKit) =>
  device(
    {
      params: { plan, counted: pointer('u32'), starts: pointer('u32'), ends: pointer('u32'), look: looks },
      using: numbers,
    },
    (g, { plan: { ids, first, routes, scatter, weights, kept }, counted, starts, ends, look }, u) => {
      const begin = (g.blockIdx.x * u.WARPS + g.warpId) * (look.steps * 32);
      for (let at = begin; at < g.min(begin + look.steps * 32, look.routes); at += 32) {
        const mine = at + g.laneId < look.routes;
        let route = at + g.laneId;
        if (u.REACHED) {
          if (mine) route += (route / look.ofSource) * look.gap;
        }
        let id = g.i32(-1);
        if (mine) id = g.load(ids.at(route));
        if (u.KEEPS) {
          if (mine) g.store(kept[0]!.at(route), g.load(weights[0]!.at(route)));
        }
        const expert = g.u32(id) - first;
        const same = g.warp.match(expert);
        const earlier = g.popc(same & ((1 << g.laneId) - 1));
        let row = g.i32(-1);
        if (expert < u.EXPERTS) {
          const next = counted.at(expert * u.STRIDE + 1 + g.warpId);
          const place = g.load(starts.at(expert)) + g.load(next) + earlier;
          if (place < g.load(ends.at(expert))) row = g.i32(place);
        }
        g.warp.barrier();
        if (expert < u.EXPERTS && earlier === 0) {
          const next = counted.at(expert * u.STRIDE + 1 + g.warpId);
          g.store(next, g.load(next) + g.popc(same));
        }
        g.warp.barrier();
        if (mine) g.store(scatter.at(route), row);
        if (row >= 0) g.store(routes.at(g.u32(row)), g.i32(route));
      }
    },
  );
