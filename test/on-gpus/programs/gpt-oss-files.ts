/**
 * Writes a layer of gpt-oss as it is published, with weights from a seed, what its ranks bring, and what they get when they load it, as
 * files for test/on-gpus/gpt_oss.py:
 * node gpt-oss-files.js FOLDER [cuda|sim] [keep|bf16]
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { bytesOf, emptyTensor, MoeLayer, readBits, tensorFrom } from '../../../src/moe/index.js';
import { type MoeModel, profiles } from '../../../src/moe/layer/index.js';
import { World } from '../../../src/net/world/index.js';
import { randomBytes, randomElements } from '../../../src/verify/testing/index.js';
import { routedFromFiles } from '../../moe/run-layer.js';
import { type StoredModel, safetensors, stored } from '../../moe/weights/stored.js';

const [folder = 'gpt-oss', device = 'cuda', mxfp4 = 'bf16'] = process.argv.slice(2);
const [experts, hidden, inner] = [16, 192, 320];
const model: MoeModel = { ...profiles.gpt_oss_120b, experts, hidden, inner };
const tokens = [24, 40];
const prefix = 'model.layers.0.mlp.';
const count = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);
const bytes = (shape: readonly number[], seed: number) =>
  stored('U8', shape, randomBytes(count(shape), seed));
/** 2^−6 to 2^−3. */
const scales = (shape: readonly number[], seed: number) => {
  const drawn = bytes(shape, seed);
  return { ...drawn, bits: drawn.bits.map((byte) => 121 + (byte % 4)) };
};
const numbers = (shape: readonly number[], seed: number) =>
  stored('BF16', shape, randomElements('bf16', count(shape), seed));
const tensors: StoredModel = {
  [`${prefix}experts.gate_up_proj_blocks`]: bytes([experts, 2 * inner, hidden / 32, 16], 1),
  [`${prefix}experts.gate_up_proj_scales`]: scales([experts, 2 * inner, hidden / 32], 2),
  [`${prefix}experts.gate_up_proj_bias`]: numbers([experts, 2 * inner], 3),
  [`${prefix}experts.down_proj_blocks`]: bytes([experts, hidden, inner / 32, 16], 4),
  [`${prefix}experts.down_proj_scales`]: scales([experts, hidden, inner / 32], 5),
  [`${prefix}experts.down_proj_bias`]: numbers([experts, hidden], 6),
  [`${prefix}router.weight`]: numbers([experts, hidden], 7),
  [`${prefix}router.bias`]: numbers([experts], 8),
};

mkdirSync(folder, { recursive: true });
writeFileSync(join(folder, 'model.safetensors'), safetensors(tensors));
writeFileSync(join(folder, 'model.json'), JSON.stringify({ ...model, tokens }));
await World.local({ ranks: 2, device: device === 'sim' ? 'sim' : 'cuda' }, async (world) => {
  const stream = world.device.createStream();
  const weights = await routedFromFiles(folder, world, stream, mxfp4 === 'keep' ? mxfp4 : 'bf16');
  const layer = await MoeLayer.create(world, { model, maxTokens: 40, ...weights });
  const shape = [tokens[world.rank]!, hidden];
  const rows = randomElements('bf16', count(shape), 10 + world.rank);
  const out = emptyTensor(world.device, 'bf16', shape);
  layer.forward(tensorFrom(world.device, stream, rows, 'bf16', shape), out, stream);
  await layer.synchronize(stream);
  writeFileSync(join(folder, `x${world.rank}.bin`), bytesOf(rows));
  writeFileSync(join(folder, `out${world.rank}.bin`), bytesOf(await readBits(out, stream)));
  await layer.dispose();
  if (world.rank === 0) console.log(`${folder}: ${layer.family}, ${layer.why}`);
});
