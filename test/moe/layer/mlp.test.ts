/** The reference of an expert, beside formulas that are written down once more. */
import { describe, expect, it } from 'vitest';
import { ArgumentError } from '../../../src/base/errors.js';
import { fromF32, type MlpMatrices, reference, toF32 } from '../../../src/moe/layer/index.js';
import { randomElements } from '../../../src/verify/testing/index.js';

const [rows, hidden, inner] = [3, 8, 4];
const bits = (count: number, seed: number) => randomElements('bf16', count, seed);
const x = bits(rows * hidden, 1);
const matrices: MlpMatrices = {
  ...{ gateUp: bits(2 * inner * hidden, 2), down: bits(hidden * inner, 3) },
  ...{ gateUpBias: bits(2 * inner, 4), downBias: bits(hidden, 5) },
};
const values = (of: Uint16Array | ReturnType<typeof bits>): number[] => [...toF32('bf16', of)];
const bf16 = (value: number): number => toF32('bf16', fromF32('bf16', Float32Array.of(value)))[0]!;
const sum = (left: readonly number[], right: readonly number[]): number =>
  Math.fround(left.reduce((all, value, i) => all + value * right[i]!, 0));
const row = (of: readonly number[], i: number, length: number) => of.slice(i * length, (i + 1) * length);
const clamped = (value: number, least: number, most: number) => Math.min(Math.max(value, least), most);

/** An expert, element by element. */
function expected(act: (gate: number, up: number) => number, { gateUpBias, downBias }: MlpMatrices) {
  const [wide, narrow] = [values(matrices.gateUp), values(matrices.down)];
  const [wideBias, narrowBias] = [gateUpBias, downBias].map((bias) => bias && values(bias));
  return Array.from({ length: rows * hidden }, (_, at) => {
    const own = row(values(x), Math.floor(at / hidden), hidden);
    const both = Array.from({ length: 2 * inner }, (_, i) =>
      Math.fround(sum(own, row(wide, i, hidden)) + (wideBias?.[i] ?? 0)),
    );
    const between = Array.from({ length: inner }, (_, i) => bf16(act(both[i]!, both[inner + i]!)));
    const column = at % hidden;
    return bf16(Math.fround(sum(between, row(narrow, column, inner)) + (narrowBias?.[column] ?? 0)));
  });
}

const swiglu = (gate: number, up: number): number => (gate / (1 + Math.exp(-gate))) * up;
/** As gpt-oss is published. */
const gptOss = (gate: number, up: number): number => {
  const g = clamped(gate, -Infinity, 7);
  return (clamped(up, -7, 7) + 1) * (g * (1 / (1 + Math.exp(-1.702 * g))));
};

describe('the reference of an expert', () => {
  const { gateUp, down, gateUpBias, downBias } = matrices;
  it.each<[string, MlpMatrices, (gate: number, up: number) => number]>([
    ['is SwiGLU between two products', { gateUp, down }, swiglu],
    ['adds biases', { gateUp, down, gateUpBias: gateUpBias!, downBias: downBias! }, swiglu],
    ["takes gpt-oss's activation", { gateUp, down, activation: 'clamped-swiglu' }, gptOss],
    ["is gpt-oss's", { ...matrices, activation: 'clamped-swiglu' }, gptOss],
  ])('%s', (_, own, act) => {
    expect(values(reference.mlp(x, hidden, own))).toEqual(expected(act, own));
  });

  it('clamps: some gates and some of what they scale are beyond the limit', () => {
    const unclamped = (gate: number, up: number) => (up + 1) * (gate / (1 + Math.exp(-1.702 * gate)));
    expect(expected(unclamped, matrices)).not.toEqual(expected(gptOss, matrices));
  });

  it('stays NaN where a row is', () => {
    const sick = x.slice().fill(0x7fc0, 0, 1);
    const out = values(reference.mlp(sick, hidden, { ...matrices, activation: 'clamped-swiglu' }));
    expect(out.map(Number.isNaN)).toEqual(out.map((_, i) => i < hidden));
  });

  it.each<[string, Partial<MlpMatrices>]>([
    ['gateUpBias', { gateUpBias: bits(2 * inner - 1, 1) }],
    ['downBias', { downBias: bits(hidden - 1, 1) }],
    ['activation', { activation: 'gelu' as never }],
  ])('refuses a wrong %s', (argument, change) => {
    const call = () => reference.mlp(x, hidden, { ...matrices, ...change });
    expect(call).toThrow(ArgumentError);
    expect(call).toThrow(argument);
  });
});

it('the reference of scaled experts refuses rows that do not end with a scale', () => {
  const scaled = (hidden: number) => {
    const [matrix, scales] = [new Uint8Array(hidden * 128), new Float32Array(hidden)];
    const down = { down: matrix, downScales: scales };
    const gateUp = { gateUp: new Uint8Array(2 * matrix.length), gateUpScales: scales };
    return reference.scaledMlp(new Uint8Array(hidden), scales, hidden, { ...gateUp, ...down });
  };
  expect(values(scaled(256))).toEqual(new Array(256).fill(0));
  expect(() => scaled(192)).toThrow(/^hidden is 192; it must be a multiple of 128/);
});
