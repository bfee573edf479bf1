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

/** What a block of the logits' kernel makes: 16 tokens for each warp beside others, and so many times 8 experts. */
export interface LogitsTile {
  /** Warps that take 16 tokens each. */
  readonly tokenWarps: number;
  /** The parts of a row's elements, and how many groups these form: the same in all tiles. */
  readonly parts: number;
  readonly groups: number;
  /** Warps that share the parts: one for each part, or for each group. */
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

/** The tiles of the logits' kernel. Those for few tokens are small, so that many blocks read the weights; those for many are large, so that few blocks read each weight. */
export function logitsTiles({ experts, weights }: RouterShape, kind: 'sim' | 'cuda') {
  const cut = kind === 'sim' ? { parts: 4, groups: 2 } : { parts: 16, groups: 4 };
  const octets = experts > 64 ? 8 : experts > 16 ? 4 : 2;
  const { parts, groups } = cut;
  // Weights of f32 take twice the registers.
  const [held, deep] = weights === 'f32' ? [8, 5] : [16, 7];
  return {
    few: { ...cut, tokenWarps: 1, partWarps: parts, octets: 1, depth: deep },
    many: { ...cut, tokenWarps: 2, partWarps: groups, octets, depth: held / octets },
  } as const satisfies Record<string, LogitsTile>;
}

/** The warps of a choosing block take a token each. */
export const choosingThreads = { sim: 64, cuda: 128 } as const;
