/**
 * How exchange.ptx, which Triton made of exchange.py, is launched for the race detector:
 *
 *   npx heddle check --ptx examples/ptx/exchange.ptx --host examples/ptx/exchange.ts
 */
import { type PtxHost, WrongResult } from 'heddle/check';

const [count, rounds] = [128, 2];

const host: PtxHost = (kernels) => {
  // Triton adds two pointers, to memory that it may ask its host for.
  const params = ['input', 'theirs', 'mine', 'their_flag', 'my_flag', 'output', 'scratch', 'profile'];
  const exchange = kernels.kernel('exchange', { params, sharedBytes: 16 });
  return [
    {
      ...{ name: 'two ranks', ranks: 2 },
      async run(machine) {
        const devices = [machine.device(0), machine.device(1)];
        // Each round has an inbox of its own: nothing says when the last one has been read.
        const inboxes = devices.map((device) =>
          Array.from({ length: rounds }, () => device.allocateWindow(4 * count, 'inbox').address),
        );
        const flags = devices.map((device) =>
          Array.from({ length: rounds }, () => device.allocateWindow(4, 'flag').address),
        );
        await Promise.all(
          devices.map(async (device, rank) => {
            const peer = 1 - rank;
            const stream = device.createStream();
            const launcher = (await device.load(exchange)).launcher({ grid: 1, block: 128, rank });
            launcher.set('scratch', 0);
            launcher.set('profile', 0);
            for (let round = 0; round < rounds; round++) {
              const [input, output] = [
                device.allocate(4 * count, 'input'),
                device.allocate(4 * count, 'output'),
              ];
              stream.copyIn(
                input.address,
                new Uint8Array(new Int32Array(count).fill(10 * round + rank).buffer),
              );
              launcher.set('input', input.address);
              launcher.set('theirs', inboxes[peer]![round]!);
              launcher.set('mine', inboxes[rank]![round]!);
              launcher.set('their_flag', flags[peer]![round]!);
              launcher.set('my_flag', flags[rank]![round]!);
              launcher.set('output', output.address);
              launcher.launch(stream);
              const bytes = (await stream.copyOut(output.address, 4 * count)).slice();
              for (const [i, value] of new Int32Array(bytes.buffer).entries())
                if (value !== 10 * round + peer)
                  throw new WrongResult(
                    `element ${i} of round ${round} is ${value}, not ${10 * round + peer}`,
                  );
            }
          }),
        );
      },
    },
  ];
};

export default host;
