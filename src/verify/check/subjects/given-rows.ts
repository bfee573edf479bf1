/**
 * Rounds with nothing enqueued between dispatch and combine: the rows that experts would make are there before the first
 * one. So a launch of combine follows one of dispatch directly, and begins while that runs; and rows may hold what no
 * experts make: nothing but the NaN that means EMPTY, or −0. Launches around them may write inputs, as soon as they may.
 */
import { callSite, type Stream } from '../../../gpu/index.js';
import type { SimMachine } from '../../../gpu/sim/index.js';
import { kernel, pointer } from '../../../lang/index.js';
import {
  bytesOf,
  type DispatchInputs,
  ExpertParallel,
  emptyTensor,
  type OwnedTensor,
  readBits,
  type Tensor,
  tensorFrom,
} from '../../../moe/index.js';
import { type Bits, bitsArray, bitsOf, type Dtype, reference } from '../../../moe/layer/index.js';
import { World } from '../../../net/world/index.js';
import {
  compareCombined,
  exampleInput,
  layerOf,
  makeSources,
  randomElements,
  shapeOfRounds,
} from '../../testing/index.js';
import type { CheckConfiguration } from '../subject.js';
import { once, requireSame } from './by-rank.js';
import { type FamilyOptionsOf, type Rounds, roundsOf } from './rounds.js';

const rounds = 3;
const givenLayer = { ranks: 2, experts: 4, topK: 2, maxTokens: 3, hidden: 16, dtype: 'bf16' } as const;

/** Writes a round's ids where the last one's were, as a router does. */
const route = kernel(
  { name: 'route', maxThreads: 32, params: { from: pointer('i32'), to: pointer('i32'), count: 'u32' } },
  (g, { from, to, count }) => {
    g.awaitPrevious();
    g.releaseNext();
    for (let i = g.threadIdx.x; i < count; i += g.blockDim.x) g.store(to.at(i), g.load(from.at(i)));
  },
);

/** Enqueues that kernel before each round, into one tensor for all. */
async function router({ device, rank }: World, stream: Stream, shape: readonly [number, number]) {
  const ids = emptyTensor(device, 'i32', shape, 'ids of a round');
  const site = await callSite(device, route, { grid: 1, block: 32, programmatic: true, rank });
  site.set.to(ids.data);
  site.set.count(shape[0] * shape[1]);
  return (topkIds: Tensor): Tensor => {
    site.set.from(topkIds.data);
    site.launch(stream);
    return ids;
  };
}

/** Overwrites a round's rows and weights, as the producer of the next round's does. */
const writeAgain = kernel(
  {
    name: 'write_again',
    maxThreads: 32,
    params: { rows: pointer('u32'), rowWords: 'u32', weights: pointer('f32'), count: 'u32' },
  },
  (g, { rows, rowWords, weights, count }) => {
    g.awaitPrevious();
    g.releaseNext();
    for (let i = g.threadIdx.x; i < rowWords; i += g.blockDim.x) g.store(rows.at(i), 0);
    for (let i = g.threadIdx.x; i < count; i += g.blockDim.x) g.store(weights.at(i), 0);
  },
);

async function reuser({ device, rank }: World, stream: Stream) {
  const site = await callSite(device, writeAgain, { grid: 1, block: 32, programmatic: true, rank });
  return (rows: OwnedTensor, weights: OwnedTensor): void => {
    site.set.rows(rows.data);
    site.set.rowWords(rows.bytes / 4);
    site.set.weights(weights.data);
    site.set.count(weights.bytes / 4);
    site.launch(stream);
  };
}

interface GivenRows extends Rounds {
  /** A kernel before each dispatch writes the ids. */
  readonly routed: boolean;
  /** Behind what a kernel writes rows and weights again; of two halves, behind the first. */
  readonly reusedBehind: 'dispatch' | 'combine' | null;
}

