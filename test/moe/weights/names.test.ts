/** What models call their experts. test/moe/weights/model-files.test.ts loads each kind of model by its names. */
import { expect, it, test } from 'vitest';
import { WeightsError } from '../../../src/base/errors.js';
import { layersOf } from '../../../src/moe/weights/names.js';

const of = (...names: string[]) => layersOf('folder', new Set(names));
const weights = (stem: string, matrices: readonly string[], experts = 2) =>
  Array.from({ length: experts }, (_, e) => matrices.map((matrix) => `${stem}${e}.${matrix}.weight`)).flat();
const projections = ['gate_proj', 'up_proj', 'down_proj'];

test.each(projections)('a shared expert of which only %s is there: it is missed, not left out', (matrix) => {
  const prefix = 'model.layers.60.mlp.';
  const part = `${prefix}shared_experts.${matrix}.weight`;
  expect(of(...weights(`${prefix}experts.`, projections), part).get(60)!.shared).toMatchObject({
    down: `${prefix}shared_experts.down_proj`,
  });
});

it.each([
  ['in one tensor', [], 'lie in one tensor'],
  [
    "that are gpt-oss's in bf16",
    ['gate_up_proj_bias', 'down_proj_bias'],
    'they are read in MXFP4, as they were published',
  ],
])('a model with all experts %s: they are refused', (_, more, why) => {
  const names = ['gate_up_proj', 'down_proj', ...more].map((end) => `model.layers.0.mlp.experts.${end}`);
  expect(of(...names).get(0)).toMatchObject({
    experts: { refused: expect.stringContaining(why) },
    unknown: null,
  });
});

test('layers are those with experts, in order of their numbers', () => {
  const layers = [10, 9, 1].flatMap((n) => weights(`model.layers.${n}.mlp.experts.`, projections, 1));
  const found = of(
    'model.layers.0.mlp.gate_proj.weight',
    'lm_head.weight',
    ...layers,
    'vision.blocks.0.experts.0.x',
  );
  expect([...found.keys()]).toEqual([1, 9, 10]);
});

test('what is in the part of a layer that has experts, and is none of theirs, is named', () => {
  const prefix = 'model.layers.1.mlp.';
  const experts = weights(`${prefix}experts.`, projections);
  const elsewhere = ['model.layers.1.self_attn.q_proj.bias', 'model.layers.0.mlp.gate_proj.bias'];
  expect(of(...experts, ...elsewhere).get(1)?.unknown).toBe(null);
  // The gate of a shared expert is Qwen2-MoE's.
  const named = ['moe_statics.bias', 'experts.gate_up_proj_zeros', 'shared_expert_gate.weight'];
  for (const other of [...named, 'experts.1.up_proj.bias'].map((name) => `${prefix}${name}`))
    expect(of(...experts, other).get(1)?.unknown).toBe(other);
});

test("Qwen3-Next's drafts are no layers of the model", () => {
  const names = ['mtp.layers.0', 'model.layers.0'].flatMap((of) =>
    weights(`${of}.mlp.experts.`, projections),
  );
  expect(of(...names).get(0)?.prefix).toBe('model.layers.0.mlp.');
});

it.each<[string, string[], string]>([
  [
    'an expert that is missing',
    weights('layers.0.mlp.experts.', projections, 4).filter((name) => !name.includes('.2.')),
    'folder: "layers.0.mlp.experts.2": no file has this expert, and there are 3 others',
  ],
  [
    'one expert of a huge number',
    ['layers.0.mlp.experts.999999999.gate_proj.weight'],
    'folder: "layers.0.mlp.experts.0": no file has this expert',
  ],
  [
    'two models',
    [...weights('a.layers.0.mlp.experts.', projections), ...weights('b.layers.0.mlp.experts.', projections)],
    'layer 0 is called a.layers.0.mlp.experts too; keep the files of one model only',
  ],
])('%s is refused', (_, names, message) => {
  expect(() => of(...names)).toThrow(WeightsError);
  expect(() => of(...names)).toThrow(message);
});

test('names that only look like experts are none', () => {
  const odd = [
    'layers.03.mlp.experts.0.w',
    'layers.1.mlp.experts.00.w',
    'xlayers.1.mlp.experts.0.w',
    '__proto__',
    '',
  ];
  expect(of(...odd, `${'layers.'.repeat(50_000)}x`).size).toBe(0);
});
