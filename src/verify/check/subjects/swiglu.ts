/** SwiGLU as a launch of its own, twice over the same memory, of fewer rows than there is room for. */
import { callSite } from '../../../gpu/index.js';
import { swigluKernel } from '../../../moe/experts/index.js';
import { readBits, tensorFrom } from '../../../moe/index.js';
import { bitsArray, fromF32, toF32 } from '../../../moe/layer/index.js';
import { compareBits, randomElements } from '../../testing/index.js';
import type { CheckConfiguration, CheckSubject } from '../subject.js';
import { ofOneRank } from './by-rank.js';

const inner = 40;
const room = 42;
// More vectors than the launch has threads.
const total = 40;
const [blocks, threads] = [2, 64];

export const swiglu: CheckSubject = {
  name: 'swiglu',
  kernels: ['experts_swiglu'],
  configurations: [
    configuration('swiglu, rows of a plan', 'plan'),
    configuration('swiglu, as many rows as the host says', 'all'),
  ],
};

function configuration(name: string, of: 'plan' | 'all'): CheckConfiguration {
  const { from, to } = example();
  return ofOneRank(name, async ({ device, rank }) => {
    const stream = device.createStream();
    const rows = tensorFrom(device, stream, from, 'bf16', [room, 2 * inner]);
    const made = tensorFrom(device, stream, bitsArray('bf16', to.length), 'bf16', [room, inner]);
    const site = await callSite(device, swigluKernel(inner, threads, of), {
      ...{ grid: blocks, block: threads, programmatic: true, rank },
    });
    if (of === 'all') site.set.count(0, total);
    else site.set.total(0, tensorFrom(device, stream, Int32Array.of(total), 'i32', [1]).data);
    site.set.from(rows.data);
    site.set.to(made.data);
    for (let n = 0; n < 2; n++) site.launch(stream);
    return compareBits('rows', 'bf16', await readBits(made, stream), to, inner);
  });
}

/** Rows, and what becomes of them. Gates are so large that their SiLU is what they are: products are exact. */
function example() {
  const values = toF32('bf16', randomElements('bf16', room * 2 * inner, 1)).map((value, i) =>
    i % (2 * inner) < inner ? 32 + (i % 16) : value,
  );
  const products = new Float32Array(room * inner);
  for (let i = 0; i < total * inner; i++) {
    const gate = Math.floor(i / inner) * 2 * inner + (i % inner);
    products[i] = values[gate]! * values[gate + inner]!;
  }
  return { from: fromF32('bf16', values), to: fromF32('bf16', products) };
}
