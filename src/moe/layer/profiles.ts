/** The MoE layers of models that people run, and what a row costs in the formats they send. */
import { ArgumentError, requireInteger, requireOneOf } from '../../base/errors.js';
import type { Activation } from './mlp.js';
import { limits, type Payload } from './shape.js';

/** The numbers of a model's MoE layer that matter to dispatch and combine. */
export interface Profile {
  /** Elements of a row. */
  readonly hidden: number;
  /** Routed experts of a layer; shared ones need no dispatch. */
  readonly experts: number;
  /** Experts that a token goes to. */
  readonly topK: number;
}

/** How a router makes experts and weights of a token's logits. */
export interface Routing {
  /** The function that is applied to logits: softmax over all experts, or sigmoid of each. */
  readonly scores: 'softmax' | 'sigmoid';
  /** Experts are in `count` groups of equal size, and only those of a token's best `top` groups are chosen. */
  readonly groups?: { readonly count: number; readonly top: number };
  /** The weights of a token are divided by their sum. */
  readonly normalise: boolean;
  /** By what weights are multiplied at the end. */
  readonly scale: number;
}

/** All numbers of a model's MoE layer. */
export interface MoeModel extends Profile {
  /** Rows of an expert's gate projection, and as many of its up projection. */
  readonly inner: number;
  /** The inner size of the expert that every token goes to, where there is one. */
  readonly sharedInner?: number;
  /** The activation of the routed experts. Default 'swiglu'. */
  readonly activation?: Activation;
  /** The routed experts have biases, of gate and up and of down. Default false. */
  readonly biases?: boolean;
  readonly routing: Routing;
}

const softmax: Routing = { scores: 'softmax', normalise: true, scale: 1 };
const sigmoid: Routing = { scores: 'sigmoid', normalise: true, scale: 2.5 };

/** Profiles by the names that benchmarks and commands take. */
export const profiles = {
  deepseek_v3: {
    ...{ hidden: 7168, experts: 256, topK: 8, inner: 2048, sharedInner: 2048 },
    routing: { ...sigmoid, groups: { count: 8, top: 4 } },
  },
  kimi_k2: {
    ...{ hidden: 7168, experts: 384, topK: 8, inner: 2048, sharedInner: 2048 },
    routing: { ...sigmoid, scale: 2.827 },
  },
  qwen3_235b: { hidden: 4096, experts: 128, topK: 8, inner: 1536, routing: softmax },
  gpt_oss_120b: {
    ...{ hidden: 2880, experts: 128, topK: 4, inner: 2880 },
    ...{ activation: 'clamped-swiglu', biases: true, routing: softmax },
  },
  // As DeepGEMM's fused layers are measured.
  flash: { hidden: 4096, experts: 256, topK: 6, inner: 2048, routing: sigmoid },
  mixtral: { hidden: 4096, experts: 8, topK: 2, inner: 14_336, routing: softmax },
} as const satisfies Record<string, MoeModel>;

export type ProfileName = keyof typeof profiles;

/** The profile of that name; an error that lists the names if there is none. */
export function profile(name: string): MoeModel {
  if (typeof name !== 'string' || !Object.hasOwn(profiles, name)) {
    throw new ArgumentError('profile', name, `one of ${Object.keys(profiles).join(', ')}`);
  }
  return profiles[name as ProfileName];
}

/** The model with other experts. Its groups go where what is left of them would be too few to choose from. */
export function withExperts(model: MoeModel, experts: number, topK: number): MoeModel {
  const { groups, ...routing } = model.routing;
  const keeps =
    groups !== undefined && experts % groups.count === 0 && (experts / groups.count) * groups.top >= topK;
  return { ...model, experts, topK, routing: keeps ? { ...routing, groups } : routing };
}

/** How activations travel: the bytes of a row's elements, and of one scale for every `block` of them. */
interface Format {
  readonly bits: number;
  readonly scale?: { readonly block: number; readonly bytes: number };
}

/** The formats that dispatch payloads come in. To Heddle all of them are opaque bytes. */
export const formats = {
  f32: { bits: 32 },
  bf16: { bits: 16 },
  f16: { bits: 16 },
  /** e4m3 with an f32 scale per 128 elements. */
  fp8: { bits: 8, scale: { block: 128, bytes: 4 } },
  /** e4m3 with a power-of-two (e8m0) scale per 32 elements. */
  mxfp8: { bits: 8, scale: { block: 32, bytes: 1 } },
  /** e2m1 with an e4m3 scale per 16 elements. */
  nvfp4: { bits: 4, scale: { block: 16, bytes: 1 } },
} as const satisfies Record<string, Format>;

export type FormatName = keyof typeof formats;
export const formatNames = Object.keys(formats) as readonly FormatName[];

/** The payloads that carry one token's activations: `x`, and `scales` where the format has them. */
export function payloadsFor(format: FormatName, hidden: number): Payload[] {
  requireOneOf('format', format, formatNames);
  requireInteger('hidden', hidden, 1, limits.rowBytes);
  const { bits, scale }: Format = formats[format];
  const x = { name: 'x', rowBytes: Math.ceil((hidden * bits) / 8) };
  return scale ? [x, { name: 'scales', rowBytes: Math.ceil(hidden / scale.block) * scale.bytes }] : [x];
}

/** All bytes of one token's activations in a format, scales included. */
export function rowBytes(format: FormatName, hidden: number): number {
  return payloadsFor(format, hidden).reduce((sum, payload) => sum + payload.rowBytes, 0);
}
