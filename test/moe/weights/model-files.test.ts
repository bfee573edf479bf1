/** From the files of a model to weights on a simulated GPU, and to the experts that take them. */
import { rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, test } from 'vitest';
import { ArgumentError, FileError, WeightsError } from '../../../src/base/errors.js';
import { type LoadProgress, ModelFiles, readBits } from '../../../src/moe/index.js';
import { type Bits, expertsOf, toF32 } from '../../../src/moe/layer/index.js';
import { onGpu } from '../live-memory.js';
import {
  deepseek,
  drawn,
  expectRefused,
  expertOf,
  fileOf,
  folderWith,
  layerOf,
  type StoredModel,
  type Style,
  safetensors,
  sharded,
  stored,
} from './files.js';

const joined = (parts: readonly Bits[]): number[] => parts.flatMap((part) => [...part]);
const size = [128, 256] as const;
const [inner, hidden] = size;

describe.each<[string, Style]>([
  ['DeepSeek-V3', deepseek],
  ['Kimi-K2 within a larger model', { ...deepseek, prefix: 'language_model.model.layers.3.mlp.' }],
  ['Qwen3-MoE in bf16', { ...deepseek, dtype: 'BF16' }],
  ['Qwen3-MoE in fp8, whose scales are bf16', { ...deepseek, scales: 'BF16' }],
  ['experts whose scales are ue8m0', { ...deepseek, scales: 'F8_E8M0' }],
  ['Mixtral', { prefix: 'model.layers.3.block_sparse_moe.', matrices: ['w1', 'w3', 'w2'], dtype: 'BF16' }],
])('%s', (_, style) => {
  const model = layerOf(style, 5, size);
  const [gate, up, down] = style.matrices;

  it.each([0, 1])('loads the experts of rank %i of 2', async (rank) => {
    const folder = folderWith(sharded(model));
    const files = await ModelFiles.open(folder);
    expect(files.layers).toEqual([{ layer: 3, experts: 5, shared: false }]);
    const { first, count } = expertsOf({ experts: 5, ranks: 2 }, rank);
    const ids = Array.from({ length: count }, (_, i) => first + i);
    const all = (matrices: readonly string[], suffix: string) =>
      joined(
        ids.flatMap((e) =>
          matrices.map((matrix) => {
            const { dtype, bits } = model[`${style.prefix}experts.${e}.${matrix}.${suffix}`]!;
            if (suffix === 'weight' || dtype === 'F32') return bits;
            return dtype === 'BF16' ? toF32('bf16', bits) : Float32Array.from(bits, (e) => 2 ** (e - 127));
          }),
        ),
      );
    await onGpu(async ({ device }, live) => {
      const stream = device.createStream();
      const weights = await files.loadExperts({ device, rank, ranks: 2 }, stream, { layer: 3 });
      const { gateUp, down: narrow, gateUpScales, downScales } = weights;
      const dtype = style.dtype === 'BF16' ? 'bf16' : 'e4m3';
      expect(gateUp).toMatchObject({ dtype, shape: [count, 2 * inner, hidden] });
      expect(narrow).toMatchObject({ dtype, shape: [count, hidden, inner] });
      expect([...(await readBits(gateUp, stream))]).toEqual(all([gate, up], 'weight'));
      expect([...(await readBits(narrow, stream))]).toEqual(all([down], 'weight'));
      if (dtype === 'bf16') expect([gateUpScales, downScales]).toEqual([undefined, undefined]);
      else {
        expect(gateUpScales).toMatchObject({ dtype: 'f32', shape: [count, (2 * inner) / 128, hidden / 128] });
        expect(downScales).toMatchObject({ dtype: 'f32', shape: [count, hidden / 128, inner / 128] });
        expect([...(await readBits(gateUpScales!, stream))]).toEqual(all([gate, up], 'weight_scale_inv'));
        expect([...(await readBits(downScales!, stream))]).toEqual(all([down], 'weight_scale_inv'));
      }
      weights.free();
      expect(live()).toBe(0);
    });
  });
});

test('a rank beyond the last expert gets none, of the right size', async () => {
  const files = await ModelFiles.open(folderWith(sharded(layerOf(deepseek, 1, size))));
  await onGpu(async ({ device }) => {
    const place = { device, rank: 1, ranks: 2 };
    const { gateUp, downScales } = await files.loadExperts(place, device.createStream(), { layer: 3 });
    expect(gateUp).toMatchObject({ shape: [0, 2 * inner, hidden] });
    expect(downScales).toMatchObject({ shape: [0, hidden / 128, inner / 128] });
  });
});

