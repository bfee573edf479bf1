/** The inputs of all ranks to a round, as tests and the reference have them. */
import { ArgumentError, requireArray, requireInteger, requireObject } from '../../base/errors.js';
import { type Bits, requireBits } from '../formats/index.js';
import { limits, type Shape, sharing } from './shape.js';

/** The input of one rank to a round. */
export interface Source {
  /** 0 … maxTokens. Ranks may bring different numbers. */
  readonly tokens: number;
  /** `[tokens, topK]` expert ids. −1, or any id out of range, is 'no expert'. An id may appear twice. */
  readonly topkIds: Int32Array;
  /** `[tokens, topK]` router weights. */
  readonly topkWeights?: Float32Array;
  /** By name: `[tokens, rowBytes]`. */
  readonly payloads: Readonly<Record<string, Uint8Array>>;
}

/** Requires what each rank brings to a round, by rank. */
export function requireSources(at: string, shape: Shape, sources: readonly Source[]): void {
  requireArray(at, sources, `what each of ${shape.ranks} ranks brings`, shape.ranks);
  for (const [rank, source] of sources.entries()) requireSource(`${at}[${rank}]`, shape, source);
  requireReplicas(at, shape, sources);
}

export function requireSource(at: string, shape: Shape, source: Source): void {
  requireObject(at, source, 'what a rank brings to a round');
  const { tokens, topkIds, topkWeights, payloads } = source;
  const routes =
    requireInteger(`${at}.tokens`, tokens, 0, Math.min(shape.maxTokens, limits.maxTokens)) * shape.topK;
  requireBits(`${at}.topkIds`, 'i32', topkIds, routes);
  if (topkWeights !== undefined) requireBits(`${at}.topkWeights`, 'f32', topkWeights, routes);
  requireObject(`${at}.payloads`, payloads, 'rows by name');
  for (const { name, rowBytes } of shape.payloads) {
    requireBits(`${at}.payloads.${name}`, 'u8', payloads[name], tokens * rowBytes);
  }
}

/** Requires that the ranks of a group bring the same. */
function requireReplicas(at: string, shape: Shape, sources: readonly Source[]): void {
  const { replicas } = sharing(shape);
  for (const [rank, source] of sources.entries()) {
    const first = rank - (rank % replicas);
    if (source === sources[first] || sameBytes(shape, source, sources[first]!)) continue;
    const possible = `what rank ${first} brings, which is of the same group`;
    throw new ArgumentError(`${at}[${rank}]`, source, possible);
  }
}

function sameBytes({ topK, payloads }: Shape, a: Source, b: Source): boolean {
  const same = (x: Bits = new Uint8Array(), y: Bits = new Uint8Array(), length: number): boolean =>
    x.subarray(0, length).every((value, i) => Object.is(value, y[i]));
  const { tokens } = a;
  return (
    tokens === b.tokens &&
    (a.topkWeights === undefined) === (b.topkWeights === undefined) &&
    same(a.topkIds, b.topkIds, tokens * topK) &&
    same(a.topkWeights, b.topkWeights, tokens * topK) &&
    payloads.every(({ name, rowBytes }) => same(a.payloads[name], b.payloads[name], tokens * rowBytes))
  );
}
