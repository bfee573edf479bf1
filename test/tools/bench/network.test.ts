import { describe, expect, it } from 'vitest';
import { allocate } from '../../../src/base/native/index.js';
import { NativeView } from '../../../src/gpu/index.js';
import { section } from '../../../src/lang/index.js';
import type { ProviderName } from '../../../src/net/fabric/index.js';
import { LocalCircle } from '../../../src/net/world/index.js';
import { inThread } from '../../../src/net/world/proxy/start.js';
import { control, networkAlone } from '../../../src/tools/bench/network/alone.js';
import { networkCeiling, type Ranks, roomFor } from '../../../src/tools/bench/network/ceiling.js';
import { meanSent, type SentRound } from '../../../src/tools/bench/network/sent.js';
import { rowsOf } from '../../../src/tools/bench/rows.js';
import { spread } from '../../../src/tools/bench/statistics.js';
import { needing } from '../../needs.js';

const wireBytes = 1000;
/** Out of the lower half of the wire into the upper one of each other rank. */
const to = (rank: number, ranks: number, bytes: readonly number[]) =>
  Array.from({ length: ranks }, (_, peer) => peer)
    .filter((peer) => peer !== rank)
    .flatMap((peer) =>
      bytes.map((length, i) => ({ peer, from: 100 * i, to: 500 + 100 * i + 10 * rank, bytes: length })),
    );

/** A rank without a GPU: its wire is memory of the host, its proxy a thread. */
function place(circle: LocalCircle, provider: ProviderName, wireBytes: number) {
  const native = allocate(roomFor(wireBytes));
  const raw = new Uint8Array(native.buffer);
  const ranks: Ranks = {
    ...{ rank: circle.rank, ranks: circle.ranks },
    allGather: (bytes, what) => circle.allGather(bytes, what),
    barrier: (what) => circle.barrier(what),
    startProxy: (options) =>
      inThread({ provider, devices: provider === 'shm' ? [] : ['lo'], timeoutMs: 20_000 })(
        options,
        null,
      ).begin(circle),
  };
  const { address, bytes, free } = native;
  return { ranks, raw, memory: { address, bytes, raw, host: new NativeView(raw), free } };
}

describe('the network alone', () => {
  for (const [provider, count] of [
    ['shm', 3],
    ['tcp;ofi_rxm', 2],
  ] as const)
    it(
      `over ${provider} sends among ${count} ranks what was sent, and times it`,
      needing(provider),
      async () => {
        const program = async (circle: LocalCircle) => {
          const { ranks, raw, memory } = place(circle, provider, wireBytes);
          const { rank } = ranks;
          raw.fill(rank + 1, 0, 500);
          // Uneven: the second round's combine has one message, and that of no bytes.
          const rounds: SentRound[] = [
            { dispatch: to(rank, count, [10, 0, 7]), combine: to(rank, count, [10]) },
            { dispatch: to(rank, count, [5]), combine: to(rank, count, [0]) },
          ];
          const ceiling = await networkCeiling(ranks, memory, { rounds, wireBytes, reach: undefined });
          const times = [
            await ceiling.time('dispatch', 3, 2, 1),
            await ceiling.time('combine', 3, 2, 0),
            await ceiling.time('both', 3, 2, 0),
          ];
          await ceiling.dispose();
          const landed = [...raw.subarray(500, wireBytes)];
          memory.free();
          return { times, landed, mean: await meanSent(circle, rounds) };
        };
        const results = await LocalCircle.run(count, program);
        for (const [rank, { times, landed, mean }] of results.entries()) {
          expect(times).toEqual(results[0]!.times); // the slowest rank's, known to all
          for (const values of times) {
            expect(values).toHaveLength(2);
            for (const value of values) expect(value).toBeGreaterThan(0);
          }
          const expected = new Array<number>(wireBytes - 500).fill(0);
          for (let source = 0; source < count; source++) {
            if (source === rank) continue;
            expected.fill(source + 1, 10 * source, 10 * source + 10);
            expected.fill(source + 1, 200 + 10 * source, 200 + 10 * source + 7);
          }
          expect(landed).toEqual(expected);
          const others = count - 1;
          expect(mean.dispatch).toEqual({ messages: 2 * others, bytes: 11 * others });
          expect(mean.combine).toEqual({ messages: others, bytes: 5 * others });
        }
      },
    );

  it('fails with what stopped its proxy', needing('tcp;ofi_rxm'), async () => {
    const program = async (circle: LocalCircle) => {
      const { ranks, memory } = place(circle, 'tcp;ofi_rxm', 64);
      const beyond = [{ peer: 1 - circle.rank, from: 0, to: 10_000, bytes: 16 }];
      const sent = { rounds: [{ dispatch: beyond, combine: [] }], wireBytes: 64, reach: undefined };
      const ceiling = await networkCeiling(ranks, memory, sent);
      return ceiling.time('dispatch', 1, 1, 0);
    };
    // A rank may hear of the other's end before that of its own proxy.
    const said = await LocalCircle.run(2, (circle) => program(circle).catch(String));
    expect(said.join('\n')).toMatch(/targetOffset is 10000/);
  });
});

