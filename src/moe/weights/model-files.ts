/** A model as it is published: a folder of safetensors files, and from it what one layer of a rank needs. */
import { join } from 'node:path';
import {
  ArgumentError,
  oneOf,
  requireFunction,
  requireInteger,
  requireMembers,
  requireObject,
  requireText,
  show,
  type Table,
  WeightsError,
} from '../../base/errors.js';
import { type Device, requireDevice, requireStream, type Stream } from '../../gpu/index.js';
import type { MlpWeights } from '../experts/products.js';
import { clampedSwiglu, type Dtype, expertsOf, limits, mxfp4Block, scaleBlock } from '../layer/index.js';
import type { RouterWeights } from '../router/index.js';
import { configOf, type Located, type OpenFiles, openFiles, type Places, placesOf } from './folder.js';
import { type LoadProgress, load, type Part, type Wanted, whole } from './load.js';
import { type LayerNames, layersOf, type MatrixNames } from './names.js';
import { shown } from './safetensors.js';

/** A layer that has experts. */
export interface ModelLayer {
  /** Its number, as the files count. */
  readonly layer: number;
  /** How many experts are routed to; null where all lie in one tensor: `loadExperts` reads gpt-oss's, and says why it reads no others. */
  readonly experts: number | null;
  /** Whether the layer has a shared expert, which takes every token. */
  readonly shared: boolean;
}

export interface LoadOptions {
  /** One of `layers`, by its number. */
  readonly layer: number;
  /** Keeps experts that are published in MXFP4 so, or makes them bf16, four times the memory (default). */
  readonly mxfp4?: 'keep' | 'bf16';
  /** Called after each chunk, of 32 MiB at most. */
  readonly onProgress?: (progress: LoadProgress) => void;
}

const loadOptions: Table<LoadOptions> = {
  ...{ layer: true, mxfp4: oneOf(['keep', 'bf16']), onProgress: requireFunction },
};

/** The memory of all that was loaded goes back with `free`. */
export interface LoadedMlp extends MlpWeights {
  free(): void;
}

/** The memory of all that was loaded goes back with `free`. */
export interface LoadedRouter extends RouterWeights {
  free(): void;
}

/** A rank and its device: where the weights go, and which experts it owns. A World is one. */
interface Destination {
  readonly device: Device;
  readonly rank: number;
  readonly ranks: number;
}

/**
 * The files of a model. Loaded tensors are in the memory of a GPU when the call resolves, and belong to the caller. A call that fails
 * leaves nothing there. Files are open only during a call.
 */
export class ModelFiles {
  readonly folder: string;
  /** The layers that have experts, in order. */
  readonly layers: readonly ModelLayer[];
  readonly #places: Places;
  readonly #names: ReadonlyMap<number, LayerNames>;

