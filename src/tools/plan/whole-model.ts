/** The memory of a rank for a whole model: the weights of its layers of experts, and the one set of buffers that they share. */
import { ArgumentError } from '../../base/errors.js';
import { MoeLayer } from '../../moe/index.js';
import { limits, type ProfileName, profile } from '../../moe/layer/index.js';
import type { DataSheet } from './machines.js';
import { nodesOf, type RankPlacement } from './routing.js';

export interface WholeModel {
  readonly model: ProfileName;
  /** Layers of experts. */
  readonly layers: number;
  readonly machine: DataSheet;
  readonly place: RankPlacement;
  /** The type of rows and of weights. */
  readonly dtype: 'bf16' | 'fp8';
}

/** Room for the rows of any routes; or for twice as many as a rank gets in the mean. */
export const rooms = ['any routes', 'twice the mean'] as const;
export type Room = (typeof rooms)[number];

/** The bytes of a rank with buffers for so many tokens a rank; null where no round can have so many. */
export function bytesOfModel(of: WholeModel, tokens: number, room: Room) {
  try {
    return bytesOf(of, tokens, room);
  } catch (error) {
    if (error instanceof ArgumentError && error.argument === 'maxTokens') return null;
    throw error;
  }
}

function bytesOf({ model, layers, place, dtype }: WholeModel, tokens: number, room: Room) {
  const { ranks } = place;
  const capacity = room === 'any routes' ? {} : { capacity: 2 * tokens * profile(model).topK };
  const of = { model, maxTokens: tokens, ranks, nodes: nodesOf(place), rows: dtype, weights: dtype };
  const { bytes, parts } = MoeLayer.memory({ ...of, ...capacity, layers });
  const weights = parts
    .filter(({ purpose }) => purpose.startsWith('weights'))
    .reduce((sum, part) => sum + part.bytes, 0);
  return { weights, buffers: bytes - weights };
}

/** The most tokens a rank for which buffers and weights fit into a GPU; 0 where not even weights do. */
export function mostTokens(of: WholeModel, room: Room): number {
  const fits = (tokens: number): boolean => {
    const bytes = bytesOfModel(of, tokens, room);
    return bytes !== null && bytes.weights + bytes.buffers <= of.machine.memory * 1e9;
  };
  let [most, beyond] = [0, 1];
  while (beyond <= limits.maxTokens && fits(beyond)) [most, beyond] = [beyond, 2 * beyond];
  for (let step = most / 2; step >= 1; step /= 2)
    if (most + step <= limits.maxTokens && fits(most + step)) most += step;
  return most;
}
