/**
 * Writes a layer of weights from a seed, what its ranks bring, and what they get, as files for test/on-gpus/moe_layer.py:
 * node moe-layer-files.js FOLDER [cuda|sim] [bf16|fp8]
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { bytesOf } from '../../../src/moe/index.js';
import {
  type MlpMatrices,
  type MoeModel,
  profiles,
  type ScaledMatrices,
} from '../../../src/moe/layer/index.js';
import { World } from '../../../src/net/world/index.js';
import { runLayer } from '../../moe/run-layer.js';
import { makeLayer } from '../../moe/whole-layer.js';

const [folder = 'moe-layer', device = 'cuda', given = 'bf16'] = process.argv.slice(2);
const weights = given === 'fp8' ? 'fp8' : 'bf16';
const model: MoeModel = {
  ...profiles.deepseek_v3,
  ...{ hidden: 512, experts: 32, inner: 128, sharedInner: 256 },
};
const tokens = [48, 64];
const inputs = makeLayer(model, tokens, 2026, weights);
const runs = await World.local({ ranks: 2, device: device === 'sim' ? 'sim' : 'cuda' }, (world) =>
  runLayer(world, inputs, { maxTokens: 64, ...(weights === 'fp8' && { rows: 'fp8' }) }, { times: 2 }),
);

mkdirSync(folder, { recursive: true });
const save = (name: string, of: Float32Array | Uint16Array | Uint8Array): void =>
  writeFileSync(join(folder, `${name}.bin`), bytesOf(of));
/** The matrices of experts one behind the other, with their scales where they have some. */
function saveMatrices(prefix: string, experts: readonly MlpMatrices[]): void {
  const files = [
    ...([
      ['gate_up', 'gateUp'],
      ['down', 'down'],
    ] as const),
    ...(weights === 'fp8'
      ? ([
          ['gate_up_scales', 'gateUpScales'],
          ['down_scales', 'downScales'],
        ] as const)
      : []),
  ] as const;
  for (const [file, name] of files) {
    const all = (experts as readonly ScaledMatrices[]).map((matrices) =>
      Buffer.from(bytesOf(matrices[name])),
    );
    writeFileSync(join(folder, `${prefix}${file}.bin`), Buffer.concat(all));
  }
}
writeFileSync(join(folder, 'model.json'), JSON.stringify({ ...model, tokens, weights }));
const { weights: router, correction } = inputs.routed[0]!;
save('router', router);
save('correction', Float32Array.from(correction!));
saveMatrices('', inputs.experts);
saveMatrices('shared_', [inputs.shared!]);
for (const [rank, { x }] of inputs.routed.entries()) {
  save(`x${rank}`, x);
  save(`out${rank}`, runs[rank]!.out as Uint16Array);
}
console.log(`${folder}: ${runs[0]!.layer.family}, ${runs[0]!.layer.why}`);
