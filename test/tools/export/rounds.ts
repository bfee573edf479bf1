/** Rounds of an exported host, and what Heddle's own host makes of them. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { bytesOf, ExpertParallel, emptyTensor, row } from '../../../src/moe/index.js';
import type { Layer, Source } from '../../../src/moe/layer/index.js';
import { World } from '../../../src/net/world/index.js';

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

/** [round][rank]: what combine leaves where the experts give back what they get. */
export async function heddleRounds(
  layer: Layer,
  rounds: readonly (readonly Source[])[],
  {
    device,
    ...options
  }: { readonly family: string; readonly split: boolean; readonly device: 'cuda' | 'sim' },
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
    for (const [n, sources] of rounds.entries()) {
      const { tokens, ...inputs } = sources[world.rank]!;
      const out = emptyTensor(world.device, dtype, [tokens, hidden]);
      const { output, payloads } = ep.dispatch(inputs, stream);
      stream.copy(output.data, payloads.x.data, output.bytes);
      ep.combine(out, stream);
      outs[n]![world.rank] = await stream.copyOut(out.data, out.bytes);
    }
    await ep.dispose();
  });
  return outs;
}
