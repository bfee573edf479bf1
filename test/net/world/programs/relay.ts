/** A proxy's program: carries what its rank's kernel sends to the next rank, and tells the kernel what has come. */
import type { ProxyMaker } from '../../../../src/gpu/index.js';

/** Where things are in the mapped memory: epochs of what was sent and of what came; then 16 bytes for each. */
export const words = { sent: 0, came: 4, outgoing: 16, incoming: 32, bytes: 48 } as const;

export interface RelayData {
  /** The epoch at which it throws, and the one at which its thread ends without a word. */
  readonly throwsAt?: number;
  readonly endsAt?: number;
}

export const relay: ProxyMaker<RelayData> = ({ rank, ranks, network, memory, data }) => {
  const write = { peer: (rank + 1) % ranks, from: words.outgoing, to: words.incoming, bytes: 16, tag: 1 };
  let sent = 0;
  let came = 0;
  return {
    step() {
      let moved = false;
      if (memory.load(words.sent) !== sent && network.write(write)) {
        sent++;
        if (sent === data.throwsAt) throw new Error('torn');
        if (sent === data.endsAt) process.exit(3);
        moved = true;
      }
      if (network.arrived() === 1) {
        memory.store(words.came, ++came);
        moved = true;
      }
      return moved;
    },
  };
};