test('a shared expert has no dimension of experts', async () => {
  const shared = expertOf(deepseek, 'model.layers.3.mlp.shared_experts.', [256, 128], 9);
  const model = { ...layerOf(deepseek, 1, size), ...shared };
  const files = await ModelFiles.open(folderWith({ 'model.safetensors': safetensors(model) }));
  expect(files.layers).toEqual([{ layer: 3, experts: 1, shared: true }]);
  await onGpu(async (world) => {
    const stream = world.device.createStream();
    const weights = await files.loadShared(world, stream, { layer: 3 });
    expect(weights.gateUp).toMatchObject({ dtype: 'e4m3', shape: [512, 128] });
    expect(weights.downScales).toMatchObject({ dtype: 'f32', shape: [1, 2] });
    const [gate, up] = ['gate', 'up'].map(
      (of) => shared[`model.layers.3.mlp.shared_experts.${of}_proj.weight`]!.bits,
    );
    expect([...(await readBits(weights.gateUp, stream))]).toEqual(joined([gate!, up!]));
  });
});

describe('a router', () => {
  const experts = layerOf(deepseek, 1, size);
  const gate = 'model.layers.3.mlp.gate.';

  it.each(['F32', 'BF16'] as const)('comes with a correction of %s as f32', async (dtype) => {
    const weight = drawn('BF16', [6, 16], 1);
    const correction = drawn(dtype, [6], 2);
    const model = { ...experts, [`${gate}weight`]: weight, [`${gate}e_score_correction_bias`]: correction };
    const files = await ModelFiles.open(folderWith(sharded(model)));
    await onGpu(async (world, live) => {
      const stream = world.device.createStream();
      const router = await files.loadRouter(world, stream, { layer: 3 });
      expect(router.weights).toMatchObject({ dtype: 'bf16', shape: [6, 16] });
      expect(await readBits(router.weights, stream)).toEqual(weight.bits);
      expect(router.bias).toBeUndefined();
      const wide = dtype === 'F32' ? correction.bits : toF32('bf16', correction.bits);
      expect(await readBits(router.correction!, stream)).toEqual(wide);
      router.free();
      expect(live()).toBe(0);
    });
  });

  test('of gpt-oss has a bias', async () => {
    const prefix = 'model.layers.0.mlp.';
    const bias = drawn('BF16', [4], 3);
    const files = await ModelFiles.open(
      folderWith(
        sharded({
          [`${prefix}experts.gate_up_proj_bias`]: drawn('BF16', [4, 8], 1),
          [`${prefix}router.weight`]: drawn('BF16', [4, 8], 2),
          [`${prefix}router.bias`]: bias,
        }),
      ),
    );
    await onGpu(async (world) => {
      const stream = world.device.createStream();
      const router = await files.loadRouter(world, stream, { layer: 0 });
      expect(await readBits(router.bias!, stream)).toEqual(toF32('bf16', bias.bits));
      // Its experts are not as they were published.
      const refused = files.loadExperts(world, stream, { layer: 0 });
      await expect(refused).rejects.toThrow(
        '"model.layers.0.mlp.experts": its experts are gpt-oss\'s, made bf16',
      );
    });
  });

  test('of more than a chunk comes in several, and is whole', async () => {
    const [rows, columns] = [1100, 8192];
    const bits = new Float32Array(rows * columns);
    for (let i = 0; i < bits.length; i++) bits[i] = i % 1_000_003;
    const model = { ...experts, [`${gate}weight`]: stored('F32', [rows, columns], bits) };
    const files = await ModelFiles.open(folderWith({ 'model.safetensors': safetensors(model) }));
    await onGpu(async (world) => {
      const stream = world.device.createStream();
      const progress: LoadProgress[] = [];
      const onProgress = (one: LoadProgress) => progress.push(one);
      const router = await files.loadRouter(world, stream, { layer: 3, onProgress });
      const there = await readBits(router.weights, stream);
      expect(Buffer.compare(Buffer.from(there.buffer), Buffer.from(bits.buffer))).toBe(0);
      expect(progress).toEqual([
        { bytes: 2 ** 25, of: bits.byteLength },
        { bytes: bits.byteLength, of: bits.byteLength },
      ]);
    });
  });
});

