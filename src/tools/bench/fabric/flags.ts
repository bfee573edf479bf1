/**
 * The time that a proxy adds to the network: from a flag that a GPU raises to the one that the other GPU sees. This thread stands in for both GPUs
 * and looks at memory of the host, so what a GPU needs for that over its bus is not in the figure.
 */

import { HeddleError } from '../../../base/errors.js';
import { allocate } from '../../../base/native/index.js';
import { NativeView } from '../../../gpu/index.js';
import { beforeFirst, hybridProxyModule, type ProxyData } from '../../../moe/families/index.js';
import { type FabricOptions, LocalCircle, proxyInThread } from '../../../net/world/index.js';
import { quantile } from '../statistics.js';

/** One token's message, behind words for the flags and the count of rows: a header of four words, then one row. */
const [ready, came, counts, idle, out, into, header] = [0, 4, 8, 12, 16, 16_384, 16] as const;

/** The words of two nodes of a rank each, which have a message of dispatch, and none of combine. */
function dataOf(node: number, row: number): ProxyData {
  const dispatch = { ready, counts, came, out, in: into, room: 16_384, rows: header, row, most: 1 };
  return {
    ...{ nodes: 2, node, localRanks: 1, localRank: 0, lines: 1, share: 1, chunk: 1 },
    phases: [dispatch, { ...dispatch, ready: idle, counts: idle, came: idle }],
  };
}

/**
 * Microseconds from flag to flag of a message of `bytes`, one way, the median of `count` round trips. A proxy that has ended says so only
 * when this thread listens again, so a round trip may take `mostMs`.
 */
export async function flagToFlag(
  fabric: FabricOptions,
  bytes: number,
  count: number,
  warmups: number,
  mostMs = 10_000,
): Promise<number> {
  const memories = [0, 1].map(() => allocate(2 * 16_384));
  const views = memories.map(({ buffer }) => new NativeView(new Uint8Array(buffer)));
  for (const view of views) {
    view.store(counts, 1);
    for (const word of [ready, came, idle]) view.store(word, beforeFirst);
  }
  const samples: number[] = [];
  const measure = (): void => {
    for (let n = 0; n < warmups + count; n++) {
      const begun = performance.now();
      for (const from of [0, 1]) {
        views[from]!.write(out, new Uint8Array(Uint32Array.of(n, 1, 1, 1).buffer));
        views[from]!.store(ready, n);
        while (views[1 - from]!.load(came) !== n) {
          if (performance.now() - begun > mostMs)
            throw new HeddleError('HEDDLE_PROXY', `no message came to rank ${1 - from} within ${mostMs} ms`);
        }
      }
      if (n >= warmups) samples.push((performance.now() - begun) * 500);
    }
  };
  await LocalCircle.run(2, async (circle) => {
    const { rank } = circle;
    const { address } = memories[rank]!;
    const raw = new Uint8Array(memories[rank]!.buffer);
    const memory = { address, bytes: raw.length, raw, host: views[rank]!, free: () => {} };
    const data = dataOf(rank, bytes - header);
    const proxy = await proxyInThread(fabric)({ ...hybridProxyModule, data, memory }, null).begin(circle);
    await circle.barrier('both are there');
    if (rank === 0) measure();
    await circle.barrier('all is measured');
    await proxy.stop();
  });
  for (const memory of memories) memory.free();
  return quantile(samples, 0.5);
}