  private constructor(folder: string, places: Places) {
    this.folder = folder;
    this.#places = places;
    this.#names = layersOf(folder, new Set(places.keys()));
    this.layers = [...this.#names].map(([layer, { experts, shared }]) => ({
      layer,
      experts: typeof experts === 'number' ? experts : null,
      shared: shared !== null,
    }));
  }

  /**
   * Looks at which tensors there are: by `model.safetensors.index.json`, or in `model.safetensors`, or in all files of the format.
   * @throws FileError where a file or the folder cannot be read, WeightsError where there is something else in it.
   */
  static async open(folder: string): Promise<ModelFiles> {
    requireText('folder', folder, "the path of a folder with a model's files");
    return new ModelFiles(folder, await placesOf(folder));
  }

  /** The experts of a rank: with their scales where they are e4m3; where they are published in MXFP4, as that or as bf16, with their biases and activation. */
  async loadExperts(world: Destination, stream: Stream, options: LoadOptions): Promise<LoadedMlp> {
    const names = this.#begin(world, stream, options);
    const ranks = requireInteger('world.ranks', world.ranks, 1, limits.worldRanks);
    const rank = requireInteger('world.rank', world.rank, 0, ranks - 1);
    const { experts, prefix } = names;
    if (experts === 'mxfp4') {
      await requireClamp(this.folder);
      const how = { ranks, rank, keep: options.mxfp4 === 'keep' };
      const wanted = (files: OpenFiles) => wantedMxfp4(files, `${prefix}experts.`, how);
      return { ...(await this.#load(world, stream, options, wanted)), activation: 'clamped-swiglu' };
    }
    if (typeof experts !== 'number')
      throw new WeightsError(this.folder, `${prefix}experts`, experts.refused, 'take another model');
    const { first, count } = expertsOf({ experts, ranks }, rank);
    const own = Array.from({ length: count }, (_, i) => names.expert(first + i));
    return this.#load(world, stream, options, (files) =>
      wantedMlp(files, own, names.expert(first % experts), [count]),
    );
  }

  /** The expert that every token goes to: weights without a dimension of experts. */
  async loadShared(world: Destination, stream: Stream, options: LoadOptions): Promise<LoadedMlp> {
    const { prefix, shared } = this.#begin(world, stream, options);
    if (shared === null)
      throw new WeightsError(
        this.folder,
        `${prefix}shared_experts`,
        'the layer has no expert that every token goes to',
        'leave this call out where `shared` of the layer is false',
      );
    return this.#load(world, stream, options, (files) => wantedMlp(files, [shared], shared, []));
  }

  /** The router's weights, with what is added to logits or to scores where the model has that. */
  async loadRouter(world: Destination, stream: Stream, options: LoadOptions): Promise<LoadedRouter> {
    const { router } = this.#begin(world, stream, options);
    return this.#load(world, stream, options, async (files) => {
      const weights = await files.find(router.weights);
      const [experts = 0, hidden = 0] = weights.tensor.shape;
      const dtype = requireStored(weights, ['BF16', 'F32'], [experts, hidden], 'a matrix');
      const vector = async (name: string): Promise<Wanted> => {
        const found = await files.find(name);
        requireStored(found, ['F32', 'BF16'], [experts], `as ${router.weights} has ${experts} rows`);
        return { dtype: 'f32', shape: [experts], parts: [whole(found)] };
      };
      return {
        weights: { dtype, shape: [experts, hidden], parts: [whole(weights)] },
        ...(router.bias !== null && { bias: await vector(router.bias) }),
        ...(router.correction !== null && { correction: await vector(router.correction) }),
      };
    });
  }

  /** Checks the arguments; returns what the layer's tensors are called. */
  #begin(world: Destination, stream: Stream, options: LoadOptions): LayerNames {
    requireObject('world', world, 'what has a device, a rank and ranks');
    requireDevice('world.device', world.device);
    requireStream('stream', stream);
    requireObject('options', options, '{ layer }');
    requireMembers('options', options, loadOptions);
    const { layer } = options;
    const names = this.#names.get(layer);
    if (names?.unknown) {
      const wrong =
        'the layer has this too, and nothing here takes it: without it the layer would be another';
      throw new WeightsError(this.folder, names.unknown, wrong, 'take a model of another form');
    }
    if (names !== undefined) return names;
    const have = [...this.#names.keys()];
    const which =
      have.length === 0
        ? 'none has'
        : have.length === 1
          ? `only ${have[0]} has`
          : `${have[0]} to ${have.at(-1)} have`;
    const possible = `the number of a layer that has experts in ${this.folder}: ${which}`;
    throw new ArgumentError('layer', layer, possible);
  }

  async #load<W extends Readonly<Partial<Record<keyof W, Wanted>>>>(
    { device }: Destination,
    stream: Stream,
    { onProgress = () => {} }: LoadOptions,
    wantedOf: (files: OpenFiles) => Promise<W>,
  ) {
    const files = openFiles(this.folder, this.#places);
    try {
      return await load(device, stream, await wantedOf(files), onProgress);
    } finally {
      await files.close();
    }
  }
}

const expertTypes = ['BF16', 'F8_E4M3'] as const;
type StoredType = (typeof expertTypes)[number] | 'F32' | 'F8_E8M0' | 'U8';

const dtypeOf = {
  ...{ BF16: 'bf16', F8_E4M3: 'e4m3', F32: 'f32', F8_E8M0: 'f32', U8: 'u8' },
} as const satisfies Record<StoredType, Dtype>;

