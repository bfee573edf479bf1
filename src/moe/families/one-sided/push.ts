/**
 * A combine that pushes: each rank writes its experts' rows into the `returned` sections of their sources, and each
 * source reads them there. Stores cross NVLink faster than loads, and there is no rendezvous at all: a row says by itself
 * that it has come (arrival.ts).
 *
 * As one launch, pushing runs a few pieces ahead of adding up, so that a block never waits for what it could still send.
 * Split, the send only pushes and the receive only adds up.
 */
import { device, kernel, list, pointer, record } from '../../../lang/index.js';
import { formatOf, sourceWeighs } from '../../layer/index.js';
import { combineParams, routeParams } from '../common/params.js';
import { broughtBy, endOf } from './brought.js';
import { pushRoutes, sumRoutes } from './by-route.js';
import { countRound, release } from './flags.js';
import { gatherPushed } from './gather.js';
import type { OneSided } from './kit.js';
import { pushRow, pushSum } from './push-row.js';
import { pushScaled, sumScaled } from './scaled.js';
import { sumPiece } from './sum-piece.js';
import { receiveSums } from './sums.js';
import { type OneSidedShape, sumsRoutes } from './window.js';

/** The part of it that a launch does. */
export type Half = 'both' | 'send' | 'recv';

const names = {
  both: 'one_sided_combine',
  send: 'one_sided_combine_send',
  recv: 'one_sided_combine_recv',
} as const;

/** The words in which launches count their rounds. */
const counters = { both: 'combines', send: 'combines', recv: 'combineRecvs' } as const;

function paramsOf({ shape, window }: OneSided, half: Half) {
  const byRoute = sourceWeighs(shape);
  return {
    ...combineParams(window, shape),
    ...routeParams(shape, half !== 'recv' && (sumsRoutes(shape) || byRoute), !byRoute),
    /** [tokens][K]; where this rank weighs. */
    topkWeights: list(pointer('f32'), byRoute && half !== 'send' ? 1 : 0),
  };
}

export function pushKernel(o: OneSided, half: Half) {
  return kernel(
    { name: names[half], maxThreads: mostThreads(o.shape), params: paramsOf(o, half), using: using(o, half) },
    (g, { win, topkIds, topkWeights, out, tokens, limit, made, madeRows, scatter, routeWeights }, u) => {
      const mine = win.at(g.rank);
      const routes = { made, madeRows, scatter, routeWeights };
      const epoch = u.countRound({ count: mine[u.COUNTER].at(g.blockIdx.x) });
      const mask = u.maskIn({ masked: mine.masked });
      // The kernel reads the experts' results from here on. A receive begins when its send has passed this, so it need not wait here
      // itself, and may add up while that still sends; unless it reads rows or weights that a launch before it may have made.
      if (u.WAITS) g.awaitPrevious();
      g.releaseNext();
      if (u.thisRankIsOut({ mask, rank: g.rank, failure: mine.failure, epoch })) {
        if (!u.WAITS) g.awaitPrevious();
        return;
      }
      const patience = g.registers('u32', 1, u.patienceOf({ failure: mine.failure, limit }));
      // The experts of a rank that has given up lack rows: nobody may take for the round's what they made of the others.
      const sends = patience[0]! > 0;
      // One block more than there is work for: it says that this rank's slots may be written again, and ends when everybody has
      // said so. The next dispatch begins behind that and stores at once.
      if (g.blockIdx.x === u.BLOCKS) {
        if (u.SENDS) u.releaseSlots({ win, mask, epoch });
        if (u.SUMS) u.awaitSlots({ mine, mask, epoch, limit: patience[0]! });
        // The end of a launch stands for that of all before it, this rank's own send too, which may still have rows for others.
        if (!u.WAITS) g.awaitPrevious();
        return;
      }

      // Pieces of rows, as in dispatch: block b of the expert's rank pushes what b of the source's adds up.
      const pieces = u.TURNS * u.PARTS;
      const stride = u.BLOCKS * u.TEAMS;
      const lag = u.AHEAD * stride;
      const first = u.team.index() * u.BLOCKS + g.blockIdx.x;
      // Lane r has what rank r brought. It is looked at behind the first piece, so that nothing waits for it.
      const brought = u.broughtBy({ mine, mask, epoch });
      let end = g.u32(pieces);
      for (let step = first; step < end + lag; step += stride) {
        const piece = step - lag;
        const token = (piece / u.PARTS) * u.REPLICAS + (g.rank % u.REPLICAS);
        // Lane k holds route k of the token to add up, on its way while another is pushed.
        let id = g.i32(-1);
        if (u.SUMS) {
          if (step >= lag && token < tokens && g.laneId < u.K) {
            const route = topkIds.at(token * u.K + g.laneId);
            // A receive is not behind its `awaitPrevious`, so L1 might answer with what dispatch noted in an earlier round.
            if (u.NOTED) id = u.living({ mask, id: g.load(route, { order: 'relaxed', scope: 'gpu' }) });
            else id = u.living({ mask, id: g.load(route) });
          }
        }
        if (u.SENDS) {
          if (step < end && sends) u.pushPiece({ win, mask, routes, piece: step, epoch });
        }
        if (u.SUMS) {
          if (step >= lag && token < tokens) {
            // Which lane waits for which rank differs from token to token; none waits again once one has given up.
            if (u.ROUNDED) {
              if (g.warp.any(patience[0] === 0)) patience[0] = g.u32(0);
            }
            if (u.ROUTES)
              u.sumRoutes({ win, out, topkWeights, id, token, part: piece % u.PARTS, epoch, patience });
            else u.sumPiece({ win, out, id, token, part: piece % u.PARTS, epoch, patience });
          }
        }
        end = u.endOf({ end, next: step + stride, brought, tokens });
      }
      // The same team of another rank has handed on above what this team takes here, so there is no deadlock.
      if (u.SHARES) {
        for (let piece = first; piece < pieces; piece += stride)
          u.receiveSums({ win, out, turn: piece / u.PARTS, tokens, part: piece % u.PARTS, epoch, patience });
      }
      if (u.COUNTS) u.zeroCounts({ mine });
    },
  );
}

