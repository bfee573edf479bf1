import { describe, expect, it } from 'vitest';
import { ArgumentError } from '../../src/base/errors.js';
import {
  type DispatchInputs,
  leastWindowBytes,
  requireCombineOutput,
  requireDispatchInputs,
  row,
  type Tensor,
  wrap,
} from '../../src/moe/index.js';
import { requireShape, type Shape } from '../../src/moe/layer/index.js';

const shape: Shape = {
  ranks: 4,
  experts: 10,
  topK: 2,
  maxTokens: 8,
  payloads: [
    { name: 'x', rowBytes: 6 },
    { name: 'scales', rowBytes: 4 },
  ],
  output: { dtype: 'bf16', hidden: 3 },
};

/** Its payloads as they were asked for. */
const asked = { x: row('bf16', 3), scales: row('f32', 1) };

/** The shape with one thing wrong, whatever its type. */
const but = (change: object): Shape => ({ ...shape, ...change });
const outputBut = (change: object): Shape => but({ output: { ...shape.output, ...change } });
const payload = (name: unknown, rowBytes: unknown = 4) => ({ name, rowBytes });
const named = (...names: readonly unknown[]): Shape => but({ payloads: names.map((name) => payload(name)) });

describe('a shape', () => {
  it.each<[string, Shape]>([
    ['the usual one', shape],
    ['one of everything', { ...shape, ranks: 1, experts: 1, topK: 1, maxTokens: 1, payloads: [] }],
    ['the largest numbers', { ...shape, ranks: 72, experts: 65_536, topK: 32, maxTokens: 2 ** 20 }],
    ['as many routes as experts', { ...shape, experts: 32, topK: 32 }],
    ['more ranks than experts', { ...shape, ranks: 72, experts: 5 }],
    ['the largest rows', outputBut({ dtype: 'f32', hidden: 2 ** 18 })],
    ['weights in combine, rows as e4m3', outputBut({ weighting: 'plan', combineFormat: 'e4m3' })],
    ['eight payloads', but({ payloads: [...'abcdefgh'].map((name) => payload(name, 2 ** 20)) })],
  ])('may be %s', (_, good) => {
    expect(requireShape(good)).toBe(good);
  });

  const integers: [string, (value: unknown) => Shape, number, number][] = [
    ['ranks', (ranks) => but({ ranks }), 1, 72],
    ['experts', (experts) => but({ experts }), 1, 65_536],
    ['topK', (topK) => but({ topK }), 1, 32],
    ['maxTokens', (maxTokens) => but({ maxTokens }), 1, 2 ** 20],
    ['payloads[0].rowBytes', (rowBytes) => but({ payloads: [{ name: 'x', rowBytes }] }), 1, 2 ** 20],
    ['output.hidden', (hidden) => outputBut({ hidden }), 1, 2 ** 19],
  ];
  it.each(
    integers.flatMap(([argument, make, min, max]) =>
      [0, -1, max + 1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, '4', undefined, null, 4n].map(
        (value) => [argument, value, make, min, max] as const,
      ),
    ),
  )('may not have %s = %s', (argument, value, make, min, max) => {
    const check = () => requireShape(make(value));
    expect(check).toThrow(ArgumentError);
    expect(check).toThrow(`${argument} is `);
    expect(check).toThrow(`it must be an integer from ${min} to ${max}`);
  });

  it.each<[string, unknown]>([
    ['shape is undefined; it must be an object', undefined],
    ['shape is 4; it must be an object', 4],
    ['payloads is undefined; it must be an array of at most 8', but({ payloads: undefined })],
    ['payloads is Object; it must be an array', but({ payloads: {} })],
    ['payloads is Array of length 9; it must be an array of at most 8', named(...'abcdefghi')],
    ['payloads[0] is 7; it must be an object', but({ payloads: [7] })],
    ['payloads[0].name is undefined; it must be a name', named(undefined)],
    ['payloads[0].name is ""; it must be a name', named('')],
    ['payloads[0].name is "a b"', named('a b')],
    ['payloads[2].name is "x"; it must be different from the names before it', named('x', 'y', 'x')],
    [
      'payloads[0].name is "experts"; it must be other than experts, weights, counts, output',
      named('experts'),
    ],
    ['output is undefined; it must be an object', but({ output: undefined })],
    [`output.dtype is "e4m3"; it must be one of 'f32', 'bf16', 'f16'`, outputBut({ dtype: 'e4m3' })],
    ['topK is 9; it must be at most the number of experts, 8', but({ experts: 8, topK: 9 })],
    ['output.dtype is undefined', outputBut({ dtype: undefined })],
    [
      'output.hidden is 262145; it must be an integer from 1 to 262144',
      outputBut({ dtype: 'f32', hidden: 2 ** 18 + 1 }),
    ],
    [
      `output.weighting is "here"; it must be one of 'experts', 'plan', 'source'`,
      outputBut({ weighting: 'here' }),
    ],
    [
      `output.combineFormat is "fp8"; it must be one of 'rows', 'e4m3', 'mxfp8'`,
      outputBut({ combineFormat: 'fp8' }),
    ],
  ])('%s', (message, bad) => {
    const check = () => requireShape(bad as Shape);
    expect(check).toThrow(ArgumentError);
    expect(check).toThrow(message);
  });

  it('needs at least ids, weights, payloads and one row for each slot', () => {
    expect(leastWindowBytes(shape)).toBe(4 * 8 * (2 * 4 * 2 + 10 + 6));
  });
});