/** The shape of experts that are all of the size and type of one, `like`. `lead`: the dimensions before those of one. */
async function wantedMlp(
  files: OpenFiles,
  experts: readonly MatrixNames[],
  like: MatrixNames,
  lead: readonly number[],
) {
  const first = await files.find(`${like.gate}.weight`);
  const [inner = 0, hidden = 0] = first.tensor.shape;
  const dtype = requireStored(first, expertTypes, [inner, hidden], 'a matrix');
  const why = `as ${first.tensor.name} is ${first.tensor.dtype} [${inner}, ${hidden}]`;
  const scaled = dtype === 'e4m3';
  if (scaled && (inner % scaleBlock !== 0 || hidden % scaleBlock !== 0))
    throw new WeightsError(
      first.file.path,
      first.tensor.name,
      `it is [${inner}, ${hidden}], and e4m3 comes with a scale for every ${scaleBlock} × ${scaleBlock}`,
      `take a model whose matrices are multiples of ${scaleBlock}`,
    );
  /** The parts of a tensor, one behind the other. */
  const parts = async (
    suffix: 'weight' | 'weight_scale_inv',
    types: readonly StoredType[],
    of: readonly (keyof MatrixNames)[],
  ): Promise<Part[]> => {
    const unit = suffix === 'weight' ? 1 : scaleBlock;
    const found: Part[] = [];
    for (const names of experts)
      for (const matrix of of) {
        const located = await files.find(`${names[matrix]}.${suffix}`);
        const shape = matrix === 'down' ? [hidden, inner] : [inner, hidden];
        requireStored(
          located,
          types,
          shape.map((length) => length / unit),
          why,
        );
        found.push(whole(located));
      }
    return found;
  };
  const stored = [first.tensor.dtype as StoredType];
  const wide = [...lead, 2 * inner, hidden];
  const narrow = [...lead, hidden, inner];
  const weights = {
    gateUp: { dtype, shape: wide, parts: await parts('weight', stored, ['gate', 'up']) },
    down: { dtype, shape: narrow, parts: await parts('weight', stored, ['down']) },
  };
  if (!scaled) return weights;
  const blocks = (shape: readonly number[]) => [
    ...lead,
    ...shape.slice(-2).map((length) => length / scaleBlock),
  ];
  // DeepSeek-V3 has them as f32, Qwen3 as bf16; who stores powers of two needs no more than ue8m0.
  const types = ['F32', 'BF16', 'F8_E8M0'] as const;
  const scales = async (shape: readonly number[], of: readonly (keyof MatrixNames)[]): Promise<Wanted> => ({
    ...{ dtype: 'f32', shape: blocks(shape) },
    parts: await parts('weight_scale_inv', types, of),
  });
  return {
    ...weights,
    gateUpScales: await scales(wide, ['gate', 'up']),
    downScales: await scales(narrow, ['down']),
  };
}

/** Kernels clamp at one number; a model that was trained with another would give plausible rows that are wrong. */
async function requireClamp(folder: string): Promise<void> {
  const { swiglu_limit: limit = clampedSwiglu.limit } = await configOf(folder);
  if (limit === clampedSwiglu.limit) return;
  const wrong = `its swiglu_limit is ${show(limit)}, and the kernels clamp at ${clampedSwiglu.limit}`;
  throw new WeightsError(join(folder, 'config.json'), null, wrong, 'take a model of another form');
}

/**
 * gpt-oss's experts, of all ranks in one tensor: rows of e2m1, a scale for every 32 elements, gate and up in turns, and biases. `stem`
 * begins the names.
 */
