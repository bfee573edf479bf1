/** The options of an MoE layer, and the model that it is one of. */
import {
  ArgumentError,
  oneOf,
  onlyGiven,
  requireFlag,
  requireInteger,
  requireMembers,
  requireObject,
  requireOneOf,
  type Table,
} from '../base/errors.js';
import type { ExpertsPlanOptions } from './experts/experts-options.js';
import { type Gemm, gemms } from './experts/mlp.js';
import { type MlpWeights, mlpUnit, requireWeights } from './experts/products.js';
import { familyNamed } from './families/index.js';
import {
  activations,
  expertsOf,
  limits,
  type MoeModel,
  type Placement,
  type ProfileName,
  profile,
  requirePlacement,
  scaleBlock,
} from './layer/index.js';
import { type ExpertParallelOptions, fp8, parallelOptions, row } from './rounds/options.js';
import type { RouterWeights } from './router/index.js';

/** All that the sizes of a layer's memory depend on. */
export interface MoeLayerSizes extends Pick<ExpertsPlanOptions, 'alignment' | 'capacity'> {
  /** A model that Heddle knows, or its numbers. */
  readonly model: ProfileName | MoeModel;
  /** The most tokens that this rank, or any other, brings to a round: to a forward, or to each chunk of one. */
  readonly maxTokens: number;
  /** Rounds in flight, default 1. With 2 the rows of a forward's next chunk travel while experts compute the last one, on a stream of its own. */
  readonly rounds?: 1 | 2;
  /** Lets the shared expert of up to 512 tokens run beside the routed ones, on a stream of its own. Default true. */
  readonly overlap?: boolean;
  /**
   * Where experts live; then `experts` are by place, those of empty places too, whatever they hold. Default: each in one place, dealt
   * out in order.
   */
  readonly placement?: Placement;
  /** The family of kernels that carries rows. Default 'auto': the first that can, where the ranks are. */
  readonly family?: string;
  /**
   * How dispatch carries rows: as they are (default), or as e4m3 with an f32 for every 128 elements, about half the bytes. Then
   * routed experts see rows that are rounded so; the router and a shared expert do not.
   */
  readonly rows?: 'bf16' | 'fp8';
  /**
   * The type of the experts' weights: bf16 (default); e4m3 with scales, for which `rows` must be 'fp8'; or MXFP4, four bits with scales. `create` sees
   * it by the weights themselves. A shared expert's weights may have another.
   */
  readonly weights?: LayerWeightsType;
  /**
   * The GEMMs that the routed experts run: Heddle's (default), or cuBLAS's, which take sizes from the host: then every expert
   * has `capacity` rows of its own, all of them multiplied.
   */
  readonly gemm?: Gemm;
  /**
   * A token has the same bits whatever comes with it, on however many ranks, wherever its experts live: a row for each of its routes
   * travels home, and no sum is cut by how many rows there are. Default false. Carried by 'one-sided', and not with cuBLAS.
   */
  readonly invariant?: boolean;
}

/** The types of experts' weights, by the names that users give. */
export const weightsTypes = ['bf16', 'fp8', 'mxfp4'] as const;
export type LayerWeightsType = (typeof weightsTypes)[number];

const weightsTypeOf = ({ experts }: Partial<MoeLayerWeights>): LayerWeightsType =>
  experts?.gateUp?.dtype === 'e4m3' ? 'fp8' : experts?.gateUp?.dtype === 'u8' ? 'mxfp4' : 'bf16';

export interface MoeLayerWeights {
  /** The weights of this rank's experts, or of its places where there is a placement: [experts here, 2 · inner, hidden] and [experts here, hidden, inner], with scales where they are e4m3 or MXFP4. */
  readonly experts: MlpWeights;
  /** The weights of the expert that every token goes to, [2 · inner, hidden] and [hidden, inner], where the model has one. */
  readonly sharedExperts?: MlpWeights;
  readonly router: RouterWeights;
}

/** The options of buffers, whoever's they are. */
export interface LayerBuffersOptions
  extends MoeLayerSizes,
    Pick<ExpertParallelOptions, 'sms' | 'waitMs' | 'onLoss' | 'waits'> {}

