import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ArgumentError } from '../../../src/base/errors.js';
import { ImmediateQueue } from '../../../src/net/fabric/core/immediates.js';
import { Arrivals } from '../../../src/net/fabric/engine/counters.js';
import {
  decodeAddress,
  decodeRegion,
  encodeAddress,
  encodeRegion,
} from '../../../src/net/fabric/libfabric/address.js';
import { drawnJson, hostileValues, readAll, spoiltBytes, spoiltJson } from '../../hostile.js';

describe('immediates that land', () => {
  const tag = fc.oneof(fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }), fc.integer({ min: 0, max: 5 }));

  it('come out in their order, also where they had to wait for room', () => {
    // Numbers are tags that land, true is a look of the core, false one of the caller.
    const steps = fc.array(fc.oneof({ weight: 3, arbitrary: tag }, fc.boolean()), { maxLength: 100 });
    fc.assert(
      fc.property(steps, (steps) => {
        const shared = ImmediateQueue.allocate(4);
        const [core, caller] = [new ImmediateQueue(shared), new ImmediateQueue(shared)];
        const taken: (number | null)[] = [];
        for (const step of steps) {
          if (typeof step === 'number') core.add(step);
          else if (step) core.addWaiting();
          else taken.push(caller.take());
        }
        for (;;) {
          const next = caller.take();
          if (next === null && !core.addWaiting()) break;
          taken.push(next);
        }
        expect(taken.filter((one) => one !== null)).toEqual(steps.filter((step) => typeof step === 'number'));
      }),
      { seed: 4, numRuns: 300 },
    );
  });

  it('are counted by tag, each on its own', () => {
    fc.assert(
      fc.property(fc.array(tag, { maxLength: 200 }), (tags) => {
        const queue = new ImmediateQueue(ImmediateQueue.allocate(256));
        const arrivals = new Arrivals(queue);
        for (const one of tags) queue.add(one);
        arrivals.count();
        for (const one of tags) expect(arrivals.of(one).n).toBe(tags.filter((other) => other === one).length);
      }),
      { seed: 4, numRuns: 200 },
    );
  });
});

describe('addresses', () => {
  const rail = {
    address: Uint8Array.of(2, 0, 255),
    mailbox: { base: 2 ** 46, key: { low: 2 ** 32 - 1, high: 7 } },
  };
  const address = { id: '00ff', provider: 'shm', machine: 'here', shard: 'peer' as const, rails: [rail] };

  it('survive the journey', () => {
    const decoded = decodeAddress(encodeAddress(address));
    expect({
      ...decoded,
      rails: decoded.rails.map((one) => ({ ...one, address: Uint8Array.from(one.address) })),
    }).toEqual(address);
    const region = { engine: '00ff', bytes: 10, rails: [rail.mailbox] };
    expect(decodeRegion(encodeRegion(region))).toEqual(region);
  });

  it('are refused when they are something else or cut short', () => {
    const bytes = encodeAddress(address);
    for (const bad of [
      new Uint8Array(0),
      bytes.subarray(0, bytes.length - 1),
      encodeRegion({ engine: '', bytes: 1, rails: [] }),
    ]) {
      expect(() => decodeAddress(bad)).toThrow(ArgumentError);
    }
    expect(() => decodeRegion(bytes)).toThrow(/descriptor/);
  });

  it('are read or refused, with something hostile at every place', () => {
    const isWord = (word: unknown) =>
      Number.isInteger(word) && (word as number) >= 0 && (word as number) < 2 ** 32;
    const expectKey = ({ base, key }: (typeof rail)['mailbox']) => {
      expect([Number.isSafeInteger(base) && base >= 0, isWord(key.low), isWord(key.high)]).toEqual([
        true,
        true,
        true,
      ]);
    };
    const marked = (mark: string, valid: object) =>
      [...spoiltJson(valid), ...drawnJson(valid, 5)].map((text) => Buffer.from(`${mark} ${text}`));
    const told = { ...address, rails: [{ ...rail, address: 'AgD/' }] };
    readAll(marked('heddle-fabric-1', told), decodeAddress, ArgumentError, (read) => {
      for (const text of [read.id, read.provider, read.machine]) expect(typeof text).toBe('string');
      expect(['peer', 'bytes']).toContain(read.shard);
      for (const one of read.rails) {
        expect(one.address.length).toBeLessThanOrEqual(512);
        expectKey(one.mailbox);
      }
    });
    const region = { engine: '00ff', bytes: 10, rails: [rail.mailbox] };
    readAll(marked('heddle-region-1', region), decodeRegion, ArgumentError, (read) => {
      expect(typeof read.engine).toBe('string');
      expect(Number.isSafeInteger(read.bytes) && read.bytes >= 0).toBe(true);
      read.rails.forEach(expectKey);
    });
    readAll(
      [encodeAddress(address), ...hostileValues],
      (value) => decodeAddress(value as Uint8Array),
      ArgumentError,
      (read) => expect(read.id).toBe('00ff'),
    );
    readAll(spoiltBytes(encodeRegion(region)), decodeRegion, ArgumentError, (read) =>
      read.rails.forEach(expectKey),
    );
  });
});
