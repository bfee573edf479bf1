/** A layer's tokens in batches of any kind, to compare the bits of each token. */
import type { MoeLayerOptions } from '../../src/moe/index.js';
import type { Bits, MoeModel, Placement } from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import { runLayer } from './run-layer.js';
import type { LayerInputs } from './whole-layer.js';

/** Tokens of each rank, by number, and what else differs. */
export interface Batch extends Partial<MoeLayerOptions> {
  readonly tokens: readonly (readonly number[])[];
  readonly chunks?: number;
}

/** A placement in which the last expert comes first, and the first ones have two places each. */
export function turnedRound({ experts }: Pick<MoeModel, 'experts'>, ranks: number): Placement {
  const here = Math.ceil(experts / ranks) + 1;
  const ids = Array.from({ length: experts }, (_, e) => experts - 1 - e);
  const places = Array.from({ length: here * ranks }, (_, p) => ids[p] ?? (p - experts) % experts);
  return { experts, ranks, places };
}

/** Batches in which the first tokens are alone, among others, elsewhere, on more ranks and with experts elsewhere. */
export function batchesOf(model: MoeModel, all: number, mostRanks: number): Record<string, Batch> {
  const every = Array.from({ length: all }, (_, t) => t);
  const dealt = (ranks: number) =>
    Array.from({ length: ranks }, (_, rank) => every.filter((t) => (t * 5 + 3) % ranks === rank));
  const batches: Record<string, Batch> = {
    alone: { tokens: [[0]], maxTokens: 1 },
    'alone, in a large layer': { tokens: [[0]], maxTokens: 256 },
    'all, the other way round': { tokens: [every.toReversed()] },
    'in chunks': { tokens: [every], chunks: 3 },
  };
  for (let ranks = 2; ranks <= mostRanks; ranks *= 2) {
    batches[`on ${ranks} ranks`] = { tokens: dealt(ranks) };
    batches[`on ${ranks} ranks, experts elsewhere`] = {
      ...{ tokens: dealt(ranks).toReversed(), placement: turnedRound(model, ranks), overlap: false },
    };
  }
  return batches;
}

/** The bits of the tokens of a batch, by number. `inputs` has them all on one rank. */
export async function bitsOfTokens(
  inputs: LayerInputs,
  { tokens, chunks = 1, ...how }: Batch,
  device: 'sim' | 'cuda' = 'sim',
): Promise<ReadonlyMap<number, Bits>> {
  const { hidden } = inputs.model;
  const [all] = inputs.routed;
  const routed = tokens.map((own) => {
    const x = new Float32Array(own.length * hidden);
    for (const [i, t] of own.entries()) x.set(all!.x.subarray(t * hidden, (t + 1) * hidden), i * hidden);
    return { ...all!, x };
  });
  const maxTokens = Math.ceil(Math.max(...tokens.map(({ length }) => length)) / chunks);
  const runs = await World.local({ ranks: tokens.length, device }, (world) =>
    runLayer(world, { ...inputs, routed }, { maxTokens, chunks, ...how }),
  );
  return new Map(
    tokens.flatMap((own, rank) =>
      own.map((t, i) => [t, runs[rank]!.out.slice(i * hidden, (i + 1) * hidden)] as const),
    ),
  );
}
