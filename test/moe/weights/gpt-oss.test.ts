/** gpt-oss's experts, from files to weights on a simulated GPU, and to rows that they make. */
import { describe, expect, it, test } from 'vitest';
import { WeightsError } from '../../../src/base/errors.js';
import { ExpertsMlp, ExpertsPlan, type LoadProgress, ModelFiles, readBits } from '../../../src/moe/index.js';
import {
  type Bits,
  expertsOf,
  fromF32,
  type Layer,
  type MlpMatrices,
  reference,
  toF32,
} from '../../../src/moe/layer/index.js';
import { makeSources, shapeOfRounds } from '../../../src/verify/testing/index.js';
import { compareMlp, placeReceived } from '../../../src/verify/trials/index.js';
import { onGpu } from '../live-memory.js';
import { drawn, expectRefused, folderWith, type StoredModel, sharded, stored } from './files.js';
import { mxfp4Bytes, mxfp4Layer, mxfp4Scales } from './mxfp4-layer.js';

const [experts, hidden, inner] = [5, 64, 128];
const stem = 'model.layers.0.mlp.experts.';
const [bytes, scales] = [mxfp4Bytes, mxfp4Scales];
const layerOf = (count: number): StoredModel => mxfp4Layer(0, { experts: count, hidden, inner });
const model = layerOf(experts);

const e2m1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];

/** A matrix's weights as numbers, one by one: the lower half of a byte first, 32 to a scale. */
function weightsOf(of: StoredModel, matrix: 'gate_up_proj' | 'down_proj'): Float32Array {
  const [blocks, scale] = ['blocks', 'scales'].map((end) => of[`${stem}${matrix}_${end}`]!.bits);
  return Float32Array.from({ length: 2 * blocks!.length }, (_, i) => {
    const byte = blocks![Math.floor(i / 2)]!;
    return e2m1[i % 2 === 0 ? byte % 16 : Math.floor(byte / 16)]! * 2 ** (scale![Math.floor(i / 32)]! - 127);
  });
}

/** Rows of so many elements, the even ones of each expert before the odd ones. */
function evenFirst<B extends Bits>(all: B, rows: number, columns: number): B {
  const order = Array.from({ length: rows }, (_, i) => (i < rows / 2 ? 2 * i : 2 * i - rows + 1));
  return all.map((_, i) => {
    const row = Math.floor(i / columns);
    return all[(row - (row % rows) + order[row % rows]!) * columns + (i % columns)]!;
  }) as B;
}

/** [expert]: as ExpertsMlp wants them. */
function matricesOf(of: StoredModel, first: number, count: number): MlpMatrices[] {
  const all = {
    gateUp: fromF32('bf16', evenFirst(weightsOf(of, 'gate_up_proj'), 2 * inner, hidden)),
    down: fromF32('bf16', weightsOf(of, 'down_proj')),
    gateUpBias: evenFirst(of[`${stem}gate_up_proj_bias`]!.bits, 2 * inner, 1),
    downBias: of[`${stem}down_proj_bias`]!.bits,
  };
  const part = (bits: Bits, e: number) => {
    const each = bits.length / of[`${stem}down_proj_bias`]!.shape[0]!;
    return bits.slice(e * each, (e + 1) * each);
  };
  return Array.from({ length: count }, (_, i) => ({
    gateUp: part(all.gateUp, first + i),
    down: part(all.down, first + i),
    gateUpBias: part(all.gateUpBias, first + i),
    downBias: part(all.downBias, first + i),
    activation: 'clamped-swiglu',
  }));
}

const joined = (parts: readonly (Bits | undefined)[]): number[] => parts.flatMap((part) => [...part!]);

it.each([0, 1])('the experts of rank %i of 2 are bf16, gates first, with biases', async (rank) => {
  const files = await ModelFiles.open(folderWith(sharded(model)));
  expect(files.layers).toEqual([{ layer: 0, experts: null, shared: false }]);
  const { first, count } = expertsOf({ experts, ranks: 2 }, rank);
  const own = matricesOf(model, first, count);
  await onGpu(async ({ device }, live) => {
    const stream = device.createStream();
    const progress: LoadProgress[] = [];
    const weights = await files.loadExperts({ device, rank, ranks: 2 }, stream, {
      layer: 0,
      onProgress: (one) => progress.push(one),
    });
    expect(weights).toMatchObject({
      gateUp: { dtype: 'bf16', shape: [count, 2 * inner, hidden] },
      down: { dtype: 'bf16', shape: [count, hidden, inner] },
      gateUpBias: { dtype: 'bf16', shape: [count, 2 * inner] },
      downBias: { dtype: 'bf16', shape: [count, hidden] },
      activation: 'clamped-swiglu',
    });
    for (const part of ['gateUp', 'down', 'gateUpBias', 'downBias'] as const)
      expect([...(await readBits(weights[part]!, stream))]).toEqual(
        joined(own.map((expert) => expert[part])),
      );
    const of = count * (3 * inner * hidden * (1 / 2 + 1 / 32) + 2 * (2 * inner + hidden));
    expect(progress.at(-1)).toEqual({ bytes: of, of });
    // What was there only to be widened is gone.
    expect(live()).toBe(4);
    weights.free();
    expect(live()).toBe(0);
  });
});

