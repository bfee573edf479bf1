/** Messages of a kernel to the person who debugs it. */
import type { bool } from '../language.js';
import { operation, value } from './operation.js';
import { is } from './parts.js';

export const debug = {
  /** Stops the kernel where `test` is false. On GPUs a line names the statement, the block and the thread, and a trap follows. */
  assert: operation({
    signature: is<(test: bool) => void>(),
    takes: { test: value('bool') },
    returns: 'void',
    alone: {},
    cuda: {
      print({ test }, { prelude, args }) {
        const name = prelude.add({
          name: 'assert_that',
          text: `DEVICE void assert_that(bool test, const char* file, u32 line) {
  if (test) return;
  printf("%s:%u: g.assert fails in block %u, thread %u\\n", file, line, blockIdx.x, threadIdx.x);
  __trap();
}`,
        });
        // Of the TypeScript: that is where #line points.
        return `${name}(${args(test)}, __FILE__, __LINE__)`;
      },
    },
    simulate: ({ test }, machine) => machine.call('assert', test, machine.site),
  }),
};
