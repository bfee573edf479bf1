/** Rows of bf16 that dispatch rounds: what arrives is what the host makes of them. */
import { ExpertParallel, emptyTensor, fp8, mxfp8, readBits, row, tensorFrom } from '../../../moe/index.js';
import { roundRows, scaledFormats, toF32 } from '../../../moe/layer/index.js';
import { World } from '../../../net/world/index.js';
import { compareBits, mergeComparisons, randomElements } from '../../testing/index.js';
import type { CheckConfiguration } from '../subject.js';
import { once, requireSame } from './by-rank.js';
import { type Carried, type Rounds, roundsOf } from './rounds.js';

interface RoundedRows extends Rounds {
  /** Of a row that is rounded. */
  readonly length: number;
  /** 'e4m3' is what `fp8` asks for. */
  readonly format: keyof typeof scaledFormats;
}

/** Each rank sends rows that every rank has experts for. One configuration, or none where nobody carries them. */
export function roundedRows(
  name: string,
  carried: Carried,
  { length = 256, format = 'e4m3', ...differences }: Partial<RoundedRows> = {},
): CheckConfiguration[] {
  const of = roundsOf(differences);
  const { ranks, nodes, maxTokens, hidden } = of;
  const routed = { ...of, topK: ranks, experts: ranks };
  const carrier = carried(routed);
  if (carrier === null) return [];
  const ids = Int32Array.from({ length: maxTokens * ranks }, (_, route) => route % ranks);
  const payload = (format === 'mxfp8' ? mxfp8 : fp8)('bf16', length);
  const { scale } = scaledFormats[format];
  const made = once(() => {
    const inputs = [1, 2, 3].map((seed) =>
      Array.from({ length: ranks }, (_, rank) =>
        randomElements('bf16', maxTokens * length, 10 * seed + rank, 6),
      ),
    );
    const expected = inputs.at(-1)!.map((bits) => roundRows(toF32('bf16', bits), scaledFormats[format]));
    return { inputs, expected };
  });
  return [
    {
      name,
      ranks,
      async run(machine) {
        const { inputs, expected } = made();
        const on = { ranks, nodes, device: 'sim', sim: machine } as const;
        const compared = await World.local(on, async (world) => {
          const { device, rank } = world;
          const stream = device.createStream();
          const ep = await ExpertParallel.create(world, {
            ...{ experts: ranks, topK: ranks, maxTokens, ...carrier },
            ...{ payloads: { x: payload }, output: row('bf16', hidden) },
          });
          const out = emptyTensor(device, 'bf16', [maxTokens, hidden]);
          const topkIds = tensorFrom(device, stream, ids, 'i32', [maxTokens, ranks]);
          const weights = new Float32Array(ids.length).fill(1);
          const topkWeights = tensorFrom(device, stream, weights, 'f32', [maxTokens, ranks]);
          const placed = inputs.map((all) =>
            tensorFrom(device, stream, all[rank]!, 'bf16', [maxTokens, length]),
          );
          for (const x of placed) {
            ep.dispatch({ topkIds, topkWeights, payloads: { x } }, stream);
            stream.fill(ep.received.output.data, ep.received.output.bytes, 0);
            ep.combine(out, stream);
          }
          await ep.synchronize(stream);
          const { x, xScales } = ep.received.payloads;
          const [rows, scales] = [await readBits(x, stream), await readBits(xScales, stream)];
          return mergeComparisons(
            expected.flatMap((source, n) => [
              compareBits(
                'rows',
                'e4m3',
                rows.subarray(...planeOf(n, source.e4m3.length)),
                source.e4m3,
                length,
              ),
              compareBits(
                'scales',
                scale,
                scales.subarray(...planeOf(n, source.scales.length)),
                source.scales,
              ),
            ]),
          );
        });
        requireSame(...compared);
      },
    },
  ];
}

/** What lies in a tensor of source `n`. */
const planeOf = (n: number, length: number) => [n * length, (n + 1) * length] as const;
