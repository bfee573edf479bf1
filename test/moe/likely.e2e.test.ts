/** Mistakes that no call can see make a kernel give up waiting for a rank that lives: the error says what is likely. */
import { describe, expect, test, vi } from 'vitest';
import { type HeddleError, RankLostError } from '../../src/base/errors.js';
import type { Stream } from '../../src/gpu/index.js';
import { ExpertParallel, emptyTensor, row } from '../../src/moe/index.js';
import { World } from '../../src/net/world/index.js';

interface Trial {
  readonly family: string;
  readonly replicas?: number;
  readonly tokens?: readonly number[];
  /** Enqueues what stands between the two streams, of which dispatch has the first and combine the second. */
  between?(first: Stream, second: Stream, event: ReturnType<World['device']['createEvent']>): void;
  /** A rank that does not come, and one that forgets to combine. */
  readonly absent?: number;
  readonly forgets?: number;
}

/** What each rank hears of one round. */
function heard({
  family,
  replicas = 1,
  tokens = [4, 4],
  between,
  absent,
  forgets,
}: Trial): Promise<unknown[]> {
  return World.local({ ranks: 2, device: 'sim' }, async (world) => {
    const { device, rank } = world;
    const ep = await ExpertParallel.create(world, {
      ...{ experts: 4, topK: 1, maxTokens: 4, family, replicas, waitMs: 20, weights: false },
      payloads: { x: row('bf16', 8) },
      output: row('bf16', 8),
    });
    const first = device.createStream();
    const second = between ? device.createStream() : first;
    if (rank === absent) return 'absent';
    const own = tokens[rank]!;
    // All routes lead to the other rank.
    const topkIds = new Int32Array(own).fill(2 - 2 * rank);
    ep.dispatch({ topkIds, payloads: { x: new Uint16Array(own * 8) } }, first);
    between?.(first, second, device.createEvent());
    if (rank !== forgets) ep.combine(emptyTensor(device, 'bf16', [own, 8]), second);
    return ep.synchronize(second).then(
      () => 'all is well',
      (error: unknown) => error,
    );
  });
}

const families = ['one-sided', 'portable'];

const mistakes: readonly (readonly [string, Omit<Trial, 'family'>, RegExp])[] = [
  [
    'a round on two streams that nothing orders',
    { between() {} },
    /^rank \d did not answer during \w+ \(epoch \d\); this rank enqueued a round on more than one stream, .*stream.wait\)$/,
  ],
  [
    'ranks of a group that bring different numbers of tokens',
    { replicas: 2, tokens: [4, 2] },
    /^rank \d did not answer during combine \(epoch 1\); ranks 0 to 1 are a group, .* tokens to a round: rank 0 last brought 4, rank 1 last brought 2$/,
  ],
  [
    'a rank that forgets to combine',
    { forgets: 1 },
    /rank 1 did not answer during combine.*rank 1 has dispatched a round and not combined it/,
  ],
  [
    'a rank that does not come',
    { absent: 1 },
    /rank 1 did not answer during dispatch.*; layers with onLoss: 'mask' go on without it/,
  ],
];
describe.each(families)('%s', (family) => {
  test.each(mistakes)('%s', async (_, trial, said) => {
    const errors = await heard({ family, ...trial });
    const lost = errors.filter((error) => error instanceof RankLostError);
    expect(lost.length).toBeGreaterThan(0);
    for (const { message } of lost) expect(message).toMatch(said);
  });
});

test.each(families)('%s: a round on two streams that an event orders', async (family) => {
  const between: Trial['between'] = (first, second, event) => {
    first.record(event);
    second.wait(event);
  };
  expect(await heard({ family, between })).toEqual(['all is well', 'all is well']);
});

test.each([
  ['was not combined says so', 'is done', ['HEDDLE_ROUND_OPEN']],
  ['a loss cut off says nothing', 'is lost', []],
])('a layer that is disposed with a round that %s', async (_, round, codes) => {
  const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
  await World.local({ ranks: 1, device: 'sim' }, async (world) => {
    const stream = world.device.createStream();
    const ep = await ExpertParallel.create(world, {
      ...{ experts: 1, topK: 1, maxTokens: 1, weights: false, payloads: {}, output: row('bf16', 8) },
    });
    ep.dispatch({ topkIds: new Int32Array(1), payloads: {} }, stream);
    await stream.synchronize();
    if (round === 'is lost') world.circle.abandon('it cannot go on');
    await ep.dispose();
  });
  expect(warn.mock.calls.map(([error]) => (error as HeddleError).code)).toEqual(codes);
  warn.mockRestore();
});
