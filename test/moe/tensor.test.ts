import { describe, expect, it } from 'vitest';
import { ArgumentError } from '../../src/base/errors.js';
import {
  bytesOf,
  describe as describeTensor,
  dlpack,
  emptyTensor,
  isContiguous,
  read,
  readBits,
  type TensorData,
  tensorFrom,
  wrap,
  write,
} from '../../src/moe/index.js';
import type { Dtype } from '../../src/moe/layer/index.js';
import { fakeDevice } from './fake-device.js';

describe('tensorFrom and read', () => {
  it.each([
    ['f32', [1, -2.5], Float32Array.of(1, -2.5)],
    ['bf16', [1, 1 + 2 ** -9], Float32Array.of(1, 1)],
    ['f16', [1, 65504], Float32Array.of(1, 65504)],
    ['e4m3', [0.5, 1000], Float32Array.of(0.5, 448)],
    ['u8', [0, 255], Uint8Array.of(0, 255)],
    ['i32', [-1, 2 ** 31 - 1], Int32Array.of(-1, 2 ** 31 - 1)],
    ['u32', [0, 2 ** 32 - 1], Uint32Array.of(0, 2 ** 32 - 1)],
  ] as const)('round-trip numbers through %s, rounding to it', async (dtype, numbers, values) => {
    const { device, stream } = fakeDevice();
    const tensor = tensorFrom(device, stream, numbers, dtype);
    expect(tensor.shape).toEqual([2]);
    expect(await read(tensor, stream)).toEqual(values);
  });

  it('take stored bits as they are, and give them back', async () => {
    const { device, stream } = fakeDevice();
    const bits = Uint16Array.of(0x3f80, 0x7fc1, 0x0001);
    const tensor = tensorFrom(device, stream, bits, 'bf16');
    expect(await readBits(tensor, stream)).toEqual(bits);
    expect(await read(tensor, stream)).toEqual(Float32Array.of(1, Number.NaN, 2 ** -133));
  });

  it('take a part of a larger array', async () => {
    const { device, stream } = fakeDevice();
    const tensor = tensorFrom(device, stream, Int32Array.of(9, 1, 2, 9).subarray(1, 3), 'i32');
    expect(await read(tensor, stream)).toEqual(Int32Array.of(1, 2));
  });

  it('give an empty tensor an address and read nothing from it', async () => {
    const { device, stream } = fakeDevice();
    const tensor = tensorFrom(device, stream, [], 'i32', [0, 8]);
    expect(tensor.data).toBeGreaterThan(0);
    expect(tensor.bytes).toBe(0);
    expect(await read(tensor, stream)).toEqual(new Int32Array(0));
  });

  it.each<[string, TensorData, Dtype, number[] | undefined, string]>([
    ['another number of elements', [1, 2, 3], 'f32', [2, 2], '4 elements long, for shape [2, 2]'],
    [
      'a typed array of another type',
      Uint8Array.of(1),
      'bf16',
      undefined,
      'numbers or a Uint16Array, for bf16',
    ],
    ['a fraction for an integer', [0.5], 'i32', undefined, 'data[0] is 0.5'],
    ['a number beyond the integer', [256], 'u8', undefined, 'an integer from 0 to 255'],
    ['a NaN for an integer', Float32Array.of(Number.NaN), 'u32', undefined, 'data[0] is NaN'],
    ['an unknown dtype', [1], 'f64' as Dtype, undefined, 'one of f32, bf16'],
    ['a negative length', [1], 'f32', [-1], 'shape[0] is -1'],
    ['a text for a number', [1, '2'] as unknown as number[], 'f32', undefined, 'data[1] is "2"'],
    ['a bigint for a number', [2n] as unknown as number[], 'bf16', undefined, 'data[0] is 2n'],
  ])('refuse %s', (_, data, dtype, shape, message) => {
    const { device, stream, purposes } = fakeDevice();
    const make = () => tensorFrom(device, stream, data, dtype, shape);
    expect(make).toThrow(ArgumentError);
    expect(make).toThrow(message);
    expect(purposes).toEqual([]);
  });
});

it('write replaces the elements of a tensor', async () => {
  const { device, stream } = fakeDevice();
  const tensor = tensorFrom(device, stream, [1, 2], 'f16');
  write(tensor, stream, [3, 4]);
  expect(await read(tensor, stream)).toEqual(Float32Array.of(3, 4));
  expect(() => write(tensor, stream, [3])).toThrow('2 elements long');
  expect(() => write(wrap(256, 'f16', [2], [3]), stream, [3, 4])).toThrow('contiguous');
});

