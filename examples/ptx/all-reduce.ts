/**
 * How the kernel of all-reduce.cu is launched, for the race detector:
 *
 *   nvcc -ptx -arch=sm_90 -lineinfo examples/ptx/all-reduce.cu -o all-reduce.ptx
 *   npx heddle check --ptx all-reduce.ptx --host examples/ptx/all-reduce.ts --mutants
 */
import { everyRank, type PtxHost, struct } from 'heddle/check';

const [ranks, count] = [2, 4];
const Peers = struct({ inbox: ['pointer', 8], flags: ['pointer', 8] });

const host: PtxHost = (kernels) => {
  const params = ['peers', 'input', 'output', 'count', 'ranks', 'rank', 'epoch'];
  const allReduce = kernels.kernel('all_reduce', { params });
  return [
    everyRank('two ranks', { ranks }, async (host) => {
      const inbox = await host.windows('inbox', 'f32', count * ranks);
      const flags = await host.windows('flags', 'u32', ranks);
      const input = host.buffer(
        'input',
        'f32',
        [0, 1, 2, 3].map((i) => host.rank + i),
      );
      const output = host.buffer('output', 'f32', count);
      const peers = Peers.of({ inbox, flags });
      const { rank } = host;
      host.launch(allReduce, { grid: 1, block: 32 }, { peers, input, output, count, ranks, rank, epoch: 1 });
      await host.expect(output, (i) => 2 * i + 1);
    }),
  ];
};

export default host;
