/**
 * Writes a layer of weights from a seed, what its ranks bring, and what they get, as files for test/on-gpus/moe_layer.py:
 * node moe-layer-files.js FOLDER [cuda|sim]
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { bytesOf } from '../../../src/moe/index.js';
import { bitsArray, type MlpMatrices, type MoeModel, profiles } from '../../../src/moe/layer/index.js';
import { World } from '../../../src/net/world/index.js';
import { makeLayer, runLayer } from '../../../src/verify/trials/index.js';

const [folder = 'moe-layer', device = 'cuda'] = process.argv.slice(2);
const model: MoeModel = {
  ...profiles.deepseek_v3,
  ...{ hidden: 512, experts: 32, inner: 128, sharedInner: 256 },
};
const tokens = [48, 64];
const inputs = makeLayer(model, tokens, 2026);
const runs = await World.local({ ranks: 2, device: device === 'sim' ? 'sim' : 'cuda' }, (world) =>
  runLayer(world, inputs, { maxTokens: 64 }, { times: 2 }),
);

mkdirSync(folder, { recursive: true });
const save = (name: string, of: Float32Array | Uint16Array): void =>
  writeFileSync(join(folder, `${name}.bin`), bytesOf(of));
const stacked = (name: keyof MlpMatrices): Uint16Array => {
  const all = bitsArray('bf16', inputs.experts.length * inputs.experts[0]![name].length);
  for (const [e, matrices] of inputs.experts.entries()) all.set(matrices[name], e * matrices[name].length);
  return all as Uint16Array;
};
writeFileSync(join(folder, 'model.json'), JSON.stringify({ ...model, tokens }));
const { weights, correction } = inputs.routed[0]!;
save('router', weights);
save('correction', Float32Array.from(correction!));
save('gate_up', stacked('gateUp'));
save('down', stacked('down'));
save('shared_gate_up', inputs.shared!.gateUp as Uint16Array);
save('shared_down', inputs.shared!.down as Uint16Array);
for (const [rank, { x }] of inputs.routed.entries()) {
  save(`x${rank}`, x);
  save(`out${rank}`, runs[rank]!.out as Uint16Array);
}
console.log(`${folder}: ${runs[0]!.layer.family}, ${runs[0]!.layer.why}`);
