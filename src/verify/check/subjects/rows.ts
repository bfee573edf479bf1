/** Rows rounded to fp8 by a launch, again and again in the same memory. */
import { callSite } from '../../../gpu/index.js';
import { rowsToFp8 } from '../../../moe/experts/index.js';
import { emptyTensor, readBits, tensorFrom } from '../../../moe/index.js';
import { quantise, scaleBlock, toF32 } from '../../../moe/layer/index.js';
import { compareBits, mergeComparisons, randomElements } from '../../testing/index.js';
import type { CheckConfiguration, CheckSubject } from '../subject.js';
import { ofOneRank } from './by-rank.js';

export const rows: CheckSubject = {
  name: 'rows',
  kernels: ['rows_to_fp8'],
  configurations: [
    configuration('rows, one', 1, 128),
    // More than all lanes of a launch, and a warp of which only some lanes have any.
    configuration('rows, several', 11, 384),
  ],
};

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
