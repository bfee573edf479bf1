import { describe, expect, it } from 'vitest';
import { allocate, type NativeMemory } from '../../../src/base/native/index.js';
import type { Context, Driver } from '../../../src/gpu/cuda/driver.js';
import { CUDA_ERROR_NOT_READY } from '../../../src/gpu/cuda/errors.js';
import { Staging } from '../../../src/gpu/cuda/staging.js';
import { until } from '../../../src/gpu/cuda/stream.js';

/** A driver whose events pass when the test says so, and that counts what it allocates. */
function fakeDriver() {
  const passed = new Set<number>();
  const live = new Map<number, NativeMemory>();
  let result = 0;
  let events = 0;
  const driver = {
    out: { address: 64, number: () => result },
    cuMemHostAlloc: (_: number, bytes: number) => {
      const memory = allocate(bytes);
      live.set(memory.address, memory);
      result = memory.address;
      return 0;
    },
    cuMemFreeHost: (address: number) => {
      live.get(address)!.free();
      live.delete(address);
      return 0;
    },
    cuEventCreate: () => {
      result = ++events;
      return 0;
    },
    cuEventRecord: (event: number) => {
      passed.delete(event);
      return 0;
    },
    cuEventQuery: (event: number) => (passed.has(event) ? 0 : CUDA_ERROR_NOT_READY),
    cuEventDestroy: () => {
      events--;
      return 0;
    },
  } as unknown as Driver;
  const context = { driver, ordinal: 0, use() {} } as unknown as Context;
  return { context, passed, live, events: () => events };
}

describe('staging buffers', () => {
  it('are used again only when the copy behind them has passed', () => {
    const { context, passed } = fakeDriver();
    const staging = new Staging(context);
    const [first] = staging.take(5000);
    expect(first!.bytes.length).toBeGreaterThanOrEqual(5000);
    staging.giveAfter(first!, 0);
    const [second] = staging.take(5000);
    expect(second!.address).not.toBe(first!.address);
    passed.add(1);
    expect(staging.take(6000)).toEqual([first]);
  });

  it('of many bytes are several, and none is freed while something may run', () => {
    const { context, passed, live } = fakeDriver();
    const staging = new Staging(context);
    const taken = staging.take(2 ** 27 + 5000);
    expect(taken.map(({ bytes }) => bytes.length)).toEqual([2 ** 26, 2 ** 26, 2 ** 13]);
    for (const pinned of taken) staging.giveAfter(pinned, 0);
    for (const event of [1, 2, 3]) passed.add(event);
    expect(new Set(staging.take(2 ** 27))).toEqual(new Set(taken.slice(0, 2)));
    expect(live.size).toBe(3);
  });

  it('stay with it where the driver has not enough for all of them', () => {
    const { context, live } = fakeDriver();
    const { driver } = context;
    const allocate = driver.cuMemHostAlloc;
    const outOfMemory = 2;
    Object.assign(driver, {
      cuMemHostAlloc: (...given: Parameters<typeof allocate>) =>
        live.size < 2 ? allocate(...given) : outOfMemory,
    });
    const staging = new Staging(context);
    expect(() => staging.take(2 ** 28)).toThrow(/page-locked host memory for a copy buffer/);
    expect(staging.take(2 ** 27).length).toBe(2);
  });

  it('leave nothing behind', () => {
    const { context, live, events } = fakeDriver();
    const staging = new Staging(context);
    for (const pinned of staging.take(100)) staging.give(pinned);
    for (const pinned of staging.take(100_000)) staging.giveAfter(pinned, 0);
    for (const pinned of staging.take(2 ** 27)) staging.give(pinned);
    expect(live.size).toBe(4);
    staging.dispose();
    expect(live.size).toBe(0);
    expect(events()).toBe(0);
  });
});

describe('waiting', () => {
  it('polls until it is done, and lets others run meanwhile', async () => {
    let done = false;
    setTimeout(() => {
      done = true;
    }, 20);
    let polls = 0;
    await until(() => {
      polls++;
      return done;
    });
    expect(done).toBe(true);
    expect(polls).toBeGreaterThan(1);
  });

  it('rejects with what the poll throws', async () => {
    let polls = 0;
    const failing = until(() => {
      if (++polls > 50) throw new Error('the kernel failed');
      return false;
    });
    await expect(failing).rejects.toThrow('the kernel failed');
  });
});
