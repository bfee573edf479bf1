/** Rows rounded to fp8 by a launch, again and again in the same memory; and weights of MXFP4 widened to bf16. */
import { callSite } from '../../../gpu/index.js';
import { rowsToFp8 } from '../../../moe/experts/index.js';
import { emptyTensor, mxfp4ToBf16, readBits, tensorFrom } from '../../../moe/index.js';
import { fromE2m1, fromF32, mxfp4Block, quantise, scaleBlock, toF32 } from '../../../moe/layer/index.js';
import { compareBits, mergeComparisons, randomBytes, randomElements } from '../../testing/index.js';
import type { CheckConfiguration, CheckSubject } from '../subject.js';
import { ofOneRank } from './by-rank.js';

export const rows: CheckSubject = {
  name: 'rows',
  kernels: ['rows_to_fp8', 'mxfp4_to_bf16'],
  configurations: [
    configuration('rows, one', 1, 128),
    // More than all lanes of a launch, and a warp of which only some lanes have any.
    configuration('rows, several', 11, 384),
    // More blocks than a launch has threads.
    widening('rows, MXFP4', { matrices: 2, rows: 50, rowBlocks: 2, turns: 1 }),
    widening('rows, MXFP4 in turns', { matrices: 3, rows: 16, rowBlocks: 1, turns: 2 }),
  ],
};

interface Widening {
  readonly matrices: number;
  readonly rows: number;
  readonly rowBlocks: number;
  readonly turns: 1 | 2;
}

function widening(name: string, { matrices, rows, rowBlocks, turns }: Widening): CheckConfiguration {
  const units = matrices * rows * rowBlocks;
  const columns = rowBlocks * mxfp4Block;
  const blocks = randomBytes(units * 16, 1);
  const scales = randomBytes(units, 2).map((byte) => 64 + (byte % 128));
  return ofOneRank(name, async ({ device, rank }) => {
    const stream = device.createStream();
    const made = emptyTensor(device, 'bf16', [matrices * rows, columns]);
    const { kernel, blocks: grid, threads } = mxfp4ToBf16.sim;
    const { set, launch } = await callSite(device, kernel, {
      ...{ grid: grid + 1, block: threads, programmatic: false, rank },
    });
    set.blocks(tensorFrom(device, stream, blocks, 'u8').data);
    set.scales(tensorFrom(device, stream, scales, 'u8').data);
    set.to(made.data);
    set.units(units);
    set.rowBlocks(rowBlocks);
    set.rows(rows);
    set.turns(turns);
    for (let n = 0; n < 2; n++) launch(stream);
    const expected = fromF32('bf16', widened(blocks, scales, { matrices, rows, rowBlocks, turns }));
    return compareBits('weights', 'bf16', await readBits(made, stream), expected, columns);
  });
}

function widened(blocks: Uint8Array, scales: Uint8Array, { rows, rowBlocks, turns }: Widening): Float32Array {
  const columns = rowBlocks * mxfp4Block;
  const values = fromE2m1(blocks);
  const made = new Float32Array(values.length);
  for (let i = 0; i < made.length; i++) {
    const [row, within] = [Math.floor(i / columns), Math.floor(i / columns) % rows];
    const place = row - within + (within % turns) * (rows / turns) + Math.floor(within / turns);
    made[place * columns + (i % columns)] = values[i]! * 2 ** (scales[Math.floor(i / mxfp4Block)]! - 127);
  }
  return made;
}

function configuration(name: string, tokens: number, hidden: number): CheckConfiguration {
  const inputs = [1, 2, 3].map((seed) => randomElements('bf16', tokens * hidden, seed, 6));
  return ofOneRank(name, async ({ device, rank }) => {
    const stream = device.createStream();
    const placed = inputs.map((bits) => tensorFrom(device, stream, bits, 'bf16', [tokens, hidden]));
    const narrowed = emptyTensor(device, 'e4m3', [tokens, hidden]);
    const scales = emptyTensor(device, 'f32', [tokens, hidden / scaleBlock]);
    // Blocks and warps are not both 2: a kernel that adds these numbers where it must multiply would not be noticed.
    const { kernel, blocks, threads } = rowsToFp8.sim;
    const narrow = await callSite(device, kernel, {
      ...{ grid: blocks + 1, block: threads, programmatic: true, rank },
    });
    narrow.set.to(narrowed.data);
    narrow.set.scales(scales.data);
    narrow.set.units((tokens * hidden) / 16);
    for (const x of placed) {
      narrow.set.from(x.data);
      narrow.launch(stream);
    }
    const expected = quantise(toF32('bf16', inputs.at(-1)!));
    return mergeComparisons([
      compareBits('rows', 'e4m3', await readBits(narrowed, stream), expected.e4m3, hidden),
      compareBits('scales', 'f32', await readBits(scales, stream), expected.scales),
    ]);
  });
}
