/** Rows of bf16 that one-sided's dispatch rounds to fp8: what arrives is what the host makes of them. */
import { ExpertParallel, emptyTensor, fp8, readBits, row, tensorFrom } from '../../../moe/index.js';
import { quantise, toF32 } from '../../../moe/layer/index.js';
import { World } from '../../../net/world/index.js';
import { compareBits, mergeComparisons, randomElements } from '../../testing/index.js';
import type { CheckConfiguration } from '../subject.js';
import { requireSame } from './by-rank.js';

/** Each rank sends rows that every rank has experts for. */
export function roundedRows(name: string, tokens: number, hidden: number): CheckConfiguration {
  const ranks = 2;
  const launch = { blocks: 2, threads: 64, parts: 2, inFlight: 4, teams: 1 };
  const tuning = {
    dispatch: { ...launch, way: 'store' },
    combine: { ...launch, way: 'push', ahead: 1 },
  };
  const ids = Int32Array.from({ length: tokens * ranks }, (_, route) => route % ranks);
  const inputs = [1, 2, 3].map((seed) =>
    Array.from({ length: ranks }, (_, rank) => randomElements('bf16', tokens * hidden, 10 * seed + rank, 6)),
  );
  return {
    name,
    ranks,
    async run(machine) {
      const compared = await World.local({ ranks, device: 'sim', sim: machine }, async (world) => {
        const { device, rank } = world;
        const stream = device.createStream();
        const ep = await ExpertParallel.create(world, {
          ...{ experts: ranks, topK: ranks, maxTokens: tokens, tuning, family: 'one-sided' },
          ...{ payloads: { x: fp8('bf16', hidden) }, output: row('bf16', 8) },
        });
        const out = emptyTensor(device, 'bf16', [tokens, 8]);
        const topkIds = tensorFrom(device, stream, ids, 'i32', [tokens, ranks]);
        const weights = new Float32Array(ids.length).fill(1);
        const topkWeights = tensorFrom(device, stream, weights, 'f32', [tokens, ranks]);
        const placed = inputs.map((all) => tensorFrom(device, stream, all[rank]!, 'bf16', [tokens, hidden]));
        for (const x of placed) {
          ep.dispatch({ topkIds, topkWeights, payloads: { x } }, stream);
          stream.fill(ep.received.output.data, ep.received.output.bytes, 0);
          ep.combine(out, stream);
        }
        await ep.synchronize(stream);
        const { x, xScales } = ep.received.payloads;
        const [rows, scales] = [await readBits(x, stream), await readBits(xScales, stream)];
        const expected = inputs.at(-1)!.map((bits) => quantise(toF32('bf16', bits)));
        return mergeComparisons(
          expected.flatMap((source, n) => [
            compareBits('rows', 'e4m3', rows.subarray(...planeOf(n, tokens * hidden)), source.e4m3, hidden),
            compareBits('scales', 'f32', scales.subarray(...planeOf(n, source.scales.length)), source.scales),
          ]),
        );
      });
      requireSame(...compared);
    },
  };
}

/** What lies in a tensor of source `n`. */
const planeOf = (n: number, length: number) => [n * length, (n + 1) * length] as const;
