/** The compiler knows the names of payloads: `tsc` fails where one of the errors expected here is none. */
import { expect, expectTypeOf, test } from 'vitest';
import {
  ExpertParallel,
  type ExpertParallelOptions,
  ExpertsMlp,
  ExpertsPlan,
  emptyTensor,
  type Received,
  readBits,
  row,
  type Tensor,
} from '../../src/moe/index.js';
import { World } from '../../src/net/world/index.js';

const layer = { experts: 2, topK: 1, maxTokens: 1, output: row('bf16', 64) };
const topkIds = Int32Array.of(0);
const topkWeights = Float32Array.of(1);
const rows = new Uint16Array(64);

test('dispatch takes the payloads that create was given, and hands out those', async () => {
  await World.local({ ranks: 1, device: 'sim' }, async (world) => {
    const ep = await ExpertParallel.create(world, { ...layer, payloads: { x: row('bf16', 64) } });
    expectTypeOf(ep).toEqualTypeOf<ExpertParallel<'x'>>();
    const stream = world.device.createStream();
    // @ts-expect-error: there is no payload y, and x is missing.
    expect(() => ep.dispatch({ topkIds, topkWeights, payloads: { y: rows } }, stream)).toThrow('payloads.x');
    // @ts-expect-error: there is no payload y.
    expect(() => ep.dispatch({ topkIds, topkWeights, payloads: { x: rows, y: rows } }, stream)).toThrow(
      'payloads.y is Uint16Array of length 64; it must be absent: this ExpertParallel was created with x',
    );
    const received = ep.dispatch({ topkIds, topkWeights, payloads: { x: rows } }, stream);
    expectTypeOf(received).toEqualTypeOf<Received<'x'>>();
    expectTypeOf(received.payloads).toEqualTypeOf<Readonly<Record<'x', Tensor>>>();
    // @ts-expect-error: there is no payload y.
    expect(received.payloads.y).toBe(undefined);
    expect(received.payloads.x.dtype).toBe('bf16');

    // What reads rows by name knows the names, too.
    const plan = await ExpertsPlan.create(ep);
    plan.plan(received, stream);
    const to = emptyTensor(world.device, 'bf16', [plan.rows, 64]);
    plan.expand(received, { x: to }, stream);
    // @ts-expect-error: there is no payload y.
    expect(() => plan.expand(received, { y: to }, stream)).toThrow(
      "to.y is Object; it must be absent: payloads are 'x'",
    );
    const weights = {
      gateUp: emptyTensor(world.device, 'bf16', [2, 128, 64]),
      down: emptyTensor(world.device, 'bf16', [2, 64, 64]),
    };
    // @ts-expect-error: there is no payload y.
    await expect(ExpertsMlp.create(ep, plan, { ...weights, payload: 'y' })).rejects.toThrow('payload is "y"');
    plan.dispose();
    await ep.dispose();
  });
});

test('a payload may be called as an input is: arrays of the host stay apart', async () => {
  await World.local({ ranks: 1, device: 'sim' }, async (world) => {
    const payloads = { topkIds: row('u8', 4), topkWeights: row('f32', 1) };
    const ep = await ExpertParallel.create(world, { ...layer, payloads });
    const stream = world.device.createStream();
    const [bytes, numbers] = [Uint8Array.of(1, 2, 3, 4), Float32Array.of(5)];
    const own = { topkIds: Int32Array.of(1), topkWeights: Float32Array.of(0.5) };
    const received = ep.dispatch({ ...own, payloads: { topkIds: bytes, topkWeights: numbers } }, stream);
    expect(await readBits(received.experts, stream)).toEqual(own.topkIds);
    expect(await readBits(received.weights!, stream)).toEqual(own.topkWeights);
    expect(await readBits(received.payloads.topkIds, stream)).toEqual(bytes);
    expect(await readBits(received.payloads.topkWeights, stream)).toEqual(numbers);
    await ep.dispose();
  });
});

test('names that are not known before the program runs are any', async () => {
  await World.local({ ranks: 1, device: 'sim' }, async (world) => {
    const options: ExpertParallelOptions = {
      ...layer,
      payloads: Object.fromEntries(['a', 'b'].map((name) => [name, row('u8', 4)])),
    };
    const ep = await ExpertParallel.create(world, options);
    expectTypeOf(ep).toEqualTypeOf<ExpertParallel>();
    expect(Object.keys(ep.received.payloads)).toEqual(['a', 'b']);
    await ep.dispose();
  });
});

test('an ExpertParallel whose payloads are known stands where any will do', async () => {
  const namesOf = (ep: ExpertParallel): string[] => Object.keys(ep.received.payloads);
  await World.local({ ranks: 1, device: 'sim' }, async (world) => {
    const payloads = { x: row('e4m3', 64), scales: row('f32', 1) };
    const ep = await ExpertParallel.create(world, { ...layer, payloads });
    expectTypeOf(ep).toEqualTypeOf<ExpertParallel<'x' | 'scales'>>();
    expect(namesOf(ep)).toEqual(['x', 'scales']);
    await ep.dispose();
  });
});
