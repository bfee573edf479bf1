import { expect, test } from 'vitest';
import { kernel, pointer } from '../../../src/lang/index.js';
import { quantise, type Rounding, rowFormats } from '../../../src/moe/layer/index.js';
import { download, launch, machineOf, upload } from '../../gpu/sim/harness.js';

/** Each lane its 16 values, its word, and the scale that it reads there. */
const each = ({ narrow, scaleOf }: Rounding) =>
  kernel(
    {
      name: 'narrow_each',
      params: { x: pointer('f32'), words: pointer('u32'), scales: pointer('f32') },
      using: { narrow, scaleOf },
    },
    (g, { x, words, scales }, u) => {
      const lane = g.blockIdx.x * 32 + g.laneId;
      const values = g.registers('f32', 16);
      for (const n of g.unroll(16)) values[n] = g.load(x.at(lane * 16 + n));
      const word = u.narrow({ values });
      g.store(words.at(lane), word);
      g.store(scales.at(lane), u.scaleOf({ word: g.warp.shuffle(word, g.laneId - (g.laneId % 8)) }));
      for (const n of g.unroll(16)) g.store(x.at(lane * 16 + n), values[n]!);
    },
  );

/** Bits of the largest magnitudes of blocks; neighbours differ much, and several are a warp's. */
const largest = [
  ...[0, 0x7f7fffff, 1, 0x7f800000, 0x3f800000, 0x7f800001, 0x00800000, 0x7fc00001],
  ...[0x3fdfffff, 0x43e00000, 0x3fe00001, 0x43dfffff, 0x3fe00000, 0x43e00001, 0x3fe00002, 0x447fffff],
  ...[0x04000000, 0x04800000, 0x04e00001, 0x04600001, 0x04e00000, 0x05000000, 0x04dfffff, 0x7f000000],
];
const elements = largest.length * 128;

test.each([
  { name: 'e4m3', size: 128 },
  { name: 'mxfp8', size: 32 },
] as const)(
  '$name: a block is divided by the scale of its largest magnitude, wherever that stands',
  async ({ name, size }) => {
    const bits = new Uint32Array(elements);
    // Everywhere a quarter of it, or nothing; once, in another lane and place of each block, it itself, negative.
    const mostOf = (block: number) => largest[(block + Math.floor(block / largest.length)) % largest.length]!;
    for (let block = 0; block < elements / size; block++) {
      const most = mostOf(block);
      const quarter = most >= 0x01000000 && most < 0x7f800000 ? most - 0x01000000 : 0;
      bits.fill(quarter, block * size, (block + 1) * size);
      bits[block * size + ((block * 21 + 5) % size)] = most + 0x80000000;
    }
    const { ranks } = machineOf({ ranks: 1 });
    const x = upload(ranks[0]!, bits);
    const words = upload(ranks[0]!, new Uint32Array(elements / 16));
    const scales = upload(ranks[0]!, new Float32Array(elements / 16));
    const { rounding } = rowFormats[name];
    await launch(ranks[0]!, each(rounding).ir(), { grid: elements / 512, block: 32 }, { x, words, scales });
    const found = new Float32Array(await download(ranks[0]!, scales));
    const divided = new Float32Array(await download(ranks[0]!, x));
    expect(new Uint32Array(await download(ranks[0]!, words))).not.toContain(0xffffffff);
    const given = new Float32Array(bits.buffer);
    for (let block = 0; block < elements / size; block++) {
      const range = [block * size, (block + 1) * size] as const;
      const ofLanes = found.subarray(range[0] / 16, range[1] / 16);
      const scale = quantise(given.slice(...range), size).scales[0]!;
      if (Number.isNaN(scale)) {
        expect(divided.subarray(...range).every((value) => Number.isNaN(value * ofLanes[0]!))).toBe(true);
      } else {
        expect([...ofLanes], mostOf(block).toString(16)).toEqual(Array(size / 16).fill(scale));
        expect(divided.subarray(...range)).toEqual(given.slice(...range).map((value) => value / scale));
      }
    }
  },
);
