/**
 * The send of a dispatch: routes to every peer, a token's rows once to each rank that owns one of its experts. Messages are
 * warps' (messages.ts counts them); nobody waits.
 */
import { kernel } from '../../lang/index.js';
import { sharing } from '../../layer/index.js';
import { dispatchParams } from '../common/params.js';
import { chunksOf } from './messages.js';
import { sendRows } from './send-rows.js';
import { tellRoutes } from './tell-routes.js';
import type { Transport } from './transport.js';
import type { PortableShape, PortableWindow } from './window.js';

export function dispatchSendKernel(shape: PortableShape, window: PortableWindow, transport: Transport) {
  return kernel(
    {
      name: 'portable_dispatch_send',
      maxThreads: shape.dispatch.threads,
      params: dispatchParams(window, shape),
      using: {
        RANKS: shape.ranks,
        CHUNKS: chunksOf(shape),
        REPLICAS: sharing(shape).replicas,
        K: shape.topK,
        PARTS: shape.dispatch.parts,
        tellRoutes: tellRoutes(shape, window, transport),
        sendRows: sendRows(shape, window, transport),
      },
    },
    (g, { win, topkIds, topkWeights, rows, tokens }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const mine = win.at(g.rank);
      if (g.blockIdx.x === 0 && g.threadIdx.x === 0)
        g.store(mine.begun.at(0), g.load(mine.finished.at(0)) + 1);
      // Who has given up sends nothing: peers may still read what the round before brought, and nobody vouches that they have.
      if (g.load(mine.failure.at(0)) !== 0) return;

      // Neighbouring pieces go to different multiprocessors; routes first, which say what comes.
      const routes = u.RANKS * u.CHUNKS;
      const first = g.warpId * g.gridDim.x + g.blockIdx.x;
      const warps = (g.blockDim.x / 32) * g.gridDim.x;
      const member = g.rank % u.REPLICAS;
      const turns = (tokens + (u.REPLICAS - 1 - member)) / u.REPLICAS;
      for (let piece = first; piece < routes + turns * u.K * u.PARTS; piece += warps) {
        if (piece < routes) {
          // Ranks begin with different peers, so that no window is everybody's first.
          const peer = (piece + g.rank) % u.RANKS;
          u.tellRoutes({ win, topkIds, topkWeights, tokens, peer, chunk: piece / u.RANKS });
        } else {
          const route = (piece - routes) / u.PARTS;
          const part = (piece - routes) % u.PARTS;
          const token = (route / u.K) * u.REPLICAS + member;
          u.sendRows({ win, topkIds, rows, token, k: route % u.K, part });
        }
      }
    },
  );
}
