import { execFile, spawnSync } from 'node:child_process';
import { chmod, mkdtemp, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { cached, cacheFolder, cacheKey } from '../../../src/gpu/cuda/cache.js';
import { needing } from '../../needs.js';
import { transpiled } from '../../tree.js';

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
    const child = transpiled('test/gpu/cuda/cache-child.ts');
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

  describe('what others may have written', () => {
    let warned: string[] = [];
    beforeEach(() => {
      warned = [];
      vi.spyOn(process, 'emitWarning').mockImplementation((what) => void warned.push(String(what)));
    });
    afterEach(() => vi.restoreAllMocks());
    const modeOf = async (path: string): Promise<number> => (await stat(path)).mode & 0o777;

    it('is nothing where Heddle made the folder, whatever the umask', async () => {
      const umask = process.umask(0);
      try {
        const own = join(folder, 'above', 'cache');
        await cached(own, 'k', async () => cubin);
        expect(await modeOf(own)).toBe(0o700);
        expect(await modeOf(join(own, 'k.cubin'))).toBe(0o600);
        expect((await cached(own, 'k', never)).hit).toBe(true);
      } finally {
        process.umask(umask);
      }
    });

    it('is a whole folder: nothing is read or kept there, which is said once', async () => {
      await cached(folder, 'k', async () => cubin);
      await chmod(folder, 0o777);
      for (const key of ['k', 'k', 'other'])
        expect((await cached(folder, key, async () => cubin)).hit).toBe(false);
      expect(await readdir(folder)).toEqual(['k.cubin']);
      expect(warned).toEqual([
        `compiled kernels are not kept: ${folder} cannot be trusted with code: others may write to it: its mode is 777; ` +
          'set HEDDLE_CACHE to a folder that you alone can write to (chmod go-w)',
      ]);
    });

    it('is an entry: it is made again, and then is this user’s alone', async () => {
      await cached(folder, 'k', async () => cubin);
      const file = join(folder, 'k.cubin');
      await chmod(file, 0o666);
      expect((await cached(folder, 'k', async () => cubin)).hit).toBe(false);
      expect(warned).toEqual([expect.stringContaining('k.cubin cannot be read: others may write to it')]);
      expect(await modeOf(file)).toBe(0o600);
      expect((await cached(folder, 'k', never)).hit).toBe(true);
    });

    it('is a pipe, which nobody waits for', needing('mkfifo'), async () => {
      spawnSync('mkfifo', ['-m', '600', join(folder, 'k.cubin')]);
      expect((await cached(folder, 'k', async () => cubin)).hit).toBe(false);
      expect((await cached(folder, 'k', never)).hit).toBe(true);
    });
  });

  it('sweeps up after writers that were killed, once they cannot be at work any more', async () => {
    const [old, young, foreign] = ['.12-0123456789ab.tmp', '.13-0123456789ab.tmp', '.mine.tmp'];
    for (const name of [old, young, foreign]) await writeFile(join(folder, name), '');
    for (const name of [old, foreign]) await utimes(join(folder, name), 0, 0);
    await cached(folder, 'k', async () => cubin);
    expect((await readdir(folder)).sort()).toEqual([young, foreign, 'k.cubin']);
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
