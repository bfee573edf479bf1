/** The names that models give to the tensors of their experts: from the names of all tensors to the layers that have experts. */
import { WeightsError } from '../../base/errors.js';

/** The three matrices of an expert, by their names without what follows the last dot: `.weight`, `.weight_scale_inv`. */
export interface MatrixNames {
  readonly gate: string;
  readonly up: string;
  readonly down: string;
}

/** A layer's tensors by name. */
export interface LayerNames {
  /** 'model.layers.3.mlp.' */
  readonly prefix: string;
  /** The number of experts; 'mxfp4', where all lie in one tensor as gpt-oss's; or why their tensors cannot be loaded. */
  readonly experts: number | 'mxfp4' | { readonly refused: string };
  readonly expert: (expert: number) => MatrixNames;
  /** The expert that every token goes to. */
  readonly shared: MatrixNames | null;
  readonly router: RouterNames;
  /** A tensor beside these, where there is one: without it the layer would be another. */
  readonly unknown: string | null;
}

export interface RouterNames {
  readonly weights: string;
  readonly bias: string | null;
  readonly correction: string | null;
}

/** Names of an expert's matrices, by the part that experts lie in: DeepSeek-V3, Kimi-K2, Qwen3-MoE and gpt-oss, then Mixtral. */
const matrices = {
  mlp: { gate: 'gate_proj', up: 'up_proj', down: 'down_proj' },
  block_sparse_moe: { gate: 'w1', up: 'w3', down: 'w2' },
} as const satisfies Record<string, MatrixNames>;

/** A model may have any prefix: `model.`, `language_model.model.`, none. */
const expertName =
  /^((?:.+\.)?layers\.(0|[1-9]\d{0,8})\.(mlp|block_sparse_moe)\.)experts\.(?:(0|[1-9]\d{0,8})\.|(gate_up_proj|down_proj)(?:_|$))/;

/** The names that may stand behind the prefix of a layer that has experts. */
const knownName =
  /^(?:(?:experts\.\d+|shared_experts)\.(?:\w+_proj|w[123])\.weight(?:_scale_inv)?|experts\.(?:gate_up|down)_proj(?:_(?:blocks|scales|bias))?|(?:gate|router)\.(?:weight|bias|e_score_correction_bias))$/;

interface Seen {
  readonly prefix: string;
  readonly block: keyof typeof matrices;
  readonly ids: Set<number>;
}

/** The layers that have experts, by number, in order. `folder` is what an error names. */
export function layersOf(folder: string, names: ReadonlySet<string>): ReadonlyMap<number, LayerNames> {
  const seen = new Map<number, Seen>();
  for (const name of names) {
    const match = expertName.exec(name);
    if (match === null) continue;
    const [, prefix = '', layer, block, id] = match;
    // Qwen3-Next's drafts count their layers from 0 again.
    if (/(^|\.)mtp\.layers\./.test(prefix)) continue;
    const of = seen.get(Number(layer)) ?? { prefix, block: block as Seen['block'], ids: new Set<number>() };
    if (of.prefix !== prefix) {
      const wrong = `layer ${layer} is called ${of.prefix}experts too`;
      throw new WeightsError(folder, name, wrong, 'keep the files of one model only');
    }
    seen.set(Number(layer), of);
    if (id !== undefined) of.ids.add(Number(id));
  }
  const prefixes = new Set([...seen.values()].map(({ prefix }) => prefix));
  const unknown = new Map<string, string>();
  for (const name of names) {
    const [prefix = ''] = /^(?:.+\.)?layers\.\d+\.\w+\./.exec(name) ?? [];
    if (prefixes.has(prefix) && !knownName.test(name.slice(prefix.length))) unknown.set(prefix, name);
  }
  const inOrder = [...seen].sort(([a], [b]) => a - b);
  return new Map(
    inOrder.map(([layer, of]) => [
      layer,
      { ...namesOf(folder, of, names), unknown: unknown.get(of.prefix) ?? null },
    ]),
  );
}

function namesOf(
  folder: string,
  { prefix, block, ids }: Seen,
  names: ReadonlySet<string>,
): Omit<LayerNames, 'unknown'> {
  for (let id = 0; id < ids.size; id++)
    if (!ids.has(id))
      throw new WeightsError(
        folder,
        `${prefix}experts.${id}`,
        `no file has this expert, and there are ${ids.size} others`,
        'complete the folder: it must hold one whole model',
      );
  const within = (stem: string): MatrixNames => ({
    gate: `${stem}${matrices[block].gate}`,
    up: `${stem}${matrices[block].up}`,
    down: `${stem}${matrices[block].down}`,
  });
  const has = (name: string): string | null => (names.has(name) ? name : null);
  const shared = within(`${prefix}shared_experts.`);
  const router = names.has(`${prefix}router.weight`) ? `${prefix}router.` : `${prefix}gate.`;
  return {
    prefix,
    experts: ids.size > 0 ? ids.size : inOneTensor(prefix, names),
    expert: (expert) => within(`${prefix}experts.${expert}.`),
    // Any of it: a folder that lacks a part is incomplete, which loading says.
    shared: Object.values(shared).some((matrix) => names.has(`${matrix}.weight`)) ? shared : null,
    router: {
      weights: `${router}weight`,
      bias: has(`${router}bias`),
      correction: has(`${router}e_score_correction_bias`),
    },
  };
}

function inOneTensor(prefix: string, names: ReadonlySet<string>): LayerNames['experts'] {
  if (names.has(`${prefix}experts.gate_up_proj_blocks`)) return 'mxfp4';
  return {
    refused: names.has(`${prefix}experts.gate_up_proj_bias`)
      ? "its experts are gpt-oss's, made bf16 and turned round; they are read in MXFP4, as they were published"
      : 'its experts lie in one tensor, and models differ in which way round; those with a tensor for each expert are read',
  };
}