describe('emptyTensor', () => {
  it('allocates for a purpose and frees', () => {
    const { device, freed, purposes } = fakeDevice();
    const tensor = emptyTensor(device, 'bf16', [3, 5]);
    expect(tensor.bytes).toBe(30);
    expect(purposes).toEqual(['a tensor of bf16 [3, 5]']);
    tensor.free();
    expect(freed).toEqual([tensor.data]);
  });

  it.each([[[-1]], [[1.5]], [[Number.NaN]]])('refuses shape %j before it allocates', (shape) => {
    const { device, purposes } = fakeDevice();
    expect(() => emptyTensor(device, 'f32', shape)).toThrow(/shape\[0\]/);
    expect(purposes).toEqual([]);
  });
});

describe('wrap', () => {
  it('reads strided elements in row-major order: a transposed and a broadcast view', async () => {
    const { device, stream } = fakeDevice();
    const base = tensorFrom(device, stream, [0, 1, 2, 3, 4, 5], 'i32', [2, 3]);
    const transposed = wrap(base.data, 'i32', [3, 2], [1, 3]);
    expect(await read(transposed, stream)).toEqual(Int32Array.of(0, 3, 1, 4, 2, 5));
    const broadcast = wrap(base.data + 4, 'i32', [2, 2], [0, 1]);
    expect(await read(broadcast, stream)).toEqual(Int32Array.of(1, 2, 1, 2));
    expect(broadcast.bytes).toBe(8);
    const everyThird = wrap(base.data, 'i32', [2, 1], [3, 1]);
    expect(everyThird.bytes).toBe(16);
    expect(await read(everyThird, stream)).toEqual(Int32Array.of(0, 3));
  });

  it('knows which strides leave no gap', () => {
    expect(isContiguous(wrap(0, 'f32', [2, 3]))).toBe(true);
    expect(isContiguous(wrap(0, 'f32', [2, 3], [3, 1]))).toBe(true);
    expect(isContiguous(wrap(0, 'f32', [1, 3], [99, 1]))).toBe(true);
    expect(isContiguous(wrap(0, 'f32', [0, 3], [1, 1]))).toBe(true);
    expect(isContiguous(wrap(0, 'f32', [2, 3], [4, 1]))).toBe(false);
    expect(isContiguous(wrap(0, 'f32', [2, 3], [1, 2]))).toBe(false);
  });

  it.each([
    ['an address off its type', () => wrap(2, 'f32', [1]), 'data is 2; it must be a multiple of 4'],
    ['a negative address', () => wrap(-4, 'f32', [1]), 'data is -4'],
    ['strides of another length', () => wrap(0, 'f32', [2, 2], [1]), 'as long as the shape, 2'],
    ['negative strides', () => wrap(0, 'f32', [2], [-1]), 'strides[0] is -1'],
    ['an unknown dtype', () => wrap(0, 'float' as 'f32', [2]), 'dtype is "float"'],
  ])('refuses %s', (_, make, message) => {
    expect(make).toThrow(ArgumentError);
    expect(make).toThrow(message);
  });
});

it('speaks DLPack', () => {
  expect(dlpack(wrap(512, 'bf16', [2, 3, 4]))).toEqual({
    data: 512,
    ndim: 3,
    dtype: { code: 4, bits: 16, lanes: 1 },
    shape: [2, 3, 4],
    strides: [12, 4, 1],
    byteOffset: 0,
  });
  expect(dlpack(wrap(0, 'e4m3', [2], [7]))).toMatchObject({ dtype: { code: 10, bits: 8 }, strides: [7] });
});

it('describes itself to people', () => {
  expect(describeTensor(wrap(0, 'bf16', [8, 7168]))).toBe('bf16 [8, 7168]');
  expect(describeTensor(wrap(0, 'i32', [2, 2], [4, 1]))).toBe('i32 [2, 2] with strides [4, 1]');
});

it('bytesOf is a view, not a copy', () => {
  const bits = Uint16Array.of(1, 2, 3).subarray(1);
  bytesOf(bits)[0] = 9;
  expect(bits[0]).toBe(9);
});
