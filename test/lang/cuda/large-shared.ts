import { device, kernel, pointer } from '../../../src/lang/index.js';

/** Each call has a stage of its own, of 64 KiB: more than a block has by itself. */
const reverse = device({ params: { from: pointer('u32'), to: pointer('u32') } }, (g, { from, to }) => {
  const stage = g.shared('v16', 4096);
  const last = stage.as('u32').at(16320);
  g.store(last.at(g.threadIdx.x), g.load(from.at(g.threadIdx.x)));
  g.barrier();
  g.store(to.at(g.threadIdx.x), g.load(last.at(63 - g.threadIdx.x)));
});

/** 64 words in reverse, and in reverse again; memory of blocks in a branch that all of them take. */
export const reverseTwice = kernel(
  { name: 'reverse_twice', params: { out: pointer('u32'), input: pointer('u32') }, using: { reverse } },
  (g, { out, input }, { reverse }) => {
    if (g.blockDim.x === 64) {
      reverse({ from: input, to: out });
      const between = g.shared('u32', 64);
      g.store(between.at(g.threadIdx.x), g.load(out.at(g.threadIdx.x)));
      reverse({ from: between, to: out.at(64) });
    }
  },
);
