import { describe, expect, it } from 'vitest';
import { UnavailableError } from '../../../src/base/errors.js';
import type { ProviderReport } from '../../../src/net/fabric/index.js';
import { requireShmSpace, shmShortage } from '../../../src/net/fabric/libfabric/shm-space.js';
import { sharedMemory } from '../../../src/tools/doctor/index.js';
import { needing } from '../../needs.js';
import { transpiled } from '../../tree.js';
import { inContainer } from './container.js';

const mebibyte = 2 ** 20;
const main = transpiled('src/cli/main.ts');

const heddle = (size: number, ...args: readonly string[]) =>
  inContainer(size, process.execPath, main, ...args);

describe('a /dev/shm', () => {
  it.each([1, 16, 64])(
    'of %i MiB is too small for many endpoints, and it is said how much they need',
    (size) => {
      const space = { total: 64 * mebibyte, free: size * mebibyte };
      const refused = () => requireShmSpace('this', 127, space);
      expect(refused).toThrow(UnavailableError);
      expect(refused).toThrow(
        `this: /dev/shm has ${size} MiB free of 64 MiB, and shm needs 540 MiB. Give the container more: docker run --shm-size=1g`,
      );
      expect(sharedMemory(space)).toMatchObject({
        state: 'missing',
        detail: expect.stringContaining(`${size} MiB free`),
        remedy: expect.stringContaining('--shm-size=1g'),
      });
    },
  );

  it('of 64 MiB is enough for a few endpoints, of 16 for none', () => {
    const of = (size: number) => ({ total: size * mebibyte, free: size * mebibyte });
    expect(shmShortage(2, of(64))).toBeNull();
    expect(shmShortage(1, of(16))).toMatch(/16 MiB free of 16 MiB, and shm needs 36 MiB/);
  });

  it('that is not there is said to be missing', () => {
    expect(shmShortage(1, null)).toMatch(/there is no \/dev\/shm/);
    expect(sharedMemory(null).state).toBe('missing');
  });

  it('of a gibibyte is enough for all', () => {
    const space = { total: 2 ** 30, free: 2 ** 30 };
    expect(() => requireShmSpace('this', 127, space)).not.toThrow();
    expect(sharedMemory(space)).toMatchObject({ state: 'found', remedy: null });
  });
});

describe('in a container whose /dev/shm is small', needing('libfabric', 'container'), () => {
  it('the list of providers says what shm lacks', () => {
    const reports = JSON.parse(heddle(16, 'fabric', 'list', '--json').stdout) as readonly ProviderReport[];
    const shm = reports.find(({ provider }) => provider === 'shm');
    expect(shm!.missing).toContain('/dev/shm has 16 MiB free of 16 MiB, and shm needs 36 MiB');
  });
});