describe('the files of a folder', () => {
  const model = layerOf(deepseek, 1, size);
  const whole = safetensors(model);
  const other = safetensors({ x: drawn('F32', [1], 1) });

  it.each<[string, Record<string, Uint8Array | string>]>([
    ['are those of the index', { ...sharded(model), 'model.safetensors': 'not looked at' }],
    ['are model.safetensors alone', { 'model.safetensors': whole, 'consolidated.safetensors': whole }],
    ['are all of the format', { 'a.safetensors': other, 'b.safetensors': whole, 'readme.md': 'x' }],
  ])('%s', async (_, files) => {
    const opened = await ModelFiles.open(folderWith(files));
    expect(opened.layers).toEqual([{ layer: 3, experts: 1, shared: false }]);
  });

  test('without experts have no layers', async () => {
    const files = await ModelFiles.open(folderWith({ 'model.safetensors': other }));
    expect(files.layers).toEqual([]);
    await onGpu(async (world) => {
      const load = files.loadExperts(world, world.device.createStream(), { layer: 3 });
      await expect(load).rejects.toThrow('layer is 3; it must be the number of a layer that has experts in');
    });
  });

  it.each<[string, Record<string, Uint8Array | string>, string]>([
    ['none of the format', { 'pytorch_model.bin': 'x' }, 'no file in it ends in .safetensors'],
    ['a tensor twice', { 'a.safetensors': whole, 'b.safetensors': whole }, 'a.safetensors has it too'],
    ['an index that is no JSON', { 'model.safetensors.index.json': '{' }, 'it is no JSON'],
    ['an index without files', { 'model.safetensors.index.json': '{}' }, 'its weight_map is no object'],
  ])('are refused: %s', async (_, files, message) => {
    const open = ModelFiles.open(folderWith(files));
    await expect(open).rejects.toThrow(WeightsError);
    await expect(open).rejects.toThrow(message);
  });

  test('are refused where there is no folder', async () => {
    const open = ModelFiles.open(join(folderWith(), 'x'));
    await expect(open).rejects.toThrow(FileError);
    await expect(open).rejects.toThrow('x cannot be read: ENOENT');
  });
});

