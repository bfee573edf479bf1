/**
 * The send of a combine: what this rank's experts made of each token goes home to its source. Messages are warps'; nobody
 * waits.
 */
import { kernel } from '../../../lang/index.js';
import { sharing } from '../../layer/index.js';
import type { Portable } from './kit.js';
import { sendHome } from './send-home.js';
import { returnedParts } from './window.js';

export function combineSendKernel(p: Portable) {
  const { shape } = p;
  const { parts } = returnedParts(shape);
  const { turns } = sharing(shape);
  return kernel(
    {
      name: 'portable_combine_send',
      maxThreads: shape.combine.threads,
      params: { win: p.at.win },
      using: {
        ...{ ...p.u, ...p.phases.combine, PIECES: turns * parts, PARTS: parts, sendHome: sendHome(p) },
      },
    },
    (g, { win }, u) => {
      g.awaitPrevious();
      const mine = win.at(g.rank);
      // Before the receive can begin, which may give up while this still sends: so all threads see the same.
      const lost = g.load(mine.failure.at(0), { order: 'relaxed', scope: 'gpu' }) !== 0;
      g.releaseNext();
      const epoch = g.load(mine.begun.at(0));
      // A rank that has given up lacks rows that its experts need: nobody may take what they make of it for the round's.
      // Nor does one that is left out send: its dispatch has recorded that.
      if (lost) return;
      const mask = u.maskIn({ masked: mine.masked });
      const first = g.warpId * g.gridDim.x + g.blockIdx.x;
      const warps = (g.blockDim.x / 32) * g.gridDim.x;
      for (let piece = first; piece < u.PIECES; piece += warps) {
        const turn = piece / u.PARTS;
        const part = piece % u.PARTS;
        // A lane looks after each source.
        for (let base = g.u32(0); base < u.RANKS; base += 32) {
          const own = base + g.laneId;
          let here = false;
          if (own < u.RANKS && !(u.STAYS && own === g.rank)) {
            // Nothing goes to a rank that is left out.
            const out = u.isOut({ mask, rank: own });
            if (!out) {
              const token = turn * u.REPLICAS + (own % u.REPLICAS);
              const ids = g.registers('i32', u.K);
              for (const k of g.unroll(u.K)) ids[k] = g.load(mine.experts.at(own / u.REPLICAS, token, k));
              for (const k of g.unroll(u.K)) {
                if (ids[k]! >= 0) here = true;
              }
            }
          }
          const sources = g.warp.ballot(here);
          const some = g.min(u.RANKS - base, g.u32(32));
          for (let other = g.u32(0); other < some; other += 1) {
            // Ranks begin with different sources, so that no window is everybody's first.
            const lane = (other + g.rank + 1) % some;
            if (((sources >>> lane) & 1) === 1) u.sendHome({ win, source: base + lane, turn, part, epoch });
          }
          g.warp.barrier(); // each lane's signal is for all lanes' puts
          if (here) {
            const signal = win.at(own).home.at(g.rank, turn, part);
            u.settle({ mine, peer: own, signal, value: epoch, adds: false });
          }
        }
      }
    },
  );
}
