/**
 * All layers of experts of a model, from its files, over one set of buffers. What lies between them in a model, attention and norms, is not
 * Heddle's: here every layer is given the same rows.
 *
 *     heddle run -n 8 examples/whole-model.ts FOLDER deepseek_v3
 */
import {
  emptyTensor,
  LayerBuffers,
  ModelFiles,
  MoeLayer,
  type MoeLayerWeights,
  type MoeModel,
  type ProfileName,
  read,
  tensorFrom,
  World,
} from 'heddle';

/** The most tokens of a rank. */
const maxTokens = 4;

/** Loads the model, gives every layer the rows that `rowsOf` makes of the model's length, and returns what each layer makes of them. */
export async function runModel(
  world: World,
  folder: string,
  model: ProfileName | MoeModel,
  rowsOf: (hidden: number) => Float32Array,
) {
  const { device } = world;
  const stream = device.createStream();
  const files = await ModelFiles.open(folder);
  const weights: MoeLayerWeights[] = [];
  for (const { layer, shared } of files.layers)
    weights.push({
      experts: await files.loadExperts(world, stream, { layer }),
      ...(shared && { sharedExperts: await files.loadShared(world, stream, { layer }) }),
      router: await files.loadRouter(world, stream, { layer }),
    });
  const [first] = weights;
  if (first === undefined) throw new Error(`${folder} holds no layer of experts`);

  const hidden = first.experts.gateUp.shape.at(-1)!;
  const x = rowsOf(hidden);
  const tokens = x.length / hidden;
  const rows = first.experts.gateUp.dtype === 'e4m3' ? 'fp8' : 'bf16';
  const buffers = await LayerBuffers.create(world, { model, maxTokens, rows });
  const layers: MoeLayer[] = [];
  for (const own of weights) layers.push(await MoeLayer.create(world, { buffers, ...own }));

  const from = tensorFrom(device, stream, x, 'bf16', [tokens, hidden], 'x');
  const outs = layers.map(() => emptyTensor(device, 'bf16', [tokens, hidden], 'out'));
  for (const [n, layer] of layers.entries()) layer.forward(from, outs[n]!, stream); // only enqueues
  await buffers.synchronize(stream);
  const made = await Promise.all(outs.map((out) => read(out, stream)));

  for (const layer of layers) await layer.dispose();
  await buffers.dispose();
  return made;
}

const [folder, name = 'deepseek_v3'] = process.argv.slice(2);
if (process.env.HEDDLE_RANK !== undefined && folder !== undefined)
  await World.join({}, async (world) => {
    const rows = (hidden: number) =>
      Float32Array.from({ length: maxTokens * hidden }, (_, i) => Math.sin(world.rank + i));
    const made = await runModel(world, folder, name as ProfileName, rows);
    console.log(`rank ${world.rank}: ${made.length} layers of ${name} over one set of buffers`);
  });
