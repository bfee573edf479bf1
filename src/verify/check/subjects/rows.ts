/** The small kernels of a layer: rows added to rows, then narrowed to fp8, again and again in the same memory. */
import { callSite } from '../../../gpu/index.js';
import { addRows } from '../../../moe/experts/index.js';
import { emptyTensor, readBits, rowsToFp8, tensorFrom } from '../../../moe/index.js';
import { type Bits, fromF32, quantise, scaleBlock, toF32 } from '../../../moe/layer/index.js';
import { compareBits, mergeComparisons, randomElements } from '../../testing/index.js';
import type { CheckConfiguration, CheckSubject } from '../subject.js';
import { ofOneRank } from './by-rank.js';

const times = 3;

export const rows: CheckSubject = {
  name: 'rows',
  kernels: ['add_rows', 'rows_to_fp8'],
  configurations: [
    configuration('rows, one', 1, 128),
    // More than all lanes of a launch, and a warp of which only some lanes have any.
    configuration('rows, several', 11, 384),
  ],
};

function configuration(name: string, tokens: number, hidden: number): CheckConfiguration {
  const start = randomElements('bf16', tokens * hidden, 1, 6);
  const step = randomElements('bf16', tokens * hidden, 2, 6);
  return ofOneRank(name, async ({ device, rank }) => {
    const stream = device.createStream();
    const place = (bits: Bits) => tensorFrom(device, stream, bits, 'bf16', [tokens, hidden]);
    const [x, more] = [place(start), place(step)];
    const narrowed = emptyTensor(device, 'e4m3', [tokens, hidden]);
    const scales = emptyTensor(device, 'f32', [tokens, hidden / scaleBlock]);
    const launch = { programmatic: true, rank };
    const add = await callSite(device, addRows.sim.kernel, {
      ...{ grid: addRows.sim.blocks, block: addRows.sim.threads, ...launch },
    });
    const narrow = await callSite(device, rowsToFp8.sim.kernel, {
      // Blocks and warps are not both 2: a kernel that adds these numbers where it must multiply would not be noticed.
      ...{ grid: rowsToFp8.sim.blocks + 1, block: rowsToFp8.sim.threads, ...launch },
    });
    add.set.to(x.data);
    add.set.from(more.data);
    add.set.vectors((tokens * hidden) / 8);
    narrow.set.from(x.data);
    narrow.set.to(narrowed.data);
    narrow.set.scales(scales.data);
    narrow.set.units((tokens * hidden) / 16);
    for (let n = 0; n < times; n++) {
      add.launch(stream);
      narrow.launch(stream);
    }
    const expected = quantise(sum(start, step));
    return mergeComparisons([
      compareBits('rows', 'e4m3', await readBits(narrowed, stream), expected.e4m3, hidden),
      compareBits('scales', 'f32', await readBits(scales, stream), expected.scales),
    ]);
  });
}

/** The result in the end, rounded after each step. */
function sum(start: Bits, step: Bits): Float32Array {
  const more = toF32('bf16', step);
  let x = toF32('bf16', start);
  for (let n = 0; n < times; n++) {
    const sums = x.map((value, i) => value + more[i]!);
    x = toF32('bf16', fromF32('bf16', sums));
  }
  return x;
}
