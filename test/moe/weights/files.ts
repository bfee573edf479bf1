/** Folders of models, as small as they get, that tests write. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished } from 'vitest';
import { WeightsError } from '../../../src/base/errors.js';
import type { ModelFiles } from '../../../src/moe/index.js';
import { temporaryFolder } from '../../temporary.js';
import { onGpu } from '../live-memory.js';
import { drawn, type StoredModel, safetensors } from './stored.js';

export * from './stored.js';

/** A folder that is gone after the test. */
export function folderWith(files: Readonly<Record<string, Uint8Array | string>> = {}): string {
  const folder = temporaryFolder(onTestFinished);
  for (const [name, contents] of Object.entries(files)) writeFileSync(join(folder, name), contents);
  return folder;
}

/** The model in so many files with an index, tensors in turns. */
export function sharded(model: StoredModel, shards = 3): Record<string, Uint8Array | string> {
  const names = Object.keys(model);
  const fileName = (i: number) => `model-0000${(i % shards) + 1}-of-0000${shards}.safetensors`;
  const map = Object.fromEntries(names.map((name, i) => [name, fileName(i)]));
  const files = Array.from({ length: shards }, (_, shard) => {
    const own = Object.entries(model).filter((_, i) => i % shards === shard);
    return [fileName(shard), safetensors(Object.fromEntries(own))] as const;
  });
  const index = JSON.stringify({ metadata: { total_size: 1 }, weight_map: map });
  return { ...Object.fromEntries(files), 'model.safetensors.index.json': index };
}

/** Experts of such a layer are not loaded, and leave nothing behind. */
export async function expectRefused(files: ModelFiles, layer: number, message: string): Promise<void> {
  await onGpu(async (world, live) => {
    const load = files.loadExperts(world, world.device.createStream(), { layer });
    await expect(load).rejects.toThrow(WeightsError);
    await expect(load).rejects.toThrow(message);
    expect(live()).toBe(0);
  });
}

/** How a model writes a layer. */
export interface Style {
  /** 'model.layers.3.mlp.' */
  readonly prefix: string;
  readonly matrices: readonly [gate: string, up: string, down: string];
  readonly dtype: 'BF16' | 'F8_E4M3';
  /** Of scales, where weights are e4m3. */
  readonly scales?: 'F32' | 'BF16' | 'F8_E8M0';
}

/** The three matrices of an expert, by their whole names. */
export function expertOf(
  { matrices, dtype, scales = 'F32' }: Style,
  stem: string,
  [inner, hidden]: readonly [inner: number, hidden: number],
  seed: number,
): StoredModel {
  const parts = matrices.flatMap((matrix, i) => {
    const shape = i === 2 ? [hidden, inner] : [inner, hidden];
    const weight = [`${stem}${matrix}.weight`, drawn(dtype, shape, 8 * seed + i)] as const;
    if (dtype === 'BF16') return [weight];
    const blocks = shape.map((length) => length / 128);
    return [weight, [`${stem}${matrix}.weight_scale_inv`, drawn(scales, blocks, 8 * seed + 4 + i)] as const];
  });
  return Object.fromEntries(parts);
}

/** A layer with experts from seeds; its experts are written from the last to the first, as no reader should mind. */
export function layerOf(
  style: Style,
  experts: number,
  size: readonly [inner: number, hidden: number],
  seed = 0,
): StoredModel {
  const all = Array.from({ length: experts }, (_, e) =>
    expertOf(style, `${style.prefix}experts.${e}.`, size, seed + e + 1),
  );
  return Object.assign({}, ...all.reverse()) as StoredModel;
}

export const deepseek: Style = {
  prefix: 'model.layers.3.mlp.',
  matrices: ['gate_proj', 'up_proj', 'down_proj'],
  dtype: 'F8_E4M3',
};
