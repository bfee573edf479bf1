/** Rounds of an exported host, and what Heddle's own host makes of them. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  bytesOf,
  ExpertParallel,
  ExpertsMlp,
  ExpertsPlan,
  emptyTensor,
  type MlpWeights,
  row,
  tensorFrom,
} from '../../../src/moe/index.js';
import type { Bits, Layer, Source } from '../../../src/moe/layer/index.js';
import { World } from '../../../src/net/world/index.js';
import type { PlannedWeights } from '../../../src/tools/export/rounds.js';
import { makeMlp, makePackedMlp, stacked, type WeightsPart } from '../../../src/verify/trials/index.js';

/** As examples/export/engine.cpp reads them. */
export function writeInputs(
  folder: string,
  { payloads }: Layer,
  rounds: readonly (readonly Source[])[],
): void {
  for (const [n, sources] of rounds.entries()) {
    for (const [r, { tokens, topkIds, topkWeights, payloads: rows }] of sources.entries()) {
      const parts = [topkIds, topkWeights!, ...payloads.map(({ name }) => rows[name]!)].map(bytesOf);
      writeFileSync(join(folder, `in-${n}-${r}`), Buffer.concat([bytesOf(Uint32Array.of(tokens)), ...parts]));
    }
  }
}

/** The weights of a rank's experts: MXFP4 where they have scales, or bf16. */
export function expertsOf(weights: readonly PlannedWeights[], rank: number): Map<PlannedWeights, Bits> {
  const down = weights.find(({ name }) => name === 'down')!.shape;
  const [experts, hidden, columns] = down as [number, number, number];
  const make = weights.some(({ name }) => name === 'downScales')
    ? (seed: number) => makePackedMlp(hidden, 2 * columns, seed)
    : (seed: number) => makeMlp(hidden, columns, seed);
  const made = Array.from({ length: experts }, (_, e) => make(16 * rank + e));
  return new Map(weights.map((of) => [of, stacked(made, of.name as WeightsPart)]));
}

/** [round][rank]: what combine leaves of a rank's experts, or where experts give back what they get. */
export async function heddleRounds(
  layer: Layer,
  rounds: readonly (readonly Source[])[],
  {
    device,
    experts,
    ...options
  }: {
    readonly family: string;
    readonly split: boolean;
    readonly device: 'cuda' | 'sim';
    readonly experts?: (rank: number) => ReadonlyMap<PlannedWeights, Bits>;
  },
): Promise<Uint8Array[][]> {
  const outs: Uint8Array[][] = rounds.map(() => []);
  const { dtype, hidden } = layer.output;
  await World.local({ ranks: layer.ranks, device }, async (world) => {
    const stream = world.device.createStream();
    const ep = await ExpertParallel.create(world, {
      ...layer,
      ...options,
      payloads: { x: row(dtype, hidden) },
      output: row(dtype, hidden),
    });
    const weights = Array.from(experts?.(world.rank) ?? [], ([of, bits]) => [
      of.name,
      tensorFrom(world.device, stream, bits, of.dtype, of.shape),
    ]);
    const plan = experts && (await ExpertsPlan.create(ep));
    const mlp = plan && (await ExpertsMlp.create(ep, plan, Object.fromEntries(weights) as MlpWeights));
    for (const [n, sources] of rounds.entries()) {
      const { tokens, ...inputs } = sources[world.rank]!;
      const out = emptyTensor(world.device, dtype, [tokens, hidden]);
      const received = ep.dispatch(inputs, stream);
      plan?.plan(received, stream);
      if (mlp) mlp.run(received, stream, tokens);
      else stream.copy(received.output.data, received.payloads.x.data, received.output.bytes);
      ep.combine(out, stream, mlp?.made ?? undefined);
      outs[n]![world.rank] = await stream.copyOut(out.data, out.bytes);
    }
    await ep.dispose();
  });
  return outs;
}
