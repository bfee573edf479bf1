import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ArgumentError } from '../../../src/base/errors.js';
import { decodeHandle, encodeHandle, type WindowHandle } from '../../../src/gpu/cuda/handle.js';
import { hostileValues, readAll, spoiltBytes } from '../../hostile.js';

const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });
const handles: fc.Arbitrary<WindowHandle> = fc
  .record({
    kind: fc.constantFrom('virtual' as const, 'ipc' as const),
    pid: fc.nat(2 ** 22),
    started: fc.nat(),
    bootId: fc.uuid(),
    fd: fc.integer({ min: -1, max: 2 ** 20 }),
    address: fc.integer({ min: 1, max: 2 ** 47 }),
    bytes: fc.integer({ min: 1, max: 2 ** 40 }),
    spare: fc.integer({ min: 16, max: 2 ** 21 }),
    ordinal: fc.nat(15),
    uuid: bytes(16).map((uuid) => Buffer.from(uuid).toString('hex')),
    token: bytes(16),
    opaque: bytes(64),
    fabric: fc.constantFrom(0, 800, 801),
    pidNamespace: fc.nat(2 ** 32),
    purpose: fc.string({ unit: 'grapheme', maxLength: 40 }),
  })
  .map(({ spare, ...handle }) => ({ ...handle, mappedBytes: handle.bytes + spare }));

const example = (): WindowHandle => fc.sample(handles, { seed: 7, numRuns: 1 })[0]!;

describe('window handles', () => {
  it('survive the way to another process', () => {
    fc.assert(
      fc.property(handles, fc.nat(9), (handle, shift) => {
        // They may arrive anywhere in a larger message.
        const encoded = encodeHandle(handle);
        const message = new Uint8Array(shift + encoded.length);
        message.set(encoded, shift);
        expect(decodeHandle(message.subarray(shift))).toEqual(handle);
      }),
      { seed: 1 },
    );
  });

  it('stay under 4 KiB whatever the purpose', () => {
    const long = encodeHandle({ ...example(), purpose: 'p'.repeat(100_000) });
    expect(long.length).toBeLessThanOrEqual(4096);
    expect(decodeHandle(long).purpose).toMatch(/^p+$/);
  });

  it('are refused when cut short, prolonged or of something else', () => {
    const good = encodeHandle(example());
    for (const bad of [
      good.subarray(1),
      good.subarray(0, -1),
      Uint8Array.of(...good, 0),
      new Uint8Array(300),
    ]) {
      expect(() => decodeHandle(bad)).toThrow(/the bytes of another rank's window handle/);
    }
    expect(() => decodeHandle('text' as unknown as Uint8Array)).toThrow(/handle is "text"/);
  });

  it('are read or refused, with something hostile at every place', () => {
    readAll(spoiltBytes(encodeHandle(example())), decodeHandle, ArgumentError, (handle) => {
      expect(['virtual', 'ipc']).toContain(handle.kind);
      for (const number of Object.values(handle).filter((value) => typeof value === 'number'))
        expect(Number.isSafeInteger(number)).toBe(true);
      expect(handle.address).toBeGreaterThan(0);
      expect(handle.bytes).toBeGreaterThan(0);
      expect(handle.mappedBytes).toBeGreaterThanOrEqual(handle.bytes + 16);
    });
    const values = [encodeHandle(example()), ...hostileValues];
    readAll(
      values,
      (value) => decodeHandle(value as Uint8Array),
      ArgumentError,
      ({ pid }) => {
        expect(pid).toBe(example().pid);
      },
    );
  });

  it('name the mismatch when another Heddle made them', () => {
    const other = Buffer.from(Buffer.from(encodeHandle(example())).toString().replace(/-\d+ /, '-1 '));
    expect(() => decodeHandle(other)).toThrow(/version 1.*the same Heddle in all ranks/);
  });

  it('never give sizes or addresses that cannot be', () => {
    const impossible = [
      { address: 0 },
      { address: Number.NaN },
      { bytes: 0 },
      { bytes: 100, mappedBytes: 115 },
      { mappedBytes: Number.POSITIVE_INFINITY },
    ];
    for (const change of impossible) {
      expect(() => decodeHandle(encodeHandle({ ...example(), ...change }))).toThrow(/window handle/);
    }
  });
});
