/** The shape to which the kernels of one ExpertParallel are specialised, and how its nodes see each other. */
import { sharing } from '../../layer/index.js';
import { layerConstants } from '../common/params.js';
import type { Weighing } from '../common/weigh.js';
import type { HybridTuning } from './knobs.js';

export interface HybridShape extends Weighing, HybridTuning {
  readonly nodes: number;
  /** Ranks of a node: rank `local` of node `node` is the world's `node · localRanks + local`. */
  readonly localRanks: number;
}

/** A token has rows on so many ranks of a node at most. */
export const mostOwners = ({ topK, localRanks }: HybridShape): number => Math.min(topK, localRanks);

/**
 * Blocks that pack messages: as many as fill the bus to the host. With more, all messages would be ready at the same time, and the
 * first would leave late. Sums take longer to come by than rows.
 */
export const mostPackers = { dispatch: 8, combine: 32 } as const;

/** The other nodes, counted as hops: hop h of a node is the one h + 1 further on, around. */
export const hopsOf = ({ nodes }: Pick<HybridShape, 'nodes'>): number => nodes - 1;

/** Chunks are cut from a rank's share of its group's tokens: a token of theirs is a turn. */
export const chunksOf = (shape: HybridShape): number =>
  Math.ceil(sharing(shape).turns / shape.dispatch.chunk);

/** Constants of a shape, by the names by which kernels of this family ask for them. */
export const hybridConstants = (shape: HybridShape) => ({
  ...layerConstants(shape),
  NODES: shape.nodes,
  LOCAL: shape.localRanks,
  HOPS: hopsOf(shape),
  CHUNK: shape.dispatch.chunk,
  CHUNKS: chunksOf(shape),
  OWNERS: mostOwners(shape),
});
