import { expect, test } from 'vitest';
import { kernel, pointer } from '../../../src/lang/index.js';
import { quantise } from '../../../src/moe/families/common/quantise.js';
import { quantise as quantised } from '../../../src/moe/layer/index.js';
import { download, launch, machineOf, upload } from '../../gpu/sim/harness.js';

/** Each lane its 16 values; scales are each lane's. */
const each = kernel(
  { name: 'quantise_each', params: { x: pointer('f32'), scales: pointer('u32') }, using: { quantise } },
  (g, { x, scales }, u) => {
    const lane = g.blockIdx.x * 32 + g.laneId;
    const values = g.registers('f32', 16);
    for (const n of g.unroll(16)) values[n] = g.load(x.at(lane * 16 + n));
    g.store(scales.at(lane), u.quantise({ values }));
    for (const n of g.unroll(16)) g.store(x.at(lane * 16 + n), values[n]!);
  },
);

/** Bits of the largest magnitudes of blocks of 128; neighbours differ much, and four are a warp's. */
const largest = [
  ...[0, 0x7f7fffff, 1, 0x7f800000, 0x3f800000, 0x7f800001, 0x00800000, 0x7fc00001],
  ...[0x3fdfffff, 0x43e00000, 0x3fe00001, 0x43dfffff, 0x3fe00000, 0x43e00001, 0x3fe00002, 0x447fffff],
  ...[0x04000000, 0x04800000, 0x04e00001, 0x04600001, 0x04e00000, 0x05000000, 0x04dfffff, 0x7f000000],
];

test('a block is divided by the scale of its largest magnitude, wherever that stands', async () => {
  const bits = new Uint32Array(largest.length * 128);
  // Everywhere a quarter of it, or nothing; once, in another lane and place of each block, it itself, negative.
  for (const [block, most] of largest.entries()) {
    const quarter = most >= 0x01000000 && most < 0x7f800000 ? most - 0x01000000 : 0;
    bits.fill(quarter, block * 128, (block + 1) * 128);
    bits[block * 128 + ((block * 21 + 5) % 128)] = most + 0x80000000;
  }
  const { ranks } = machineOf({ ranks: 1 });
  const x = upload(ranks[0]!, bits);
  const scales = upload(ranks[0]!, new Uint32Array(bits.length / 16));
  await launch(ranks[0]!, each.ir(), { grid: largest.length / 4, block: 32 }, { x, scales });
  const found = new Uint32Array(await download(ranks[0]!, scales));
  const divided = new Float32Array(await download(ranks[0]!, x));
  const given = new Float32Array(bits.buffer);
  for (const [block, most] of largest.entries()) {
    const range = [block * 128, (block + 1) * 128] as const;
    const { scales: expected } = quantised(given.slice(...range));
    const bitsOfScale = new Uint32Array(expected.buffer)[0]!;
    expect([...found.subarray(block * 8, (block + 1) * 8)], most.toString(16)).toEqual(
      Array(8).fill(bitsOfScale),
    );
    const scale = expected[0]!;
    if (Number.isNaN(scale)) continue;
    expect(divided.subarray(...range)).toEqual(given.slice(...range).map((value) => value / scale));
  }
});
