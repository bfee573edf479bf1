import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { failure, formatVersion } from '../../../src/gpu/cuda/driver.js';
import { CudaError, remedies } from '../../../src/gpu/cuda/errors.js';
import type { Gpu } from '../../../src/gpu/cuda/gpu.js';
import { architecture, formatBytes } from '../../../src/gpu/cuda/gpu.js';
import { describe as describeAllocation } from '../../../src/gpu/cuda/virtual.js';
import { needing } from '../../needs.js';
import { transpiled } from '../../tree.js';
import { buildStandIn } from './stand-in.js';

/** Tries to open a GPU, or a world of so many, in a process of its own. */
function open(
  number: number,
  env: Record<string, string> = {},
  what: 'gpu' | 'world' | 'load' = 'gpu',
): string {
  const child = spawnSync(
    process.execPath,
    [transpiled('test/gpu/cuda/driver-child.ts'), what, String(number)],
    {
      encoding: 'utf8',
      timeout: 30_000,
      env: { ...process.env, ...env },
    },
  );
  return child.stdout.trim() || child.stderr;
}

describe('a machine without a driver', needing('no driver'), () => {
  it('gets told what is missing and what works all the same', () => {
    const complaint =
      /^UnavailableError: No library could be opened \(libcuda.so.1: .*Install the NVIDIA driver.*simulator/;
    expect(open(0)).toMatch(complaint);
    expect(open(2, {}, 'world')).toMatch(complaint);
  });
});

describe('a driver of which little is true', needing('cc'), () => {
  let driver: ReturnType<typeof buildStandIn>;
  beforeAll(() => {
    driver = buildStandIn();
  });
  afterAll(() => driver.remove());

  const with_ = (env: Record<string, string>, number = 0, what: 'gpu' | 'world' | 'load' = 'gpu') =>
    open(number, { ...env, LD_LIBRARY_PATH: driver.folder }, what);

  it('is too old', () => {
    expect(with_({ FAKE_VERSION: '11040' })).toBe(
      'UnavailableError: The NVIDIA driver implements CUDA 11.4; Heddle needs 12.0. Update the driver to 525 or newer',
    );
  });

  it('finds no GPU', () => {
    expect(with_({ FAKE_INIT: '100' })).toMatch(
      /CUDA cannot be used here \(cuInit failed with CUDA_ERROR_NO_DEVICE \(100\): no GPU is visible; see CUDA_VISIBLE_DEVICES/,
    );
  });

  it('has fewer GPUs than were asked for', () => {
    expect(with_({ FAKE_COUNT: '2' }, 2)).toMatch(
      /GPU 2 was asked for, but this process sees 2 GPUs\. Use fewer/,
    );
    expect(with_({ FAKE_COUNT: '1' }, 1)).toMatch(/this process sees one GPU/);
    expect(with_({ FAKE_COUNT: '4' }, 8, 'world')).toMatch(
      /^UnavailableError: 8 ranks need as many GPUs, but this process sees 4\. Start fewer/,
    );
  });

  it('has a GPU that is too old', () => {
    expect(with_({ FAKE_COUNT: '1', FAKE_MAJOR: '7' })).toBe(
      'UnavailableError: GPU 0 (Stand-in) has compute capability 7.0. Heddle’s kernels need 8.0 (Ampere) or newer',
    );
    expect(with_({ FAKE_COUNT: '1', FAKE_MAJOR: '8' })).toBe('opened');
  });

  it('has GPUs that share windows, or withholds it: then every rank is refused, and hears why', () => {
    expect(with_({ FAKE_COUNT: '2' }, 2, 'world')).toBe('opened');
    expect(with_({ FAKE_COUNT: '2', FAKE_PEERS: '0' }, 2, 'world')).toMatch(
      /GPU \d \(Stand-in\) cannot address the memory of GPU \d, where the receive window of process \d+ .* lies\. Choose GPUs with peer access/,
    );
  });

  it('has no memory left on one GPU: how much was asked for, what for, and how much is free', () => {
    expect(with_({ FAKE_COUNT: '3', FAKE_FULL: '1' }, 3, 'world')).toMatch(
      /rank 1 failed at exchanging the receive windows: cuMemAlloc failed with .*allocating 1\.0 MiB \(1048576 bytes\) for the receive window on GPU 1, of which 3\.0 GiB of 141\.0 GiB are free; .*lower the tokens/,
    );
  });

  it('loads a kernel once on each device, for all its call sites, and unloads it with that device', () => {
    const [bin, cache] = ['bin', 'cache'].map((name) => join(driver.folder, name)) as [string, string];
    for (const folder of [bin, cache]) mkdirSync(folder, { mode: 0o700 });
    const compiler = '#!/bin/sh\n[ "$1" = --version ] && echo V13.0.88\nwhile [ $# -gt 2 ]; do shift; done\n';
    writeFileSync(join(bin, 'nvcc'), `${compiler}[ "$2" = /dev/null ] || cp "$2" "$1"`, { mode: 0o755 });
    const env = { FAKE_COUNT: '1', HEDDLE_COMPILER: 'nvcc', CUDA_HOME: driver.folder, HEDDLE_CACHE: cache };
    expect(with_(env, 0, 'load').trim().split('\n')).toEqual([
      ...['load 1', 'load 2', 'loaded true 0', 'unload 1', 'disposed', 'unload 2'],
    ]);
  });

  it('is told to load kernels eagerly before it starts', () => {
    // The stand-in's cuInit fails otherwise.
    expect(with_({ FAKE_COUNT: '0' })).toMatch(/this process sees 0 GPUs/);
    expect(with_({ CUDA_MODULE_LOADING: 'LAZY' })).toMatch(/cuInit failed/);
  });
});

describe('errors of the driver', () => {
  it('say the call, the result, the purpose and what to do', () => {
    const error = failure('cuMemCreate', 2, 'allocating 3.0 GiB for the receive window on GPU 1');
    expect(error).toBeInstanceOf(CudaError);
    expect(error).toMatchObject({ code: 'HEDDLE_CUDA', call: 'cuMemCreate', result: 2, contextLost: false });
    expect(error.message).toMatch(
      /^cuMemCreate failed with .*\(2\): allocating 3.0 GiB for the receive window.*; /,
    );
    expect(failure('cuSomething', 12345, '').message).toBe('cuSomething failed with CUresult 12345 (12345)');
  });

  it('tell a lost context from a refused launch', () => {
    const lost = Object.keys(remedies)
      .map(Number)
      .filter((result) => failure('cuEventQuery', result, '').contextLost);
    expect(lost).toEqual([700, 702, 710, 715, 716, 719]);
  });

  it('show sizes and versions for people', () => {
    expect([5, 2048, 3 * 2 ** 20, 1.5 * 2 ** 30].map(formatBytes)).toEqual([
      '5 bytes',
      '2.0 KiB',
      '3.0 MiB',
      '1.5 GiB',
    ]);
    expect(describeAllocation(4096, 'send buffer', { ordinal: 3 } as Gpu)).toBe(
      'allocating 4.0 KiB (4096 bytes) for the send buffer on GPU 3',
    );
    expect([13_000, 12_080, 0].map(formatVersion)).toEqual(['13.0', '12.8', 'an unknown version']);
    expect([architecture([8, 0]), architecture([9, 0]), architecture([10, 3])]).toEqual([
      'sm_80',
      'sm_90a',
      'sm_103a',
    ]);
  });
});