async function wantedMxfp4(
  files: OpenFiles,
  stem: string,
  { ranks, rank, keep }: { readonly ranks: number; readonly rank: number; readonly keep: boolean },
) {
  const blocks = await files.find(`${stem}gate_up_proj_blocks`);
  const { shape, dtype, name } = blocks.tensor;
  const [experts = 0, both = 0, rowBlocks = 0] = shape;
  const inner = both / 2;
  const hidden = rowBlocks * mxfp4Block;
  requireStored(blocks, ['U8'], [experts, both, rowBlocks, 16], '16 bytes for every 32 weights');
  if (experts === 0 || hidden === 0 || inner === 0 || inner % mxfp4Block !== 0) {
    const wrong = `it is ${dtype} [${shape.join(', ')}], without whole blocks: each expert must have 2 · inner rows, and inner be a multiple of ${mxfp4Block}`;
    throw new WeightsError(blocks.file.path, name, wrong, 'take a model of another form');
  }
  const { first, count } = expertsOf({ experts, ranks }, rank);
  const why = `as ${name} is ${dtype} [${shape.join(', ')}]`;
  /** This rank's part of a tensor that has `each` for every expert. */
  const own = async (end: string, type: 'U8' | 'BF16', each: readonly number[]): Promise<Part> => {
    const located = await files.find(`${stem}${end}`);
    requireStored(located, [type], [experts, ...each], why);
    const bytes = located.tensor.bytes / experts;
    return { ...located, from: first * bytes, bytes: count * bytes };
  };
  const matrices = async (end: string, rows: number, columns: number, turns: 1 | 2): Promise<Wanted> => ({
    dtype: 'bf16',
    shape: [count, rows, columns],
    blocks: await own(`${end}_blocks`, 'U8', [rows, columns / mxfp4Block, 16]),
    scales: await own(`${end}_scales`, 'U8', [rows, columns / mxfp4Block]),
    turns,
  });
  /** The parts of experts one by one, each of which is put in another order. */
  const byExpert = (all: Part): Part[] =>
    Array.from({ length: count }, (_, e) => {
      const bytes = all.bytes / count;
      return { ...all, from: all.from + e * bytes, bytes };
    });
  const kept = async (
    end: string,
    rows: number,
    columns: number,
    order: (rowBytes: number) => (bytes: Uint8Array) => Uint8Array,
  ) => {
    const stride = columns / mxfp4Block;
    const numbers = await own(`${end}_blocks`, 'U8', [rows, stride, 16]);
    const scales = await own(`${end}_scales`, 'U8', [rows, stride]);
    const dtype = 'u8' as const;
    return [
      { dtype, shape: [count, rows, columns / 2], parts: byExpert(numbers), order: order(columns / 2) },
      {
        ...{ dtype, shape: [count, stride, rows], parts: byExpert(scales) },
        order: (bytes: Uint8Array) => turned(order(stride)(bytes), stride),
      },
    ] as const;
  };
  const stored = async () => {
    const [gateUp, gateUpScales] = await kept('gate_up_proj', both, hidden, gatesFirst);
    const [down, downScales] = await kept('down_proj', hidden, inner, () => (bytes) => bytes);
    return { gateUp, gateUpScales, down, downScales };
  };
  const widened = async () => ({
    gateUp: await matrices('gate_up_proj', both, hidden, 2),
    down: await matrices('down_proj', hidden, inner, 1),
  });
  return {
    ...(keep ? await stored() : await widened()),
    gateUpBias: {
      dtype: 'bf16',
      shape: [count, both],
      parts: byExpert(await own('gate_up_proj_bias', 'BF16', [both])),
      order: gatesFirst(2),
    },
    downBias: {
      dtype: 'bf16',
      shape: [count, hidden],
      parts: [await own('down_proj_bias', 'BF16', [hidden])],
    },
  } satisfies Record<string, Wanted>;
}

/** Reorders rows of so many bytes: the first, the third … and then the others. */
const gatesFirst =
  (rowBytes: number) =>
  (bytes: Uint8Array): Uint8Array => {
    const made = new Uint8Array(bytes.length);
    const rows = bytes.length / rowBytes;
    for (let row = 0; row < rows; row++) {
      const place = (row % 2) * (rows / 2) + Math.floor(row / 2);
      made.set(bytes.subarray(row * rowBytes, (row + 1) * rowBytes), place * rowBytes);
    }
    return made;
  };

/** Rows of so many bytes as columns. */
const turned = (bytes: Uint8Array, columns: number): Uint8Array => {
  const rows = bytes.length / columns;
  return bytes.map((_, i) => bytes[(i % rows) * columns + Math.floor(i / rows)]!);
};

/** Requires a stored tensor of one of these types and of this shape (`why`); returns its type's name here. */
function requireStored<T extends StoredType>(
  { file, tensor }: Located,
  types: readonly T[],
  shape: readonly number[],
  why: string,
): (typeof dtypeOf)[T] {
  const type = types.find((name) => name === tensor.dtype);
  const fits = tensor.shape.length === shape.length && shape.every((length, i) => length === tensor.shape[i]);
  if (type !== undefined && fits) return dtypeOf[type];
  const wrong = `it is ${shown(tensor)}, and ${types.join(' or ')} [${shape.join(', ')}] is wanted, ${why}`;
  throw new WeightsError(file.path, tensor.name, wrong, 'take a model of another form');
}