describe('what cannot be loaded leaves nothing behind', () => {
  const stem = 'model.layers.3.mlp.experts.1.';
  const good = layerOf(deepseek, 2, size);
  const { [`${stem}up_proj.weight`]: _, ...incomplete } = good;

  /** With other matrices. */
  const matrices = (other: (name: string, of: StoredModel[string]) => [string, StoredModel[string]]) =>
    Object.fromEntries(
      Object.entries(good).map(([name, of]) => (name.endsWith('weight') ? other(name, of) : [name, of])),
    );

  it.each<[string, StoredModel, string]>([
    ['a matrix is missing', incomplete, `"${stem}up_proj.weight": no file has it`],
    [
      'an expert is of another size',
      { ...good, ...expertOf(deepseek, stem, [256, 256], 1) },
      'it is F8_E4M3 [256, 256], and F8_E4M3 [128, 256] is wanted, as model.layers.3.mlp.experts.0.gate_proj.weight',
    ],
    [
      'an expert is of another type',
      { ...good, ...expertOf({ ...deepseek, dtype: 'BF16' }, stem, size, 1) },
      'it is BF16 [128, 256], and F8_E4M3 [128, 256] is wanted',
    ],
    [
      'down lies the other way round',
      { ...good, [`${stem}down_proj.weight`]: drawn('F8_E4M3', size, 1) },
      'it is F8_E4M3 [128, 256], and F8_E4M3 [256, 128] is wanted',
    ],
    [
      'scales are of other blocks',
      { ...good, [`${stem}up_proj.weight_scale_inv`]: drawn('F32', [2, 4], 1) },
      'it is F32 [2, 4], and F32 or BF16 or F8_E8M0 [1, 2] is wanted',
    ],
    [
      'all matrices are of a type that experts do not take',
      matrices((name, of) => [name, { ...of, dtype: 'F8_E5M2' }]),
      'it is F8_E5M2 [128, 256], and BF16 or F8_E4M3 [128, 256] is wanted',
    ],
    [
      'matrices that their scales do not divide',
      matrices((name) => [name, drawn('F8_E4M3', [64, 256], 1)]),
      'it is [64, 256], and e4m3 comes with a scale for every 128 × 128',
    ],
    [
      'matrices are quantised in another way',
      matrices((name, of) => [`${name}_packed`, of]),
      'proj.weight_packed": the layer has this too, and nothing here takes it',
    ],
  ])('%s', async (_, model, message) => {
    const files = await ModelFiles.open(folderWith(sharded(model)));
    await expectRefused(files, 3, message);
  });

  it.each<[string, (folder: string) => void, string]>([
    [
      'a file that the index names is not there',
      (folder) => rmSync(join(folder, 'model-00002-of-00003.safetensors')),
      'model-00002-of-00003.safetensors: "model.layers.3.mlp.experts.0.down_proj.weight": the index says that it is in this file, which is not there',
    ],
    [
      'a file is another than the index says',
      (folder) =>
        writeFileSync(
          join(folder, 'model-00002-of-00003.safetensors'),
          safetensors({ x: drawn('F32', [1], 1) }),
        ),
      'it is not in this file, though the index says so',
    ],
    [
      'a file was cut',
      (folder) => truncateSync(join(folder, 'model-00002-of-00003.safetensors'), 20_000),
      'and the file has 20000',
    ],
  ])('%s', async (_, spoil, message) => {
    const folder = folderWith(sharded(good));
    const files = await ModelFiles.open(folder);
    spoil(folder);
    await expectRefused(files, 3, message);
  });

  test('a file is cut while it is read', async () => {
    const name = 'model.layers.3.mlp.gate.weight';
    const bytes = 3 * 2 ** 25;
    const header = {
      [name]: { dtype: 'F32', shape: [3 * 2 ** 10, 2 ** 13], data_offsets: [0, bytes] },
      'model.layers.3.mlp.experts.0.w1.weight': { dtype: 'U8', shape: [0], data_offsets: [bytes, bytes] },
    };
    const begun = fileOf(JSON.stringify(header), new Uint8Array());
    const folder = folderWith({ 'model.safetensors': begun });
    const path = join(folder, 'model.safetensors');
    truncateSync(path, begun.length + bytes);
    const files = await ModelFiles.open(folder);
    await onGpu(async (world, live) => {
      // Three chunks: the third is asked for when the first has been reported.
      const onProgress = () => truncateSync(path, 2 ** 20);
      const load = files.loadRouter(world, world.device.createStream(), { layer: 3, onProgress });
      await expect(load).rejects.toThrow('it was cut while it was read');
      expect(live()).toBe(0);
    });
  });

  test('who is told of progress throws', async () => {
    const files = await ModelFiles.open(folderWith(sharded(good)));
    await onGpu(async (world, live) => {
      const seen: number[] = [];
      const onProgress = () => {
        seen.push(live());
        throw new RangeError('enough');
      };
      const place = { device: world.device, rank: 0, ranks: 1 };
      await expect(
        files.loadExperts(place, world.device.createStream(), { layer: 3, onProgress }),
      ).rejects.toThrow('enough');
      expect(seen).toEqual([4]);
      expect(live()).toBe(0);
    });
  });

  test('a stream captures', async () => {
    const files = await ModelFiles.open(folderWith(sharded(good)));
    await onGpu(async ({ device }, live) => {
      const stream = device.createStream();
      stream.beginCapture();
      const load = files.loadExperts({ device, rank: 0, ranks: 1 }, stream, { layer: 3 });
      await expect(load).rejects.toThrow(/captur/);
      expect(live()).toBe(0);
      stream.endCapture().dispose();
    });
  });

  test('arguments are wrong', async () => {
    const files = await ModelFiles.open(folderWith(sharded(good)));
    await onGpu(async ({ device }) => {
      const stream = device.createStream();
      const place = { device, rank: 0, ranks: 1 };
      await expect(files.loadExperts(place, stream, { layer: 4 })).rejects.toThrow('layer is 4');
      await expect(files.loadExperts({ ...place, rank: 1 }, stream, { layer: 3 })).rejects.toThrow(
        ArgumentError,
      );
      await expect(files.loadShared(place, stream, { layer: 3 })).rejects.toThrow(
        'the layer has no expert that every token goes to',
      );
      await expect(files.loadRouter(place, stream, { layer: 3 })).rejects.toThrow(
        '"model.layers.3.mlp.gate.weight": no file has it',
      );
    });
  });
});