const tensor = (dtype: Tensor['dtype'], ...dims: number[]) => wrap(4096, dtype, dims);
const inputs = (change: object = {}): DispatchInputs => ({
  topkIds: Int32Array.of(0, 9, -1, 3, 3, 3),
  topkWeights: new Float32Array(6).fill(0.5),
  payloads: { x: new Uint8Array(18), scales: tensor('f32', 3, 1) },
  ...change,
});
/** Inputs of which one payload is another. */
const payloadBut = (change: object) => inputs({ payloads: { ...inputs().payloads, ...change } });

describe('the inputs of dispatch', () => {
  it.each<[string, DispatchInputs, number]>([
    ['host arrays and tensors, mixed', inputs(), 3],
    ['tensors', inputs({ topkIds: tensor('i32', 3, 2), topkWeights: tensor('f32', 3, 2) }), 3],
    ['no weights', inputs({ topkWeights: undefined }), 3],
    [
      'rows of further dimensions',
      inputs({ payloads: { x: tensor('bf16', 3, 1, 3), scales: tensor('f32', 3, 1, 1) } }),
      3,
    ],
    [
      'no tokens at all',
      {
        topkIds: wrap(0, 'i32', [0, 2]),
        payloads: { x: wrap(0, 'bf16', [0, 3]), scales: new Uint8Array(0) },
      },
      0,
    ],
    [
      'exactly maxTokens',
      { topkIds: new Int32Array(16), payloads: { x: tensor('bf16', 8, 3), scales: tensor('f32', 8, 1) } },
      8,
    ],
  ])('may be %s', (_, good, tokens) => {
    expect(requireDispatchInputs(shape, asked, good)).toBe(tokens);
  });

  const refused: Readonly<Record<string, readonly (readonly [said: string, value: unknown])[]>> = {
    topkIds: [
      [' is undefined; it must be a tensor or an Int32Array', undefined],
      [' is Array of length 2; it must be a tensor or an', [1, 2]],
      [' is Int32Array of length 5; it must be [tokens, 2]', new Int32Array(5)],
      [' is Float32Array of length 6; it must be i32 [3, 2]', new Float32Array(6)],
      [' is "u32 [3, 2]"; it must be i32 [3, 2]', tensor('u32', 3, 2)],
      [' is "i32 [3, 4]"; it must be i32 [3, 2]', tensor('i32', 3, 4)],
      [' is "i32 [6]"; it must be i32 [6, 2]', tensor('i32', 6)],
      [' is "i32 []"; it must be [tokens, 2]', tensor('i32')],
      [
        ' is "i32 [3, 2] with strides [4, 1]"; it must be i32 [3, 2], contiguous',
        wrap(4096, 'i32', [3, 2], [4, 1]),
      ],
      ['.data is 0; it must be a device address', wrap(0, 'i32', [3, 2])],
      ['[1, 1] is 10; it must be an integer from -1 to 9', Int32Array.of(0, 0, 0, 10, 0, 0)],
      ['[1, 0] is -2; it must be an integer from -1 to 9', Int32Array.of(0, 0, -2, 0, 0, 0)],
    ],
    topkWeights: [
      [' is Float32Array of length 4; it must be f32 [3, 2]', new Float32Array(4)],
      [' is Float64Array of length 6; it must be f32 [3, 2]', new Float64Array(6)],
      [' is "bf16 [3, 2]"; it must be f32 [3, 2]', tensor('bf16', 3, 2)],
      ['[4] is NaN; it must be a finite number', Float32Array.of(0, 1, 2, 3, Number.NaN, 5)],
      ['[0] is -Infinity; it must be', Float32Array.of(Number.NEGATIVE_INFINITY, 1, 2, 3, 4, 5)],
    ],
    'payloads.scales': [
      [' is undefined; it must be given: f32 [3, 1]', undefined],
      [
        ' is Int32Array of length 3; it must be f32 [3, 1]: a tensor, or a Float32Array of length 3',
        new Int32Array(3),
      ],
    ],
    'payloads.x': [
      [' is "bf16 [2, 3]"; it must be bf16 [3, 3], contiguous', tensor('bf16', 2, 3)],
      [' is "bf16 [3, 4]"; it must be bf16 [3, 3], contiguous', tensor('bf16', 3, 4)],
      [' is "f16 [3, 3]"; it must be bf16 [3, 3], contiguous', tensor('f16', 3, 3)],
      [' is "u8 [3, 6]"; it must be bf16 [3, 3], contiguous', tensor('u8', 3, 6)],
      [
        ' is "bf16 [3, 3] with strides [8, 1]"; it must be bf16 [3, 3], contiguous',
        wrap(0, 'bf16', [3, 3], [8, 1]),
      ],
      ['.data is 0; it must be a device address', wrap(0, 'bf16', [3, 3])],
      [
        ' is Uint16Array of length 18; it must be bf16 [3, 3]: a tensor, or a Uint16Array of length 9, or its bytes as a Uint8Array of length 18',
        new Uint16Array(18),
      ],
      [' is "rows"; it must be bf16 [3, 3]: a tensor', 'rows'],
    ],
  };
  const all = Object.entries(refused).flatMap(([argument, of]) =>
    of.map((one) => [argument, ...one] as const),
  );
  it.each(all)('%s%s', (argument, said, value) => {
    const [whole, part] = argument.split('.');
    const bad = part === undefined ? inputs({ [whole!]: value }) : payloadBut({ [part]: value });
    const check = () => requireDispatchInputs(shape, asked, bad);
    expect(check).toThrow(ArgumentError);
    expect(check).toThrow(`${argument}${said}`);
  });

  it.each<[string, unknown]>([
    ['inputs is undefined; it must be an object', undefined],
    ['payloads is undefined; it must be an object', inputs({ payloads: undefined })],
    ['tokens is 9; it must be at most maxTokens, 8', inputs({ topkIds: tensor('i32', 9, 2) })],
    ['tokens is 9; it must be at most maxTokens, 8', inputs({ topkIds: new Int32Array(18) })],
    [
      'inputs.topKWeights is Float32Array of length 6; it must be left out: there are topkIds, topkWeights, payloads; did you mean topkWeights?',
      inputs({ topKWeights: new Float32Array(6) }),
    ],
    [
      'payloads.y is Uint8Array of length 3; it must be absent: this ExpertParallel was created with x, scales',
      payloadBut({ y: new Uint8Array(3) }),
    ],
  ])('%s', (message, bad) => {
    const check = () => requireDispatchInputs(shape, asked, bad as DispatchInputs);
    expect(check).toThrow(ArgumentError);
    expect(check).toThrow(message);
  });

  it('may be rows of any type where bytes were declared', () => {
    const bytes = { x: row('u8', 6), scales: row('u8', 4) };
    for (const x of [tensor('u8', 3, 6), tensor('f16', 3, 3), new Uint16Array(9)])
      expect(requireDispatchInputs(shape, bytes, payloadBut({ x }))).toBe(3);
    const short = payloadBut({ x: tensor('u8', 3, 5) });
    expect(() => requireDispatchInputs(shape, bytes, short)).toThrow(
      'payloads.x is "u8 [3, 5]"; it must be u8 [3, 6], or 3 other rows of 6 bytes, contiguous',
    );
  });

  it('must have weights when combine applies them', () => {
    const weighted = outputBut({ weighting: 'plan' });
    expect(requireDispatchInputs(weighted, asked, inputs())).toBe(3);
    expect(() => requireDispatchInputs(weighted, asked, inputs({ topkWeights: undefined }))).toThrow(
      "topkWeights is undefined; it must be given, because output.weighting is 'plan'",
    );
  });
});

describe('the output of combine', () => {
  it('may be a tensor of tokens × hidden', () => {
    expect(() => requireCombineOutput(shape, 3, tensor('bf16', 3, 3))).not.toThrow();
    expect(() => requireCombineOutput(shape, 0, wrap(0, 'bf16', [0, 3]))).not.toThrow();
  });

  it.each<[string, unknown]>([
    ['out is undefined; it must be a tensor', undefined],
    ['out is Uint16Array of length 9; it must be a tensor', new Uint16Array(9)],
    ['out is Object; it must be a tensor', { data: 1, dtype: 'f64', shape: [3, 3] }],
    ['out is "f16 [3, 3]"; it must be bf16 [3, 3], contiguous', tensor('f16', 3, 3)],
    ['out is "bf16 [4, 3]"; it must be bf16 [3, 3]', tensor('bf16', 4, 3)],
    ['out.data is 0; it must be a device address', wrap(0, 'bf16', [3, 3])],
  ])('%s', (message, bad) => {
    const check = () => requireCombineOutput(shape, 3, bad as Tensor);
    expect(check).toThrow(ArgumentError);
    expect(check).toThrow(message);
  });
});
