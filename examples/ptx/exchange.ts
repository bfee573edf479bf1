/**
 * How exchange.ptx, which Triton made of exchange.py, is launched for the race detector:
 *
 *   npx heddle check --ptx examples/ptx/exchange.ptx --host examples/ptx/exchange.ts
 */
import { everyRank, type PtxHost } from 'heddle/check';

const [count, rounds] = [128, 2];

const host: PtxHost = (kernels) => {
  // Triton adds two pointers, to memory that it may ask its host for.
  const params = ['input', 'theirs', 'mine', 'their_flag', 'my_flag', 'output', 'scratch', 'profile'];
  const exchange = kernels.kernel('exchange', { params, sharedBytes: 16 });
  return [
    everyRank('two ranks', { ranks: 2 }, async (host) => {
      const [mine, peer] = [host.rank, 1 - host.rank];
      for (let round = 0; round < rounds; round++) {
        // Each round has an inbox of its own: nothing says when the last one has been read.
        const inbox = await host.windows('inbox', 'i32', count);
        const flag = await host.windows('flag', 'i32', 1);
        const input = host.buffer('input', 'i32', new Array(count).fill(10 * round + mine));
        const output = host.buffer('output', 'i32', count);
        const here = { input, mine: inbox[mine]!, my_flag: flag[mine]!, output };
        const there = { theirs: inbox[peer]!, their_flag: flag[peer]! };
        host.launch(exchange, { grid: 1, block: 128 }, { ...here, ...there, scratch: 0, profile: 0 });
        await host.expect(output, () => 10 * round + peer);
      }
    }),
  ];
};

export default host;