/** A layer with buffers of its own. */
export interface MoeLayerOptions extends LayerBuffersOptions, MoeLayerWeights {
  readonly buffers?: undefined;
}

/** What a layer brings to buffers that it shares with others. */
export interface SharingOptions extends MoeLayerWeights, Pick<MoeLayerSizes, 'placement'> {
  /** Default: the buffers' model. It may differ from that in `inner`, `sharedInner`, `activation`, `biases` and `routing`. */
  readonly model?: ProfileName | MoeModel;
}

const { sms, waitMs, onLoss, waits, rounds } = parallelOptions;
/** One object may be given to `memory` and to `create`. */
const layerOptions: Table<
  MoeLayerOptions & { readonly ranks: number; readonly nodes: number; readonly layers: number }
> = {
  ...{ buffers: true, layers: true, ranks: true, nodes: true, model: true, maxTokens: true },
  ...{ family: true, placement: true, alignment: true, capacity: true },
  ...{ experts: true, sharedExperts: true, router: true },
  ...{ overlap: requireFlag, invariant: requireFlag },
  ...{ gemm: oneOf(gemms), rows: oneOf(['bf16', 'fp8']), weights: oneOf(weightsTypes) },
  ...{ sms, waitMs, onLoss, waits, rounds },
};

const sharingOptions: Table<SharingOptions & { readonly buffers: unknown }> = {
  ...{ buffers: true, model: true, placement: true },
  ...{ experts: true, sharedExperts: true, router: true },
};

/** The plan of a layer over buffers with this plan. */
export function sharingPlanOf(set: LayerPlan, options: SharingOptions): LayerPlan {
  requireMembers('options', options, sharingOptions);
  const model = options.model === undefined ? set.model : modelOf(options.model);
  const must = (name: string, value: unknown, of: unknown): never => {
    throw new ArgumentError(`model.${name}`, value, `${of}, as that of the buffers`);
  };
  for (const name of ['hidden', 'experts', 'topK'] as const)
    if (model[name] !== set.model[name]) must(name, model[name], set.model[name]);
  const { sharedInner } = set.model;
  if ((model.sharedInner === undefined) !== (sharedInner === undefined))
    must('sharedInner', model.sharedInner, sharedInner === undefined ? 'absent' : 'a number');
  if (options.experts?.gateUp?.dtype === 'e4m3' && set.rows !== 'fp8')
    throw new ArgumentError('experts.gateUp', 'e4m3', "bf16 over buffers whose rows are not 'fp8'");
  return { ...set, model };
}

