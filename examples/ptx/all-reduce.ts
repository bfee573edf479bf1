/**
 * How the kernel of all-reduce.cu is launched, for the race detector:
 *
 *   nvcc -ptx -arch=sm_90 -lineinfo examples/ptx/all-reduce.cu -o all-reduce.ptx
 *   npx heddle check --ptx all-reduce.ptx --host examples/ptx/all-reduce.ts --mutants
 */
import { type PtxHost, WrongResult } from 'heddle/check';

const [ranks, count] = [2, 4];

const host: PtxHost = (kernels) => {
  const allReduce = kernels.kernel('all_reduce', {
    params: ['peers', 'input', 'output', 'count', 'ranks', 'rank', 'epoch'],
    rankParameter: 'rank',
  });
  return [
    {
      name: 'two ranks',
      ranks,
      async run(machine) {
        const devices = Array.from({ length: ranks }, (_, rank) => machine.device(rank));
        const inboxes = devices.map((device) => device.allocateWindow(4 * count * ranks, 'inbox'));
        const flags = devices.map((device) => device.allocateWindow(4 * ranks, 'flags'));
        const peers = new BigUint64Array(16);
        for (let rank = 0; rank < ranks; rank++) {
          peers[rank] = BigInt(inboxes[rank]!.address);
          peers[8 + rank] = BigInt(flags[rank]!.address);
        }
        const outputs = devices.map(async (device, rank) => {
          const stream = device.createStream();
          const input = device.allocate(4 * count, 'input');
          const output = device.allocate(4 * count, 'output');
          stream.copyIn(
            input.address,
            new Uint8Array(Float32Array.from({ length: count }, (_, i) => rank + i).buffer),
          );
          const launcher = (await device.load(allReduce)).launcher({ grid: 1, block: 32, rank });
          launcher.setBytes('peers', new Uint8Array(peers.buffer));
          launcher.set('input', input.address);
          launcher.set('output', output.address);
          launcher.set('count', count);
          launcher.set('ranks', ranks);
          launcher.set('epoch', 1);
          launcher.launch(stream);
          return new Float32Array((await stream.copyOut(output.address, 4 * count)).slice().buffer);
        });
        for (const output of await Promise.all(outputs))
          for (const [i, sum] of output.entries())
            if (sum !== 2 * i + 1) throw new WrongResult(`element ${i} is ${sum}, not ${2 * i + 1}`);
      },
    },
  ];
};

export default host;
