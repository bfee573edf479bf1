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
  /** Something is added to scores where experts are chosen. */
  readonly correction: boolean;
}

/** What a block of the logits' kernel makes: 16 tokens for each warp beside others, and so many times 8 experts. */
export interface LogitsTile {
  /** Warps that take 16 tokens each. */
  readonly tokenWarps: number;
  /** The parts of a row's elements, and the warps that share them: all parts have a warp each, or one warp has all. */
  readonly parts: number;
  readonly partWarps: number;
  readonly octets: number;
  /** Pieces of 32 elements that a warp loads before it uses the first. */
  readonly depth: number;
}

export const rowsOf = ({ tokenWarps }: LogitsTile): number => 16 * tokenWarps;
export const columnsOf = ({ octets }: LogitsTile): number => 8 * octets;
export const threadsOf = ({ tokenWarps, partWarps }: LogitsTile): number => 32 * tokenWarps * partWarps;

export const tilesOf = ({ experts }: RouterShape, tile: LogitsTile, tokens: number): number =>
  Math.ceil(tokens / rowsOf(tile)) * Math.ceil(experts / columnsOf(tile));

/** Of few tokens each tile is small, so that many blocks read the weights; of many large, so that each is read by few blocks. */
export function logitsTiles({ experts }: RouterShape, kind: 'sim' | 'cuda') {
  const parts = kind === 'sim' ? 2 : 8;
  const octets = Math.min(8, Math.ceil(experts / 16));
  return {
    few: { tokenWarps: 1, parts, partWarps: parts, octets: 1, depth: 4 },
    many: { tokenWarps: parts, parts, partWarps: 1, octets, depth: octets > 4 ? 1 : 2 },
  } as const satisfies Record<string, LogitsTile>;
}

/** The warps of a choosing block take a token each. */
export const choosingThreads = { sim: 64, cuda: 128 } as const;
