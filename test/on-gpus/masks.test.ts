/** Processes with a GPU each, of which one is killed in the middle of a round: the others leave it out, and their graph goes on. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gpus, needs, runRanks } from './machine.js';

const ranks = gpus >= 4 ? 4 : 2;
const waitMs = 400;
/** What a survivor may need beyond the wait, on a busy machine. */
const marginMs = 1_500;
/** How often for each family and victim; by hand some dozens. */
const times = Number(process.env.HEDDLE_TEST_STORMS ?? 1);

interface Report {
  readonly rank: number;
  readonly masked: readonly number[];
  readonly wrong: number;
  readonly missed: number;
  readonly longest: number;
}

for (const family of ['one-sided', 'portable']) {
  for (const [i, victim] of [0, ranks - 1].flatMap((victim) => Array<number>(times).fill(victim)).entries()) {
    // At once, inside its kernels, and behind them.
    const diesAfterMs = [0, 0.02, 0.05, 0.1, 0.5, 3, 20, 60][i % 8]!;
    test(
      `${family}: rank ${victim} of ${ranks} is killed after ${diesAfterMs} ms`,
      needs(ranks),
      async (context) => {
        const args = [family, victim, waitMs, diesAfterMs].map(String);
        const ran = await runRanks<Report>(ranks, 'masking-rank.js', args, 40_000, { keepGoing: true });
        const { result, reports, stderr } = ran;
        context.diagnostic(
          reports
            .map((r) => `rank ${r.rank}: ${r.missed.toFixed(0)} ms, then at most ${r.longest.toFixed(1)}`)
            .join('; '),
        );
        assert.equal(result.timedOut, false, stderr);
        assert.equal(reports.length, ranks - 1, stderr);
        for (const { masked, wrong, missed } of reports) {
          assert.deepEqual(masked, [victim]);
          assert.equal(wrong, 0);
          assert.ok(missed < waitMs + marginMs, `${missed} ms`);
        }
      },
    );
  }
}
