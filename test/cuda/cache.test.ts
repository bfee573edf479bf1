import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { cached, cacheFolder, cacheKey } from '../../src/cuda/cache.js';
import { transpiled } from '../tree.js';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'heddle-cache-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const cubin = Uint8Array.from({ length: 1000 }, (_, i) => i);
const never = () => Promise.reject(new Error('made although it was there'));

describe('the cache of compiled kernels', () => {
  it('makes an entry once', async () => {
    expect(await cached(folder, 'k', async () => cubin)).toEqual({ bytes: cubin, hit: false });
    const again = await cached(folder, 'k', never);
    expect(again.hit).toBe(true);
    expect(Buffer.compare(again.bytes, cubin)).toBe(0);
    expect(await readdir(folder)).toEqual(['k.cubin']);
  });

  it('makes a damaged entry again, and mends it', async () => {
    await cached(folder, 'k', async () => cubin);
    const file = join(folder, 'k.cubin');
    const good = await readFile(file);
    const flipped = (at: number) => Buffer.from(good.map((byte, i) => (i === at ? byte ^ 1 : byte)));
    const damaged = [
      Buffer.alloc(0),
      good.subarray(0, 5),
      good.subarray(0, -1),
      Buffer.concat([good, Buffer.of(0)]),
      flipped(0),
      flipped(20),
      flipped(good.length - 1),
    ];
    for (const bytes of damaged) {
      await writeFile(file, bytes);
      expect((await cached(folder, 'k', async () => cubin)).hit).toBe(false);
      expect(await readFile(file)).toEqual(good);
    }
  });

  it('keeps nothing of a compilation that failed', async () => {
    await expect(cached(folder, 'k', () => Promise.reject(new Error('no')))).rejects.toThrow('no');
    expect(await readdir(folder)).toEqual([]);
  });

  it('serves processes that all start at once', async () => {
    const child = transpiled('test/cuda/cache-child.ts');
    const run = () => promisify(execFile)(process.execPath, [child, folder], { timeout: 30_000 });
    const outputs = await Promise.all([run(), run(), run()]);
    const made = outputs.map(({ stdout }) => Number(stdout));
    expect(made.reduce((a, b) => a + b)).toBeGreaterThanOrEqual(20);
    expect((await readdir(folder)).sort()).toEqual(
      Array.from({ length: 20 }, (_, i) => `entry${i}.cubin`).sort(),
    );
    expect(Number((await run()).stdout)).toBe(0);
  });

  it('goes on without a folder to write into', async () => {
    const file = join(folder, 'a file');
    await writeFile(file, '');
    expect(await cached(join(file, 'below'), 'k', async () => cubin)).toEqual({ bytes: cubin, hit: false });
  });

  it('lies where it is told to', () => {
    try {
      vi.stubEnv('HEDDLE_CACHE', '/somewhere');
      expect(cacheFolder()).toBe('/somewhere');
      vi.stubEnv('HEDDLE_CACHE', undefined);
      vi.stubEnv('XDG_CACHE_HOME', '/caches');
      expect(cacheFolder()).toBe('/caches/heddle');
    } finally {
      vi.unstubAllEnvs();
    }
  });

  it('tells apart whatever could change the result', () => {
    const parts = {
      compiler: 'nvrtc 13.0',
      architecture: 'sm_90a',
      options: ['-a', '-b'],
      text: 'void f();',
    };
    const keys = [
      parts,
      { ...parts, compiler: 'nvcc 13.0.88' },
      { ...parts, architecture: 'sm_100a' },
      { ...parts, options: ['-a -b'] },
      { ...parts, options: ['-b', '-a'] },
      { ...parts, text: 'void f() ;' },
    ].map(cacheKey);
    expect(new Set(keys).size).toBe(keys.length);
    expect(cacheKey({ ...parts })).toBe(keys[0]);
  });
});