test('experts that are kept in MXFP4 give what those of bf16 do, and nothing else is on the GPU', async () => {
  const files = await ModelFiles.open(folderWith(sharded(model)));
  const layer: Layer = {
    ...shapeOfRounds({ ranks: 2, experts, topK: 3, maxTokens: 4, hidden, dtype: 'bf16' }),
    ...{ weights: true, counts: false },
  };
  const received = reference.dispatch(layer, makeSources(layer, 4, 3), 1);
  const { first, count } = expertsOf({ experts, ranks: 2 }, 1);
  const { weights, loaded, made } = await onGpu(async ({ device }, live) => {
    const stream = device.createStream();
    const weights = await files.loadExperts({ device, rank: 1, ranks: 2 }, stream, {
      layer: 0,
      mxfp4: 'keep',
    });
    const loaded = live();
    const placed = placeReceived(device, stream, layer, received);
    const of = { world: { device, rank: 1 }, shape: layer, received: placed };
    const plan = await ExpertsPlan.create(of);
    const mlp = await ExpertsMlp.create(of, plan, weights);
    plan.plan(placed, stream);
    mlp.run(placed, stream);
    return { weights, loaded, made: await readBits(placed.output, stream) };
  });
  expect(weights).toMatchObject({
    gateUp: { dtype: 'u8', shape: [count, 2 * inner, hidden / 2] },
    gateUpScales: { dtype: 'u8', shape: [count, hidden / 32, 2 * inner] },
    down: { dtype: 'u8', shape: [count, hidden, inner / 2] },
    downScales: { dtype: 'u8', shape: [count, inner / 32, hidden] },
  });
  expect(loaded).toBe(6);
  const own = matricesOf(model, first, count);
  const { different, first: where } = compareMlp(layer, 1, received, own, 2 * 4 * 3, made);
  expect(different, where ?? '').toBe(0);
});

test('a rank beyond the last expert gets none, of the right size', async () => {
  const files = await ModelFiles.open(folderWith(sharded(layerOf(1))));
  await onGpu(async ({ device }) => {
    const place = { device, rank: 1, ranks: 2 };
    const { gateUp, downBias } = await files.loadExperts(place, device.createStream(), { layer: 0 });
    expect(gateUp).toMatchObject({ shape: [0, 2 * inner, hidden] });
    expect(downBias).toMatchObject({ shape: [0, hidden] });
  });
});

test('every number and every scale is exact; beyond the largest bf16 it is an infinity, and the last scale is NaN', async () => {
  // A row for each scale: all numbers, twice.
  const numbers = Uint8Array.from({ length: 16 * 256 }, (_, i) => ((2 * i) % 16) + 16 * ((2 * i + 1) % 16));
  const own = layerOf(1);
  const shaped: StoredModel = {
    ...own,
    [`${stem}gate_up_proj_blocks`]: stored('U8', [1, 256, 1, 16], numbers),
    [`${stem}gate_up_proj_scales`]: stored(
      'U8',
      [1, 256, 1],
      Uint8Array.from({ length: 256 }, (_, i) => i),
    ),
    [`${stem}down_proj_blocks`]: bytes([1, 32, 4, 16], 1),
    [`${stem}down_proj_scales`]: scales([1, 32, 4], 2),
    [`${stem}down_proj_bias`]: drawn('BF16', [1, 32], 3),
  };
  const files = await ModelFiles.open(folderWith(sharded(shaped)));
  await onGpu(async (world) => {
    const stream = world.device.createStream();
    const { gateUp } = await files.loadExperts(world, stream, { layer: 0 });
    const made = await readBits(gateUp, stream);
    const row = (scale: number) => {
      const place = (scale % 2) * 128 + Math.floor(scale / 2);
      return made.slice(32 * place, 32 * place + 32);
    };
    for (let scale = 0; scale < 255; scale++) {
      const right = Float64Array.from({ length: 32 }, (_, i) => {
        const value = e2m1[i % 16]! * 2 ** (scale - 127);
        return Math.abs(value) < 2 ** 128 ? value : value * Number.POSITIVE_INFINITY;
      });
      expect(Float64Array.from(toF32('bf16', row(scale)))).toEqual(right);
    }
    for (const bits of row(255)) expect(bits & 0x7fff).toBeGreaterThan(0x7f80);
  });
});

