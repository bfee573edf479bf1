/** What the kernels of an experts' plan are made for, and how they are spread over a device. */
import type { ExpertRows, Layer } from '../../layer/index.js';

/** More would not leave a block of the plan's kernel enough shared memory. */
export const mostLocalExperts = 1024;

export interface ExpertsShape extends ExpertRows {
  readonly layer: Layer;
  /** Experts of this rank, at least one. */
  readonly experts: number;
}

export const slotsOf = ({ ranks, maxTokens }: Layer): number => ranks * maxTokens;
export const routesOf = (layer: Layer): number => slotsOf(layer) * layer.topK;

/** Rows that a plan can hand out. */
export const rowsOfPlan = ({ form, experts, capacity }: ExpertsShape): number =>
  form === 'masked' ? experts * capacity : capacity;

export interface ExpertsSpread {
  readonly blocks: number;
  readonly threads: number;
}

/**
 * Every block counts all routes, so more blocks than this only make more of them read the same. A warp places 32 routes
 * or a multiple of it; with many experts, few warps leave room for their counts.
 */
export function planSpread({ layer, experts }: ExpertsShape, kind: 'sim' | 'cuda'): ExpertsSpread {
  const routes = routesOf(layer);
  if (kind === 'sim') return { blocks: Math.min(4, Math.ceil(routes / 64)), threads: 64 };
  const threads = experts > 512 ? 128 : experts > 256 || routes <= 2 ** 15 ? 512 : 960;
  return { blocks: Math.min(64, Math.ceil(routes / threads)), threads };
}

/** Expand and reduce: a block for a slot, or for a part of one where there are few. */
export function rowsSpread(
  { layer }: ExpertsShape,
  kind: 'sim' | 'cuda',
): ExpertsSpread & { readonly parts: number } {
  const slots = slotsOf(layer);
  if (kind === 'sim') return { blocks: Math.min(slots, 16), threads: 32, parts: 1 };
  const parts = slots <= 256 ? 4 : 1;
  return { blocks: Math.min(slots * parts, 132 * 8), threads: 256, parts };
}
