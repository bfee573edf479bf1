import { Worker } from 'node:worker_threads';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ArgumentError } from '../../../src/base/errors.js';
import { ImmediateTable } from '../../../src/net/fabric/core/immediates.js';
import {
  decodeAddress,
  decodeRegion,
  encodeAddress,
  encodeRegion,
} from '../../../src/net/fabric/libfabric/address.js';
import { drawnJson, hostileValues, readAll, spoiltBytes, spoiltJson } from '../../hostile.js';

describe('ImmediateTable', () => {
  it('counts every tag on its own, in whatever order they arrive', () => {
    const tag = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 });
    fc.assert(
      fc.property(fc.array(fc.oneof(tag, fc.integer({ min: 0, max: 5 })), { maxLength: 200 }), (arrivals) => {
        const table = new ImmediateTable(ImmediateTable.allocate(200));
        const counts = new Map<number, number>();
        for (const one of arrivals) {
          expect(table.add(one)).toBe(true);
          counts.set(one, (counts.get(one) ?? 0) + 1);
        }
        for (const [one, count] of counts) expect(table.count(table.find(one))).toBe(count);
        expect(new Set([...counts.keys()].map((one) => table.find(one))).size).toBe(counts.size);
      }),
      { seed: 4, numRuns: 200 },
    );
  });

  it('has room for as many tags as were asked for, and says when it is full', () => {
    const table = new ImmediateTable(ImmediateTable.allocate(100));
    let tag = 0;
    while (table.add(tag)) tag++;
    expect(tag).toBeGreaterThanOrEqual(100);
    expect(table.find(tag)).toBe(-1);
    expect(table.add(0)).toBe(true);
    expect(table.count(table.find(0))).toBe(2);
  });

  it('is found alike by another thread that claims tags at the same time', async () => {
    const shared = ImmediateTable.allocate(4096);
    // The same algorithm is loaded from this module by nobody else: the other side claims entries as it would.
    const table = new ImmediateTable(shared);
    const other = new Worker(
      `const { workerData: { shared }, parentPort } = require('node:worker_threads');
       const n = shared.byteLength / 12;
       const state = new Int32Array(shared, 0, n);
       parentPort.postMessage('go');
       for (let i = 0; i < n; i += 3) {
         if (Atomics.compareExchange(state, i, 0, 1) !== 0) continue;
         new Int32Array(shared, n * 4, n)[i] = -1 - i;
         Atomics.store(state, i, 2);
       }`,
      { eval: true, workerData: { shared } },
    );
    const gone = new Promise((resolve) => other.once('exit', resolve));
    await new Promise((resolve) => other.once('message', resolve));
    for (let tag = 0; tag < 3000; tag++) table.add(tag);
    await gone;
    for (let tag = 0; tag < 3000; tag++) expect(table.count(table.find(tag))).toBe(1);
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