describe('what is wrong is named, and leaves nothing behind', () => {
  const name = (end: string) => `${stem}${end}`;
  const { [name('gate_up_proj_scales')]: _, ...scaleless } = model;
  const but = (end: string, other: StoredModel[string]): StoredModel => ({ ...model, [name(end)]: other });

  it.each<[string, StoredModel, string]>([
    ['no scales', scaleless, `"${stem}gate_up_proj_scales": no file has it`],
    [
      'blocks of another length',
      but('gate_up_proj_blocks', bytes([experts, 2 * inner, hidden / 16, 8], 1)),
      `it is U8 [5, 256, 4, 8], and U8 [5, 256, 4, 16] is wanted, 16 bytes for every 32 weights`,
    ],
    [
      'blocks without experts',
      but('gate_up_proj_blocks', bytes([0, 2 * inner, hidden / 32, 16], 1)),
      'it is U8 [0, 256, 2, 16], without whole blocks',
    ],
    [
      'an odd number of rows',
      but('gate_up_proj_blocks', bytes([experts, 2 * inner - 1, hidden / 32, 16], 1)),
      'each expert must have 2 · inner rows, and inner be a multiple of 32',
    ],
    [
      'rows that blocks of down do not divide',
      but('gate_up_proj_blocks', bytes([experts, 2 * 48, hidden / 32, 16], 1)),
      'inner be a multiple of 32',
    ],
    [
      'scales of other rows',
      but('gate_up_proj_scales', scales([experts, inner, hidden / 32], 1)),
      `it is U8 [5, 128, 2], and U8 [5, 256, 2] is wanted, as ${stem}gate_up_proj_blocks is U8 [5, 256, 2, 16]`,
    ],
    [
      'down the other way round',
      but('down_proj_blocks', bytes([experts, inner, hidden / 32, 16], 1)),
      'it is U8 [5, 128, 2, 16], and U8 [5, 64, 4, 16] is wanted',
    ],
    [
      'a bias of another type',
      but('gate_up_proj_bias', drawn('F32', [experts, 2 * inner], 1)),
      'it is F32 [5, 256], and BF16 [5, 256] is wanted',
    ],
    [
      'a tensor that nobody takes',
      { ...model, [name('gate_up_proj_zeros')]: drawn('BF16', [experts], 1) },
      `"${stem}gate_up_proj_zeros": the layer has this too`,
    ],
  ])('%s', async (_, of, message) => {
    const files = await ModelFiles.open(folderWith(sharded(of)));
    await expectRefused(files, 0, message);
  });

  test('where config.json has another clamp than the kernels, and not where it has theirs', async () => {
    const loading = async (config: string) => {
      const files = await ModelFiles.open(folderWith({ ...sharded(model), 'config.json': config }));
      return onGpu(async (world) => {
        const loaded = await files.loadExperts(world, world.device.createStream(), { layer: 0 });
        loaded.free();
        return loaded.activation;
      });
    };
    expect(await loading('{ "swiglu_limit": 7.0 }')).toBe('clamped-swiglu');
    expect(await loading('{ "hidden_size": 2880 }')).toBe('clamped-swiglu');
    await expect(loading('{ "swiglu_limit": 10 }')).rejects.toThrow(
      /config\.json.*: its swiglu_limit is 10, and the kernels clamp at 7/,
    );
    await expect(loading('{ "swiglu_limit": ')).rejects.toThrow(WeightsError);
    const deep = `${'['.repeat(100_000)}${']'.repeat(100_000)}`;
    await expect(loading(`{ "swiglu_limit": ${deep} }`)).rejects.toThrow(
      /its swiglu_limit is Array of length 1,/,
    );
  });

  test('who is told of progress throws', async () => {
    const files = await ModelFiles.open(folderWith(sharded(model)));
    await onGpu(async (world, live) => {
      const onProgress = () => {
        throw new RangeError('enough');
      };
      const load = files.loadExperts(world, world.device.createStream(), { layer: 0, onProgress });
      await expect(load).rejects.toThrow('enough');
      expect(live()).toBe(0);
    });
  });
});