/** Options that are known to make sense, the model's numbers among them. */
export function setPlanOf(options: LayerBuffersOptions & Partial<MoeLayerWeights>) {
  requireMembers('options', options, layerOptions);
  const { family = 'auto', placement, rounds = 1, overlap = true, gemm = 'heddle', rows = 'bf16' } = options;
  const { invariant = false } = options;
  const can = family === 'auto' ? null : (familyNamed(family).can ?? []);
  if (invariant && can?.includes('routes') === false) {
    const possible =
      "'one-sided' or left out, because the layer is invariant: others add up rows before they are home";
    throw new ArgumentError('family', family, possible);
  }
  if (invariant && gemm === 'cublas')
    throw new ArgumentError('gemm', gemm, "'heddle', because the layer is invariant");
  if (placement !== undefined) requirePlacement('placement', placement);
  const model = modelOf(options.model);
  const given = weightsTypeOf(options);
  const { weights = given } = options;
  if (options.experts !== undefined && weights !== given)
    throw new ArgumentError('weights', weights, `'${given}', what experts.gateUp is`);
  if (weights === 'fp8' && rows !== 'fp8') {
    const possible = "'fp8', because the weights are e4m3: their GEMMs multiply rows of e4m3";
    throw new ArgumentError('rows', rows, possible);
  }
  if (rows === 'fp8' && model.hidden % scaleBlock !== 0) {
    const possible = `a multiple of ${scaleBlock}, because rows are 'fp8'`;
    throw new ArgumentError('model.hidden', model.hidden, possible);
  }
  if (gemm === 'cublas' && (model.biases === true || (model.activation ?? 'swiglu') !== 'swiglu'))
    throw new ArgumentError('gemm', gemm, "'heddle', because experts have biases or a clamped SwiGLU");
  if (weights === 'mxfp4' && gemm === 'cublas')
    throw new ArgumentError('gemm', gemm, "'heddle', because weights are MXFP4");
  if (rows === 'fp8' && gemm === 'cublas') throw new ArgumentError('rows', rows, "'bf16' with gemm 'cublas'");
  const maxTokens = requireInteger('maxTokens', options.maxTokens, 1, limits.maxTokens);
  const { experts, topK, hidden } = model;
  const carrier: ExpertParallelOptions = {
    ...{ experts, topK, maxTokens },
    payloads: { x: (rows === 'fp8' ? fp8 : row)('bf16', hidden) },
    output: row('bf16', hidden),
    weighting: invariant ? 'source' : can === null || can.includes('plans') ? 'plan' : 'experts',
    // To the rows that the shared expert makes.
    adds: model.sharedInner !== undefined,
    // Where nothing goes between a send and its receive, one launch is faster.
    ...{ rounds, split: rounds === 2 },
    ...(family === 'auto' ? {} : { family }),
    ...onlyGiven(options, 'placement', 'sms', 'waitMs', 'onLoss', 'waits'),
  };
  const { alignment = 1 } = options;
  const planned = (ranks: number): ExpertsPlanOptions => ({
    ...{ form: gemm === 'cublas' ? 'masked' : 'contiguous', alignment },
    // The router gives a token each expert at most once.
    ...(gemm === 'cublas' && { capacity: Math.ceil((ranks * maxTokens) / alignment) * alignment }),
    ...onlyGiven(options, 'capacity'),
  });
  return { model, overlap, rounds, maxTokens, rows, weights, gemm, invariant, carrier, planned };
}
export type LayerPlan = Readonly<ReturnType<typeof setPlanOf>>;

/** Requires weights of the model's sizes, for the experts that this rank has. */
export function requireLayerWeights(
  { model, carrier: { placement } }: LayerPlan,
  { experts, sharedExperts }: Pick<MoeLayerOptions, 'experts' | 'sharedExperts'>,
  { ranks, rank }: { readonly ranks: number; readonly rank: number },
): void {
  const { hidden, inner, sharedInner, biases = false, activation = 'swiglu' } = model;
  const { count } = expertsOf({ experts: placement?.places.length ?? model.experts, ranks }, rank);
  const wanted = 'weights: { gateUp, down }';
  requireObject('experts', experts, wanted);
  for (const name of ['gateUpBias', 'downBias'] as const) {
    const has = experts[name] !== undefined;
    if (has && !biases)
      throw new ArgumentError(`experts.${name}`, 'given', 'absent: the model has no `biases`');
    if (!has && biases)
      throw new ArgumentError(`experts.${name}`, experts[name], 'a tensor: the model has `biases`');
  }
  if (experts.activation !== undefined && experts.activation !== activation)
    throw new ArgumentError('experts.activation', experts.activation, `'${activation}', which the model has`);
  requireWeights('experts.', experts, count, hidden, inner);
  if (sharedInner !== undefined) {
    requireObject('sharedExperts', sharedExperts, wanted);
    requireWeights('sharedExperts.', sharedExperts!, null, hidden, sharedInner);
  } else if (sharedExperts !== undefined)
    throw new ArgumentError('sharedExperts', 'given', 'absent: the model has no sharedInner');
}

function modelOf(model: ProfileName | MoeModel): MoeModel {
  const of = typeof model === 'string' ? profile(model) : model;
  requireObject('model', of, "a profile's name, or its numbers");
  const { hidden, inner, sharedInner, activation, biases } = of;
  if (activation !== undefined) requireOneOf('model.activation', activation, activations);
  if (biases !== undefined) requireFlag('model.biases', biases);
  for (const [name, length] of Object.entries({ hidden, inner, sharedInner })) {
    if (length === undefined && name === 'sharedInner') continue;
    if (!Number.isInteger(length) || length! <= 0 || length! % mlpUnit !== 0) {
      const possible = `a multiple of ${mlpUnit}, what a tile of the kernels takes`;
      throw new ArgumentError(`model.${name}`, length, possible);
    }
  }
  return of;
}
