/** What survivors see when a rank falls, with a GPU and a process each; and in a world of one process. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RankLostError } from '../../src/base/errors.js';
import { World } from '../../src/net/world/index.js';
import { casesOnGpus } from './cases.js';
import { gpus, keepAwake, needs, runRanks } from './machine.js';
import { placedRounds } from './rounds.js';

const ranks = gpus >= 4 ? 4 : 2;
const waitMs = 800;
/** What a survivor may need beyond the wait: hundreds of launches that end at once, and a busy machine. */
const marginMs = 1_500;

interface Report {
  readonly rank: number;
  readonly code: string;
  readonly ranks?: readonly number[];
  readonly operation?: string;
  readonly epoch?: number;
  readonly ms: number;
}

interface Replaced {
  readonly rank: number;
  readonly isNew: boolean;
  readonly masked: readonly number[];
  /** Values that are not what the reference says. */
  readonly wrong: number;
  readonly rounds: number;
  /** Those that left the rank out. */
  readonly without: number;
  /** How long the rounds of the others were late once, and how long they take, in ms. */
  readonly late: number;
  readonly round: number;
}

/**
 * Where the victim falls, and what the others say of it. Inside a kernel it falls while that waits for a rank that
 * comes late; that one hears of the loss first, so its call throws at once and knows no epoch.
 */
const points: readonly { readonly point: string; readonly operation: RegExp; readonly epoch: RegExp }[] = [
  ...['', ', pull', ', nvshmem'].flatMap((way) => [
    { point: `before dispatch${way}`, operation: /^dispatch$/, epoch: /^3$/ },
    { point: `in dispatch${way}`, operation: /^dispatch$/, epoch: /^(3|undefined)$/ },
    { point: `before combine${way}`, operation: /^combine$/, epoch: /^3$/ },
    { point: `in combine${way}`, operation: /^combine$/, epoch: /^(3|undefined)$/ },
  ]),
  { point: 'between rounds', operation: /^dispatch$/, epoch: /^undefined$/ },
  { point: 'in a graph', operation: /^(dispatch|combine)$/, epoch: /^\d+$/ },
  { point: 'stopped', operation: /^dispatch$/, epoch: /^3$/ },
];

for (const [i, { point, operation, epoch }] of points.entries()) {
  // Rank 0 too, and the last one.
  const victim = i % ranks;
  test(`rank ${victim} of ${ranks} processes falls: ${point}`, needs(ranks), async (context) => {
    const args = [point, String(victim), String(waitMs)];
    const { result, reports, stderr } = await runRanks<Report>(ranks, 'falling-rank.js', args, 30_000);
    context.diagnostic(
      reports.map((r) => `rank ${r.rank}: ${r.operation} ${r.epoch}, ${r.ms} ms`).join('; '),
    );
    assert.equal(result.timedOut, false, stderr);
    assert.deepEqual(
      result.results.map(({ signal, exitCode }) => signal ?? exitCode),
      Array.from({ length: ranks }, (_, rank) => (rank === victim ? 'SIGKILL' : 0)),
      stderr,
    );
    assert.equal(reports.length, ranks - 1, stderr);
    for (const report of reports) {
      assert.equal(report.code, 'HEDDLE_RANK_LOST', JSON.stringify(report));
      assert.deepEqual(report.ranks, [victim]);
      assert.match(String(report.operation), operation);
      assert.match(String(report.epoch), epoch);
      assert.ok(report.ms < waitMs + marginMs, `rank ${report.rank} took ${report.ms} ms`);
    }
  });
}

test('the GPUs are as good as before: a new world of processes', needs(ranks), async () => {
  const { result, reports, stderr } = await runRanks(ranks, 'round-trip-rank.js', ['^uneven'], 30_000);
  assert.equal(result.exitCode, 0, stderr);
  assert.equal(reports.length, 1);
});

// On a single GPU the processes take turns, so kernels wait longer.
const processes = gpus === 1 ? 3 : ranks;
for (const [family, victim] of [
  ['one-sided', 0],
  ['portable', processes - 1],
] as const) {
  const name = `a new process takes the place of rank ${victim}, and the others' graphs go on: ${family}`;
  test(name, needs(1, 90_000), async (context) => {
    const args = [family, String(victim), String(gpus === 1 ? 4_000 : waitMs)];
    const how = { restarts: 1, rejoin: true };
    const { result, reports, stderr } = await runRanks<Replaced>(
      ...([processes, 'replaced-rank.js', args, 80_000, how] as const),
    );
    for (const { rank, isNew, rounds, without, late, round } of reports)
      context.diagnostic(
        `rank ${rank}${isNew ? ' (new)' : ''}: ${rounds} rounds, ${without} without rank ${victim}; ` +
          `late once by ${late.toFixed(1)} ms, rounds of ${round.toFixed(2)} ms`,
      );
    assert.equal(result.exitCode, 0, stderr);
    assert.deepEqual(
      reports
        .map(({ rank, isNew, masked, wrong }) => ({ rank, isNew, masked, wrong }))
        .sort((a, b) => a.rank - b.rank),
      Array.from({ length: processes }, (_, rank) => ({
        rank,
        isNew: rank === victim,
        masked: [],
        wrong: 0,
      })),
      stderr,
    );
    for (const { isNew, without } of reports) assert.ok(isNew || without >= 5);
  });
}

test('a rank of one process throws, and the next world is well', needs(ranks), async () => {
  const letGo = keepAwake();
  const errors: unknown[] = [];
  const world = World.local({ ranks, device: 'cuda', timeoutMs: 15_000 }, async (world) => {
    const layer = { experts: 2 * ranks, topK: 2, maxTokens: 2, waitMs };
    const { ep, stream, inputs } = await placedRounds(world, layer, new Uint16Array(2 * 64));
    await world.barrier('ready');
    if (world.rank !== 1) ep.dispatch(inputs, stream);
    await world.barrier('enqueued');
    if (world.rank === 1) throw new Error('rank 1 falls');
    const since = performance.now();
    errors.push(await ep.synchronize(stream).catch((error) => error));
    assert.ok(performance.now() - since < waitMs + marginMs);
    // Nothing is unmapped here while the kernels of others may still write.
    await ep.dispose();
  });
  await assert.rejects(world, /rank 1 falls/);
  assert.equal(errors.length, ranks - 1);
  for (const error of errors) {
    assert.ok(error instanceof RankLostError, String(error));
    assert.deepEqual([error.ranks, error.operation, error.epoch], [[1], 'dispatch', 1]);
  }
  for (const { run } of casesOnGpus(ranks).slice(0, 2)) {
    await World.local({ ranks, device: 'cuda', timeoutMs: 15_000 }, run);
  }
  await letGo();
});