/**
 * A kernel that adds up routes takes so many registers that one block would fill a multiprocessor. Of few routes they can be fewer, and
 * two blocks keep more loads under way; but rows of f32 that come by route do not fit then.
 */
function mostThreads(shape: OneSidedShape): number {
  const { combine, output, topK } = shape;
  const adds = sumsRoutes(shape) || (sourceWeighs(shape) && output.dtype !== 'f32');
  return adds && topK <= 8 ? Math.min(1024, 2 * combine.threads) : combine.threads;
}

function using(o: OneSided, half: Half) {
  const { output, combine, counts } = o.shape;
  const { rounding } = formatOf(output);
  const [sends, sums] = [half !== 'recv', half !== 'send'];
  return {
    ...{ ...o.u, ...o.phases.combine, ...release(o), countRound, COUNTER: counters[half] },
    ...{ SENDS: sends, SUMS: sums, NOTED: o.u.PLACED && !sends },
    WAITS: sends || output.adds === true || sourceWeighs(o.shape),
    ...{ AHEAD: half === 'both' ? combine.ahead : 0, ROUNDED: rounding !== null },
    ...{ COUNTS: counts && sums, SHARES: o.u.SHARES && sums },
    ...{ pushPiece: pushPiece(o), receiveSums: receiveSums(o) },
    ...{ broughtBy: broughtBy(o, sends), endOf: endOf(o) },
    sumPiece: rounding === null ? sumPiece(o, gatherPushed(o)) : sumScaled(o, rounding),
    sumRoutes: sumRoutes(o),
  };
}

/** Pushes one piece (a part of a token's row) to all ranks that sent the token here. */
export function pushPiece(o: OneSided) {
  const { shape, at, u } = o;
  const { rounding } = formatOf(shape.output);
  const sums = sumsRoutes(shape);
  const byRoute = sourceWeighs(shape);
  return device(
    {
      params: {
        ...{ win: at.win, mask: 'v16', piece: 'u32', epoch: 'u32' },
        routes: record(routeParams(shape, sums || byRoute, !byRoute)),
      },
      using: {
        ...{ ...u, ...o.phases.combine, OTHERS: u.RETURNS ? u.RANKS : u.RANKS - 1, SUMS: sums },
        pushRoutes: pushRoutes(o),
        ...{ pushSum: pushSum(o), pushRow: rounding === null ? pushRow(o) : pushScaled(o, rounding) },
      },
    },
    (g, { win, mask, routes, piece, epoch }, u) => {
      const mine = win.at(g.rank);
      const turn = piece / u.PARTS;
      // Ranks start with different peers, so that no window is everybody's first. One source after the other: several at
      // a time were slower (docs/results).
      for (let other = 1; other <= u.OTHERS; other += 1) {
        const source = (g.rank + other) % u.RANKS;
        const group = source / u.REPLICAS;
        const token = turn * u.REPLICAS + (source % u.REPLICAS);
        let present = g.u32(0);
        const out = u.isOut({ mask, rank: source });
        if (!out) present = g.load(mine.present.at(epoch % 2, group, token));
        if (present !== 0) {
          const to = win.at(source).returned.at(u.ROUTES ? 0 : g.rank, turn);
          const part = piece % u.PARTS;
          if (u.ROUTES) u.pushRoutes({ routes, present, slot: group * u.MAX_TOKENS + token, to, part });
          else if (u.SUMS) u.pushSum({ routes, slot: group * u.MAX_TOKENS + token, to, part });
          else u.pushRow({ from: mine.output.at(group, token).as('v16'), to, part });
        }
      }
    },
  );
}
