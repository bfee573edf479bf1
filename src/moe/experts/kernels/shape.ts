/** The shape for which the kernels of an experts' plan are made, and how they are spread over a device. */
import type { Device } from '../../../gpu/index.js';
import type { Spread } from '../../families/common/parts.js';
import { combineWeighs, type ExpertRows, type Layer, sharing } from '../../layer/index.js';
import { groupRows } from './hopper/shape.js';

/** More would not leave a block of the plan's kernel enough shared memory. */
export const mostLocalExperts = 1024;

export interface ExpertsShape extends ExpertRows {
  readonly layer: Layer;
  /** Experts of this rank, at least one. */
  readonly experts: number;
  /** Dispatch says how many tokens came from a source at most. */
  readonly reached?: true;
}

export const slotsOf = (layer: Layer): number => sharing(layer).groups * layer.maxTokens;
export const routesOf = (layer: Layer): number => slotsOf(layer) * layer.topK;

/** Whether a plan keeps the routes' weights: combine takes its rows, and applies them while peers may write to the slots. */
export const keepsWeights = combineWeighs;

/** Rows of each expert if routes were even. */
export const evenRows = (layer: Layer): number => Math.ceil(routesOf(layer) / layer.experts);

/** Rows that a plan can hand out. */
export const rowsOfPlan = ({ form, experts, capacity }: ExpertsShape): number =>
  form === 'masked' ? experts * capacity : capacity;

/**
 * Up to so many rows of all experts together count as few, where most rounds are expected to bring more: a plan tells the kernels for few and
 * those for many which of them have work. 0 where it does not: where few are expected, or rows do not follow each other.
 */
export const fewRows = ({ layer, form, experts }: ExpertsShape): number =>
  form === 'contiguous' && evenRows(layer) > groupRows ? groupRows * experts : 0;

/** The numbers that describe the experts of a plan. */
export const sizesOfPlan = (shape: ExpertsShape): number =>
  fewRows(shape) === 0 ? 2 * shape.experts + 2 : 4 * shape.experts + 2;

/** The most tokens of a rank with which rows are few, if every rank brings as many and routes are even. */
export const fewTokens = (layer: Layer): number =>
  Math.floor((groupRows * layer.maxTokens) / evenRows(layer));

/** The facts about a device that decide how kernels spread over it. */
export type Chip = Pick<Device, 'kind' | 'multiprocessors'>;

/**
 * Every block counts all routes, so more blocks than this only make more of them read the same. A warp places 32 routes
 * in a step; with many experts, few warps leave room for their counts.
 */
export function planSpread({ layer, experts }: ExpertsShape, { kind }: Chip): Omit<Spread, 'parts'> {
  const routes = routesOf(layer);
  const most = kind === 'sim' ? 4 : 64;
  const small = experts > 256 || routes <= 2 ** 15;
  const threads = kind === 'sim' ? 64 : experts > 512 ? 128 : small ? 512 : 960;
  const steps = Math.ceil(routes / (most * threads));
  return { blocks: Math.ceil(routes / (steps * threads)), threads };
}

/** Expand and reduce: a block for a slot, or for a part of one where there are few. */
export function rowsSpread({ layer }: ExpertsShape, { kind, multiprocessors }: Chip): Spread {
  const slots = slotsOf(layer);
  if (kind === 'sim') {
    const parts = slots <= 8 ? 2 : 1;
    return { blocks: Math.min(slots * parts, 16), threads: 64, parts };
  }
  const parts = slots <= 256 ? 4 : 1;
  return { blocks: Math.min(slots * parts, 8 * multiprocessors), threads: 256, parts };
}
