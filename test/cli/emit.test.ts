import { spawnSync } from 'node:child_process';
import { openSync } from 'node:fs';
import { expect, test } from 'vitest';
import { emit, type ListedKernel } from '../../src/cli/emit.js';
import { kernel, pointer, printCuda } from '../../src/lang/index.js';
import { registry } from '../../src/verify/kernels/index.js';
import { needing } from '../needs.js';
import { transpiled } from '../tree.js';

const kernels: readonly ListedKernel[] = [
  {
    name: 'fill',
    summary: 'writes one value everywhere',
    build: ({ value = 7, mode = 'plain' } = {}) =>
      kernel(
        {
          name: 'fill_kernel',
          params: { out: pointer('u32'), count: 'u32' },
          using: { VALUE: Number(value), MODE: String(mode) },
        },
        (g, { out, count }, { VALUE, MODE }) => {
          const tile = g.shared('u64', 4);
          const i = g.threadIdx.x;
          if (i < count && MODE === 'plain') g.store(out.at(i), VALUE);
          g.store(tile.at(i), g.u64(0));
        },
      ),
  },
];

test('prints CUDA by default, the IR on demand, for the shape asked for', () => {
  expect(emit(kernels, 'fill')).toContain('fill_kernel(');
  expect(emit(kernels, 'fill', { ir: true })).toContain('store out#0[i#3], 7:u32');
  expect(emit(kernels, 'fill', { ir: true, shape: 'value=9' })).toContain('9:u32');
  expect(emit(kernels, 'fill', { ir: true, shape: 'value=9,mode=none' })).not.toContain('store out');
});

test('--json says what a launch must know', () => {
  const { text, ...rest } = JSON.parse(emit(kernels, 'fill', { json: true }));
  expect(text).toContain('__global__');
  expect(rest).toEqual({
    kernel: 'fill',
    name: 'fill_kernel',
    specialization: 'VALUE=7, MODE=plain',
    maxThreads: 1024,
    sharedBytes: 32,
    params: [
      { name: 'out', type: 'pointer(u32)' },
      { name: 'count', type: 'u32' },
    ],
    language: 'cuda',
  });
});

test('a name that several kernels have says so, and no translation unit has both', () => {
  const [one] = kernels;
  const two = { ...one!, summary: 'another' };
  expect(() => emit([one!, two], 'fill')).toThrow(/the name of one kernel, but several have it/);
  expect(() => printCuda([one!.build({}).ir(), two.build({}).ir()])).toThrow(/kernels with different names/);
});

test('--list names every kernel', () => {
  expect(emit(kernels, undefined, { list: true })).toBe('fill  writes one value everywhere\n');
  expect(JSON.parse(emit(kernels, undefined, { list: true, json: true }))).toEqual({
    kernels: [{ name: 'fill', summary: 'writes one value everywhere' }],
  });
});

test('what does not exist is refused by name', () => {
  expect(() => emit(kernels, 'fil')).toThrow('kernel is "fil"; it must be one of fill');
  expect(() => emit(kernels, undefined)).toThrow('kernel is undefined');
  expect(() => emit(kernels, 'fill', { shape: 'value' })).toThrow('--shape is "value"');
  expect(() => emit(kernels, 'fill', { shape: 'value=1,Value=2' })).toThrow('said once: value is 1 already');
  for (const key of ['__proto__', 'constructor', 'rank']) {
    expect(() => emit(registry(), 'flag_barrier', { shape: `${key}=4` })).toThrow(`--shape is "${key}"`);
  }
});

test('output that cannot be written is one sentence, not a stack', needing('/dev/full'), () => {
  const child = spawnSync(process.execPath, [transpiled('src/cli/main.ts'), 'emit', 'flag_barrier'], {
    encoding: 'utf8',
    stdio: ['ignore', openSync('/dev/full', 'w'), 'pipe'],
  });
  expect(child.status).toBe(1);
  expect(child.stderr).toMatch(/^heddle: standard output cannot be written: ENOSPC.*\n$/);
});