/** One configuration, or none where nobody carries them. */
export function givenRows(
  name: string,
  carried: FamilyOptionsOf,
  { routed = false, reusedBehind = null, ...differences }: Partial<GivenRows> = {},
): CheckConfiguration[] {
  const of = roundsOf({ ...givenLayer, ...differences });
  const family = carried(of);
  if (family === null) return [];
  const shape = shapeOfRounds(of);
  const { ranks, topK, maxTokens, output } = shape;
  const rows = Array.from({ length: ranks }, (_, rank) => rowsOf(shape, rank));
  const made = once(() => {
    const sources = Array.from({ length: rounds }, (_, n) => makeSources(shape, maxTokens, n + 1));
    const expected = sources.map((round) =>
      round.map((source, rank) => reference.combine(shape, source, rank, rows)),
    );
    return { sources, expected };
  });
  const run = async (machine: SimMachine): Promise<void> => {
    const { sources, expected } = made();
    const results = await World.local({ ranks, device: 'sim', sim: machine }, async (world) => {
      const ep = await ExpertParallel.create(world, layerOf(shape, { ...family, split: of.split }));
      const stream = world.device.createStream();
      stream.copyIn(ep.received.output.data, bytesOf(rows[world.rank]!));
      // All inputs are there before the first launch: a copy between two launches would keep them apart.
      const brought = sources.map((round) => {
        const { topkIds, topkWeights, payloads } = round[world.rank]!;
        const rowsIn = bitsOf(output.dtype, payloads[exampleInput]!);
        const place = <B extends Bits>(bits: B, dtype: Dtype, columns: number, what: string) =>
          tensorFrom(world.device, stream, bits, dtype, [maxTokens, columns], what);
        return {
          topkIds: place(topkIds, 'i32', topK, 'topkIds'),
          topkWeights: place(topkWeights!, 'f32', topK, 'topkWeights'),
          payloads: { [exampleInput]: place(rowsIn, output.dtype, output.hidden, exampleInput) },
        };
      });
      const outs = brought.map(() =>
        emptyTensor(world.device, output.dtype, [maxTokens, output.hidden], 'out'),
      );
      const idsOf = routed ? await router(world, stream, [maxTokens, topK]) : (ids: Tensor) => ids;
      const reuse = await reuser(world, stream);
      /** `sent` is called behind its first half, where it has two. */
      const dispatch = (inputs: DispatchInputs, sent: () => void): void => {
        const half = ep.split ? ep.dispatchSend(inputs, stream) : null;
        if (half === null) ep.dispatch(inputs, stream);
        sent();
        if (half !== null) ep.dispatchRecv(half, stream);
      };
      for (const [n, inputs] of brought.entries()) {
        const writeAgain = (behind: 'dispatch' | 'combine'): void => {
          if (behind === reusedBehind) reuse(inputs.payloads[exampleInput]!, inputs.topkWeights);
        };
        dispatch({ ...inputs, topkIds: idsOf(inputs.topkIds) }, () => writeAgain('dispatch'));
        ep.combine(outs[n]!, stream);
        writeAgain('combine');
      }
      await ep.synchronize(stream);
      return Promise.all(outs.map((out) => readBits(out, stream)));
    });
    requireSame(
      ...results.flatMap((outs, rank) =>
        outs.map((out, n) => compareCombined(shape, rank, out, expected[n]![rank]!)),
      ),
    );
  };
  return [{ name, ranks, run }];
}

/** Rows in turn: ordinary ones, the NaN whose bits are all ones, and −0. */
function rowsOf({ ranks, maxTokens, output }: ReturnType<typeof shapeOfRounds>, rank: number): Bits {
  const { hidden, dtype } = output;
  const rows = bitsArray(dtype, ranks * maxTokens * hidden);
  const bytes = bytesOf(rows);
  const rowBytes = bytes.length / (ranks * maxTokens);
  const negativeZero = bytesOf(Float32Array.of(-0)).subarray(dtype === 'f32' ? 0 : 2);
  for (let slot = 0; slot < ranks * maxTokens; slot++) {
    const row = bytes.subarray(slot * rowBytes, (slot + 1) * rowBytes);
    if (slot % 3 === 0) row.set(bytesOf(randomElements(dtype, hidden, rank * 1009 + slot, 6)));
    else if (slot % 3 === 1) row.fill(0xff);
    else for (let at = 0; at < rowBytes; at += negativeZero.length) row.set(negativeZero, at);
  }
  return rows;
}