it('ends a phase when all of it has left and come, whoever is ahead', () => {
  const memory = new NativeView(new Uint8Array(control.bytes));
  const at = (name: string) => section(control, name as 'asked').offset;
  const left: number[] = [];
  const coming: number[] = [];
  let room = 1;
  const program = networkAlone({
    ...{ rank: 0, ranks: 2, out: [], memory, side: 'host' },
    network: {
      write: ({ bytes, tag }) => room-- > 0 && left.push(bytes, tag) > 0,
      arrived: () => coming.shift() ?? -1,
    },
    data: {
      control: 0,
      rounds: [
        [
          { leave: to(0, 2, [10, 20]), come: 2 },
          { leave: to(0, 2, [30]), come: 1 },
        ],
      ],
    },
  });
  const turn = (roomNow: number, ...tags: number[]) => {
    room = roomNow;
    coming.push(...tags);
    left.length = 0;
    program.step();
    return [left.join(), memory.load(at('answered'))];
  };
  expect(turn(9)).toEqual(['', 0]); // nothing is asked
  memory.store(at('rounds'), 1);
  memory.store(at('phases'), 3);
  memory.store(at('asked'), 1);
  expect(turn(9)).toEqual(['', 0]);
  // The round before the timed one.
  expect(turn(1, 0)).toEqual(['10,0', 0]);
  expect(turn(1, 1)).toEqual(['20,0', 0]); // a peer that is a phase ahead
  expect(turn(9, 0)).toEqual(['', 0]);
  expect(turn(9)).toEqual(['30,1', 0]);
  // The timed one.
  expect(turn(9, 0, 0)).toEqual(['10,0,20,0', 0]);
  expect(turn(9)).toEqual(['30,1', 0]);
  expect(turn(9, 1)).toEqual(['', 1]);
  expect(turn(9)).toEqual(['', 1]);
});

it('is the ceiling of a round between nodes: × network is how many times as long it takes', () => {
  const alike = (microseconds: number) => spread([microseconds]);
  const times = new Map([
    ['heddle/both', alike(50)],
    ['network/dispatch', alike(12)],
    ['network/combine', alike(30)],
    ['network/both', alike(40)],
  ]);
  const bytes = { physical: 1, logical: 1, busiest: 1 };
  const rows = rowsOf(times, { dispatch: bytes, combine: bytes });
  expect(rows.find(({ subject }) => subject === 'heddle')).toMatchObject({ phase: 'both', ofCeiling: 0.8 });
  expect(rows.filter(({ subject }) => subject === 'network').map(({ phase, time }) => [phase, time])).toEqual(
    [
      ['dispatch', 12],
      ['combine', 30],
      ['both', 40],
    ],
  );
});
