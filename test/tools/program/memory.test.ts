/** What launches leave behind in the process that simulates them. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { Detector } from '../../../src/gpu/sim/detector/race-detector.js';
import { SimMachine } from '../../../src/gpu/sim/index.js';
import { Kernels } from '../../../src/tools/program/kernels.js';
import { Process } from '../../../src/tools/program/process.js';
import { Session } from '../../../src/tools/program/session.js';
import { Script } from '../../gpu/sim/detector/script.js';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Each thread adds one to a place of its own, and has another one in shared memory. */
const add = `.version 8.0
.target sm_90
.address_size 64
.visible .entry add(.param .u64 add_param_0) {
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  .shared .align 4 .b8 held[128];
  ld.param.u64 %rd1, [add_param_0];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r2, [%rd3];
  add.s32 %r3, %r2, 1;
  st.global.u32 [%rd3], %r3;
  shl.b32 %r1, %r1, 2;
  mov.u32 %r2, held;
  add.s32 %r1, %r1, %r2;
  st.shared.u32 [%r1], %r3;
  ret;
}`;

const [launch, malloc, fill, synchronize] = [4, 5, 8, 21];
const [threads, bytes] = [32, 4 * 32];

test.each([0, 16])(
  'launches leave no more behind, however many there are; the host waits after each %i',
  async (every) => {
    const machine = SimMachine.create({ ranks: 1, mode: 'checked' });
    const session = new Session(machine, new Kernels('program'));
    const self = new Process(process.pid);
    self.textsOf(1).push(add);
    self.functions.set(2, { texts: self.textsOf(1), name: 'add' });
    const call = async (
      kind: number,
      [a, b = 0, c = 0]: readonly [number, number?, number?],
      tail = Buffer.alloc(0),
    ): Promise<number> => {
      const answer = await session.answer({
        process: self,
        kind,
        device: 0,
        words: [a, b, c, 0, 0],
        stack: Buffer.alloc(80),
        tail,
      });
      expect(answer.result).toBe(0);
      return answer.word;
    };
    const at = await call(malloc, [bytes]);
    await call(fill, [at, 0, bytes]);
    const request = Buffer.alloc(48 + 8);
    for (const [i, word] of [1, 1, 1, threads, 1, 1].entries()) request.writeUInt32LE(word, 4 * i);
    request.writeBigUInt64LE(BigInt(at), 48);
    const heapAfter = async (launches: number): Promise<number> => {
      for (let i = 1; i <= launches; i++) {
        await call(launch, [2, 0], request);
        if (every > 0 && i % every === 0) await call(synchronize, [0]);
      }
      if (every === 0) expect(machine.statistics.launches).toBeGreaterThan(launches / 2);
      await call(synchronize, [0]);
      collect();
      return process.memoryUsage().heapUsed;
    };
    const first = await heapAfter(2500);
    // A launch keeps some 50 bytes, for the trace; 16,000 threads that have ended may be kept at any time.
    expect((await heapAfter(5000)) - first).toBeLessThan(8e6);
    session.close();
  },
);

test('a check keeps little of threads that are over and of places that neighbours used, and still knows who used them', () => {
  const place = { where: 'here', text: 'store', kernel: 'k', span: { start: 0, end: 0, source: 0 } };
  const detector = new Detector({ site: () => place, seed: '1', configuration: 'one' });
  const [blocks, threads] = [512, 512];
  const buffer = new Script().buffer();
  const [reading, writing] = (['read', 'write'] as const).map(
    (kind) => ({ kind, order: 'weak', scope: 'sys', bytes: 4 }) as const,
  );
  for (const stream of [0, 1]) detector.streamCreated(stream, 0);
  let first = 0;
  const run = (launch: number, stream: number, form: typeof reading, grid: number, at: number): void => {
    const info = { rank: 0, kernel: 'k', grid, block: threads, programmatic: false };
    detector.launchStarted(launch, stream, info);
    for (let block = 0; block < grid; block++, first += threads) {
      detector.blockStarted(first, launch, block, first, threads);
      for (let i = 0; i < threads; i++)
        for (const row of [0, 1, 2, 3])
          detector.access(first + i, form!, launch, buffer, at + 4 * (block * threads + i) + row * 2 ** 20);
      detector.blockEnded(first);
    }
    detector.launchEnded(launch);
  };
  const held = (): number => {
    collect();
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return heapUsed + arrayBuffers;
  };
  const before = held();
  run(0, 0, writing, blocks, 0);
  run(1, 0, reading, blocks, 0);
  expect((held() - before) / (blocks * threads)).toBeLessThan(100);
  run(2, 1, writing, 1, 4 * (300 * threads + 7));
  expect(detector.findings.map((one) => one.kind === 'race' && one.first)).toMatchObject([
    { kind: 'write', block: 300, thread: 7 },
    { kind: 'read', block: 300, thread: 7 },
  ]);
});

test('memory costs what is written of it, and half as much for what a check knows of it', async () => {
  const device = SimMachine.create({ ranks: 1, mode: 'checked' }).device(0);
  const bytes = 2 ** 28;
  const before = process.memoryUsage.rss();
  const costs = (): number => (process.memoryUsage.rss() - before) / bytes;
  const { address } = device.allocate(bytes, 'large');
  expect(costs()).toBeLessThan(0.2);
  const stream = device.createStream();
  stream.fill(address, bytes, 1);
  await stream.synchronize();
  expect(costs()).toBeLessThan(1.7);
});
