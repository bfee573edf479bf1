/**
 * The send of a combine: for each token that came over this rank's rail the rows of the node's ranks are added up, and one
 * row goes home. It waits for the ranks of its own node only: for their word that the experts are done.
 */
import { device, kernel, peers, windowOf } from '../../lang/index.js';
import { tokenOf } from '../common/groups.js';
import { listOwners } from '../common/owners.js';
import { patienceOf } from '../common/waits.js';
import { copyHome } from './copy-home.js';
import { meet } from './meet.js';
import { combineMessage } from './messages.js';
import {
  chunksOf,
  type HybridShape,
  hopsOf,
  localOwner,
  mostOwners,
  railRank,
  sourceOf,
  sumsAtSource,
} from './shape.js';
import { sumHome } from './sum-home.js';
import type { HybridWindow } from './window.js';
import type { HybridWire } from './wire.js';

export function combineSendKernel(shape: HybridShape, window: HybridWindow, wire: HybridWire) {
  return kernel(
    {
      name: 'hybrid_combine_send',
      maxThreads: shape.combine.threads,
      params: { win: peers(window), wire: peers(wire), node: 'u32', limit: 'u32' },
      using: {
        HOPS: hopsOf(shape),
        CHUNKS: chunksOf(shape),
        CHUNK: shape.dispatch.chunk,
        meet: meet(shape, window, 'combine'),
        packSums: packSums(shape, window, wire),
        patienceOf,
        raise: raise(shape, window, wire),
      },
    },
    (g, { win, wire, node, limit }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const mine = win.at(g.rank);
      const epoch = g.load(mine.begun.at(0));
      const patience = u.patienceOf({ failure: mine.failure, limit });
      // The experts of every rank are behind this launch on its stream.
      u.meet({ win, node, block: g.blockIdx.x, epoch, limit: patience });
      // Who has given up sends nothing: it would be sums of rows that nobody made.
      if (u.patienceOf({ failure: mine.failure, limit: 1 }) === 0) return;
      for (let piece = g.blockIdx.x; piece < u.HOPS * u.CHUNKS; piece += g.gridDim.x) {
        const hop = piece % u.HOPS;
        const chunk = piece / u.HOPS;
        const tokens = g.load(mine.tokens.at(hop));
        if (chunk === 0 || chunk * u.CHUNK < tokens) {
          u.packSums({ win, wire, node, hop, chunk });
          u.raise({ mine, wire, hop, chunk, tokens, epoch });
        }
      }
    },
  );
}

/** The sums, or rows, of a chunk's tokens, in their order; warps take the parts of rows in turn. */
function packSums(shape: HybridShape, window: HybridWindow, wire: HybridWire) {
  const { rows, row } = combineMessage(shape);
  return device(
    {
      name: 'pack_sums',
      params: { win: peers(window), wire: peers(wire), node: 'u32', hop: 'u32', chunk: 'u32' },
      using: {
        K: shape.topK,
        CHUNK: shape.dispatch.chunk,
        PARTS: shape.combine.parts,
        OWNERS: mostOwners(shape),
        LOCAL: shape.localRanks,
        ROWS: rows,
        ROW: row,
        listOwners,
        localOwner: localOwner(shape),
        railRank: railRank(shape),
        sourceOf: sourceOf(shape),
        AT_SOURCE: sumsAtSource(shape),
        sendHome: sumsAtSource(shape) ? copyHome(shape, window) : sumHome(shape, window),
        tokenOf: tokenOf(shape),
      },
    },
    (g, { win, wire, node, hop, chunk }, u) => {
      const mine = win.at(g.rank);
      const source = u.sourceOf({ rank: u.railRank({ node, hop }) });
      const mask = g.load(mine.came.at(hop, chunk));
      for (let piece = g.warpId; piece < g.popc(mask) * u.PARTS; piece += g.blockDim.x / 32) {
        const row = piece / u.PARTS;
        let left = mask;
        for (let before = g.u32(0); before < row; before += 1) left &= left - 1;
        const turn = chunk * u.CHUNK + g.ffs(left) - 1;
        let id = g.i32(-1);
        if (g.laneId < u.K) id = g.load(mine.routes.at(hop, turn, g.laneId));
        const owners = g.registers('u32', u.OWNERS);
        const owner = u.localOwner({ expert: id, node });
        const count = u.listOwners({ owner, ranks: u.LOCAL, owners });
        let first = row;
        if (u.AT_SOURCE) first = g.load(mine.owed.at(hop, chunk * u.CHUNK + row));
        const to = wire.at(0).combineOut.at(hop, chunk, u.ROWS + first * u.ROW);
        const token = u.tokenOf({ turn }); // the rail's rank is the same member of its group
        u.sendHome({ win, to, source, token, part: piece % u.PARTS, owners, count });
      }
    },
  );
}

/** Tells the proxy that a message may leave. */
function raise(shape: HybridShape, window: HybridWindow, wire: HybridWire) {
  return device(
    {
      name: 'raise',
      params: {
        mine: windowOf(window),
        wire: peers(wire),
        hop: 'u32',
        chunk: 'u32',
        tokens: 'u32',
        epoch: 'u32',
      },
      using: { AT_SOURCE: sumsAtSource(shape) },
    },
    (g, { mine, wire, hop, chunk, tokens, epoch }, { AT_SOURCE }) => {
      g.barrier(); // the release below is for the stores of all threads
      if (g.threadIdx.x === 0) {
        const mask = g.load(mine.came.at(hop, chunk));
        let rows = g.popc(mask);
        if (AT_SOURCE) rows = g.load(mine.owedRows.at(hop, chunk));
        g.store(wire.at(0).combineOut.at(hop, chunk, 0), g.pack('u32', [epoch, tokens, mask, rows]));
        const ready = wire.at(0).combineReady.at(hop, chunk);
        g.store(ready, epoch, { order: 'release', scope: 'sys' });
      }
    },
  );
}
