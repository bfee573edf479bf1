import { describe, expect, it } from 'vitest';
import { formatFinding } from '../../../src/gpu/sim/index.js';
import { section } from '../../../src/lang/index.js';
import {
  flagBarrierKernel,
  loadCeilingKernel,
  storeCeilingKernel,
} from '../../../src/verify/kernels/index.js';
import { download, launch, machineOf, type Rank, windowsOf } from '../../gpu/sim/harness.js';

/** A checked machine, and its findings at the end. */
function checkedOf(ranks: number, seed = '1') {
  const of = machineOf({ ranks, mode: 'checked', seed });
  return { ...of, findings: () => of.machine.findings.map(formatFinding) };
}

const done = (ranks: readonly Rank[]) => Promise.all(ranks.map(({ stream }) => stream.synchronize()));

// That it orders, and names who did not come, `heddle check ceilings` shows.
describe('the flag barrier', () => {
  it.each([1, 2, 5])('lets %i ranks meet again and again', async (count) => {
    const { ranks, findings } = checkedOf(count);
    const barrier = flagBarrierKernel(count);
    const { layout } = barrier.params.win;
    const windows = await windowsOf(ranks, layout.bytes);
    const module = barrier.ir();
    for (const rounds of [3, 0, 2]) {
      for (const rank of ranks)
        await launch(rank, module, {}, { win: windows[rank.rank]!, rounds, pause: 0, limit: 1_000_000 });
    }
    await done(ranks);
    for (const rank of ranks) {
      const address = windows[rank.rank]!.bases[rank.rank]!;
      const words = new Uint32Array(await download(rank, { address, bytes: layout.bytes }));
      const word = (name: 'rounds' | 'failed' | 'arrived') => section(layout, name).offset / 4;
      expect(words[word('rounds')]).toBe(5);
      expect(words[word('failed')]).toBe(0);
      const arrived = word('arrived');
      expect([...words.subarray(arrived, arrived + count)]).toEqual(new Array(count).fill(5));
    }
    expect(findings()).toEqual([]);
  });
});

describe('the transfers', () => {
  // Fewer, as many and more vectors than threads; runs that end inside a block.
  it.each([1, 63, 64, 200])('store %i vectors to every peer, and no further', async (vectors) => {
    const { ranks, findings } = checkedOf(3);
    const capacity = 256;
    const stores = storeCeilingKernel(3, capacity);
    const { layout } = stores.params.win;
    const windows = await windowsOf(ranks, layout.bytes);
    const module = stores.ir();
    for (const rank of ranks)
      await launch(rank, module, { grid: 3, block: 64 }, { win: windows[rank.rank]!, vectors });
    await done(ranks);
    // Reading what peers wrote needs an order that this kernel has not; the windows are looked at one by one after all.
    expect(findings()).toEqual([]);
    for (const rank of ranks) {
      const address = windows[rank.rank]!.bases[rank.rank]!;
      const words = new Uint32Array(await download(rank, { address, bytes: layout.bytes }));
      for (let source = 0; source < 3; source++) {
        for (let i = 0; i < capacity; i++) {
          const at = 4 * (source * capacity + i);
          const wanted = source !== rank.rank && i < vectors ? [i, source + i] : [0, 0];
          expect([words[at], words[at + 2]], `source ${source}, vector ${i}`).toEqual(wanted);
        }
      }
    }
  });

  it('load every vector of every peer', async () => {
    const { ranks, findings } = checkedOf(3);
    const loads = loadCeilingKernel(3, 100);
    const windows = await windowsOf(ranks, loads.params.win.layout.bytes);
    const module = loads.ir();
    const [rank] = ranks as [Rank];
    // Peer p holds the words 2^p in the lane that is looked at: what was seen is their exclusive or.
    for (const { rank: peer, stream } of ranks) {
      const words = new Uint32Array(100 * 4);
      for (let i = 0; i < 100; i++) words[4 * i] = 1 << (peer * 8 + (i % 8));
      stream.copyIn(windows[peer]!.bases[peer]!, new Uint8Array(words.buffer));
    }
    await done(ranks);
    const sink = rank.device.allocate(4 * 64, 'sink');
    await launch(rank, module, { grid: 1, block: 64 }, { win: windows[0]!, vectors: 100, sink });
    const seen = new Uint32Array(await download(rank, sink));
    const expected = Array.from({ length: 64 }, (_, thread) => {
      let word = 0;
      for (const peer of [1, 2]) for (let i = thread; i < 100; i += 64) word ^= 1 << (peer * 8 + (i % 8));
      return word >>> 0;
    });
    expect([...seen]).toEqual(expected);
    // The hosts ordered those copies, which the detector cannot see; the kernel itself adds no finding of its own.
    expect(findings().filter((text) => !text.includes('copy or fill'))).toEqual([]);
  });
});
