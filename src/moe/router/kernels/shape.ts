/** The shape for which the router's kernels are made, and how they are spread over a device. */
import type { Routing } from '../../layer/index.js';

/** A lane of the choosing warp holds a 32nd of a token's scores, in registers. */
export const mostRoutedExperts = 1024;

export interface RouterShape {
  /** A multiple of 8: rows are read as vectors of 8 bf16. */
  readonly hidden: number;
  readonly experts: number;
  readonly topK: number;
  readonly routing: Routing;
  /** The type of the router's weights. */
  readonly weights: 'bf16' | 'f32';
  readonly bias: boolean;
  /** Whether a correction is added to scores when experts are chosen. */
  readonly correction: boolean;
}

/** A block of the logits' kernel makes so many tokens' products with so many experts: together a lane each. */
export const tile = { tokens: 4, experts: 8 } as const;

export const tilesOf = ({ experts }: RouterShape, tokens: number): number =>
  Math.ceil(tokens / tile.tokens) * Math.ceil(experts / tile.experts);

/** The warps of a block share a tile's elements; those of a choosing block take a token each. */
export const routerThreads = (kind: 'sim' | 'cuda'): { readonly logits: number; readonly choose: number } =>
  kind === 'sim' ? { logits: 64, choose: 64 } : { logits: 256, choose: 128 };
