/**
 * One block of a receive watches the wire, and passes on in the GPU's own memory what it sees there, where the others wait:
 * every look at host memory takes a microsecond of the bus, and many blocks that look keep each other waiting.
 *
 * Its warps take the messages in turn, so that one that is late holds up few others.
 */
import { device, pointer, registers } from '../../../lang/index.js';
import { sharing } from '../../layer/index.js';
import { numbers } from '../common/params.js';
import { type Operation, patienceOf, recordFailure } from '../common/waits.js';
import type { Hybrid } from './kit.js';
import { header } from './messages.js';
import type { HybridShape } from './shape.js';

/**
 * The watcher waits for a message; false in vain, and then it does not wait again. It notes how long it waits for chunk 0, which comes in
 * every round, and of each rank to one thread.
 */
const awaitMessage = ({ shape, at: { mine }, phases }: Hybrid, operation: Operation) =>
  device(
    {
      params: {
        ...{ mine, came: pointer('u32'), ...numbers('peer', 'chunk', 'epoch') },
        patience: registers('u32', 1),
      },
      returns: 'bool',
      using: {
        ...phases[operation],
        failed: recordFailure(operation, watchersAlone(shape, operation) ? 'cta' : 'gpu'),
      },
    },
    (g, { mine, came, peer, chunk, epoch, patience }, { failed, now, noteWait }) => {
      const since = now();
      const here = g.awaitEpoch(came, epoch, { order: 'acquire', scope: 'sys', limit: patience[0]! });
      if (!here) {
        if (patience[0]! > 0) failed({ failure: mine.failure, peer, epoch });
        patience[0] = g.u32(0);
      }
      if (chunk === 0) noteWait({ mine, peer, epoch, since });
      return here;
    },
  );

/** In a combine nobody but the watching block gives up, unless others wait for the sums of their group. */
const watchersAlone = (shape: HybridShape, operation: Operation): boolean =>
  operation === 'combine' && sharing(shape).replicas === 1;

/**
 * The others wait for its word, and blame nobody: it comes in any case, also when the watcher has given up. False then, and
 * behind any failure.
 */
export const awaitLanded = device(
  {
    params: { landed: pointer('u32'), epoch: 'u32', failure: pointer('u32') },
    returns: 'bool',
    // Longer than any watcher waits.
    using: { LONGEST: 2 ** 32 - 1, patienceOf },
  },
  (g, { landed, epoch, failure }, { LONGEST, patienceOf }) => {
    const limit = patienceOf({ failure, limit: LONGEST });
    const told = g.awaitEpoch(landed, epoch, { order: 'acquire', scope: 'gpu', limit });
    const well = patienceOf({ failure, limit: 1 }) !== 0;
    return told && well;
  },
);

const params = ({ at: { mine, wire } }: Hybrid) =>
  ({ mine, wire, mask: 'v16', node: 'u32', epoch: 'u32', limit: 'u32' }) as const;

/** The messages of a dispatch, in order of chunks: those of chunk 0 say how many there are. */
export function watchDispatch(h: Hybrid) {
  return device(
    {
      params: params(h),
      using: { ...h.u, TOKENS: header.tokens, awaitLanded, awaitMessage: awaitMessage(h, 'dispatch') },
    },
    (g, { mine, wire, mask, node, epoch, limit }, u) => {
      if (g.laneId !== 0) return;
      const { failure } = mine;
      const patience = g.registers('u32', 1, u.patienceOf({ failure, limit }));
      const lines = u.carriedHere({ mask, node }) * u.HOPS;
      for (let message = g.warpId; message < lines * u.CHUNKS; message += g.blockDim.x / 32) {
        const line = message % lines;
        const chunk = message / lines;
        const peer = u.senderOf({ node, line });
        // Behind a failure nobody knows how many there are, and all that others may wait for is told.
        let comes = !u.isOut({ mask, rank: peer });
        if (comes && chunk > 0) {
          if (u.awaitLanded({ landed: mine.dispatchLanded.at(line, 0), epoch, failure }))
            comes = chunk * u.CHUNK < g.load(mine.tokens.at(line));
          else patience[0] = g.u32(0);
        }
        if (comes) {
          const came = wire.at(0).dispatchCame.at(line, chunk);
          const here = u.awaitMessage({ mine, came, peer, chunk, epoch, patience });
          if (here && chunk === 0) {
            const words = wire.at(0).dispatchIn.at(line, 0, 0).as('u32');
            g.store(mine.tokens.at(line), g.load(words.at(u.TOKENS)));
          }
          g.store(mine.dispatchLanded.at(line, chunk), epoch, { order: 'release', scope: 'gpu' });
        }
      }
    },
  );
}

/** The messages of a combine: as many from each node as this rank's tokens have chunks. */
export function watchCombine(h: Hybrid) {
  return device(
    { params: { ...params(h), share: 'u32' }, using: { ...h.u, awaitMessage: awaitMessage(h, 'combine') } },
    (g, { mine, wire, mask, node, epoch, limit, share }, u) => {
      if (g.laneId !== 0) return;
      const { failure } = mine;
      const patience = g.registers('u32', 1, u.patienceOf({ failure, limit }));
      const chunks = g.max((share + u.CHUNK - 1) / u.CHUNK, g.u32(1));
      for (let message = g.warpId; message < u.HOPS * chunks; message += g.blockDim.x / 32) {
        const hop = message % u.HOPS;
        const chunk = message / u.HOPS;
        const there = (node + 1 + hop) % u.NODES;
        // The rank that carries this one's tokens. From a node in which nobody is left nothing comes, and nobody waits for it.
        let carrier = g.rank;
        let some = true;
        if (u.MASKS) {
          const left = ~u.outOfNode({ mask, node: there }) & u.ALL;
          const from = (left >>> g.rank) << g.rank;
          carrier = g.ffs(from === 0 ? left : from) - 1;
          some = left !== 0;
        }
        if (some) {
          const peer = there * u.LOCAL + carrier;
          const came = wire.at(0).combineCame.at(hop, chunk);
          u.awaitMessage({ mine, came, peer, chunk, epoch, patience });
          g.store(mine.combineLanded.at(hop, chunk), epoch, { order: 'release', scope: 'gpu' });
        }
      }
    },
  );
}
