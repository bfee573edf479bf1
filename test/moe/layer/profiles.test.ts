import { expect, it } from 'vitest';
import { ArgumentError } from '../../../src/base/errors.js';
import { payloadsFor, profile, profiles, rowBytes } from '../../../src/moe/layer/index.js';

it('knows the models by name and says which there are', () => {
  expect(profile('deepseek_v3')).toMatchObject({ hidden: 7168, experts: 256, topK: 8 });
  expect(Object.keys(profiles)).toEqual([
    ...['deepseek_v3', 'kimi_k2', 'qwen3_235b', 'gpt_oss_120b', 'flash', 'mixtral'],
  ]);
  expect(() => profile('toString')).toThrow(ArgumentError);
  expect(() => profile('llama')).toThrow(/profile is "llama"; it must be one of deepseek_v3, kimi_k2/);
});

it.each([
  ['f32', 7168, 28_672],
  ['bf16', 7168, 14_336],
  ['fp8', 7168, 7168 + 56 * 4],
  ['mxfp8', 7168, 7168 + 224],
  ['nvfp4', 7168, 3584 + 448],
  // A last block that is not full has a scale too; half a byte at the end is a byte.
  ['fp8', 2880, 2880 + 23 * 4],
  ['mxfp8', 2881, 2881 + 91],
  ['nvfp4', 2881, 1441 + 181],
] as const)('a row of %s, hidden %d, is %d bytes', (format, hidden, bytes) => {
  expect(rowBytes(format, hidden)).toBe(bytes);
});

it('sends scales as a payload of their own', () => {
  expect(payloadsFor('bf16', 4096)).toEqual([{ name: 'x', rowBytes: 8192 }]);
  expect(payloadsFor('fp8', 4096)).toEqual([
    { name: 'x', rowBytes: 4096 },
    { name: 'scales', rowBytes: 128 },
  ]);
});
