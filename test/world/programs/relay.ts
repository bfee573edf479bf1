/** A proxy's program: carries what its rank's kernel sends to the next rank, and tells the kernel what has come. */
import type { ProxyMaker } from '../../../src/world/index.js';

/** Where things are in the mapped memory: epochs of what was sent and of what came, who is lost; then 16 bytes for each. */
export const words = { sent: 0, came: 4, lost: 8, outgoing: 16, incoming: 32, bytes: 48 } as const;

export interface RelayData {
  /** The epoch at which it throws, and the one at which its thread ends without a word. */
  readonly throwsAt?: number;
  readonly endsAt?: number;
}

export const relay: ProxyMaker<RelayData> = ({ rank, ranks, engine, fabric, memories, data }) => {
  const [{ host, region, remotes }] = memories as [(typeof memories)[0]];
  const next = (rank + 1) % ranks;
  const previous = fabric.peers[(rank + ranks - 1) % ranks]!;
  const arrived = engine.immediate(1);
  const write = {
    source: region,
    sourceOffset: words.outgoing,
    target: remotes[next]!,
    targetOffset: words.incoming,
    bytes: 16,
    immediate: 1,
    counter: engine.counter(),
  };
  let sent = 0;
  let came = 0;
  return {
    step() {
      let moved = false;
      if (host.load(words.sent) !== sent) {
        sent++;
        if (sent === data.throwsAt) throw new Error('torn');
        if (sent === data.endsAt) process.exit(3);
        engine.write(write);
        moved = true;
      }
      if (arrived.take(1)) {
        host.store(words.came, ++came);
        moved = true;
      }
      if (previous.lost && host.load(words.lost) === 0) {
        host.store(words.lost, 1);
        moved = true;
      }
      return moved;
    },
  };
};
