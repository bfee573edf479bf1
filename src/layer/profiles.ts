/** The MoE layers of models that people run, and what a row costs in the formats they send. */
import { ArgumentError, requireInteger, requireOneOf } from '../errors/index.js';
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

/** Profiles by the names that benchmarks and commands take. */
export const profiles = {
  deepseek_v3: { hidden: 7168, experts: 256, topK: 8 },
  kimi_k2: { hidden: 7168, experts: 384, topK: 8 },
  qwen3_235b: { hidden: 4096, experts: 128, topK: 8 },
  gpt_oss_120b: { hidden: 2880, experts: 128, topK: 4 },
  mixtral: { hidden: 4096, experts: 8, topK: 2 },
} as const satisfies Record<string, Profile>;

/** The names of the profiles. */
export type ProfileName = keyof typeof profiles;

/** The profile of that name; an error that lists the names if there is none. */
export function profile(name: string): Profile {
  if (typeof name !== 'string' || !Object.hasOwn(profiles, name)) {
    throw new ArgumentError('profile', name, `one of ${Object.keys(profiles).join(', ')}`);
  }
  return profiles[name as ProfileName];
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

/** The names of the formats. */
export type FormatName = keyof typeof formats;

/** The payloads that carry one token's activations: `x`, and `scales` where the format has them. */
export function payloadsFor(format: FormatName, hidden: number): Payload[] {
  requireOneOf('format', format, Object.keys(formats));
  requireInteger('hidden', hidden, 1, limits.rowBytes);
  const { bits, scale }: Format = formats[format];
  const x = { name: 'x', rowBytes: Math.ceil((hidden * bits) / 8) };
  return scale ? [x, { name: 'scales', rowBytes: Math.ceil(hidden / scale.block) * scale.bytes }] : [x];
}

/** All bytes of one token's activations in a format, scales included. */
export function rowBytes(format: FormatName, hidden: number): number {
  return payloadsFor(format, hidden).reduce((sum, payload) => sum + payload.rowBytes, 0);
}
