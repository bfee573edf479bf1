import { expect } from 'vitest';
import { transpiledUrl } from '../../tree.js';
import type { Hosts } from './hosts.js';
import { type Ranks, runRanks } from './ranks.js';
import type { LossReport } from './roles.js';

const module = transpiledUrl('test/net/fabric/roles.ts');
/** The bystander, a process of its own, answers within it also on a busy machine that drops what udp sends. */
export const timeoutMs = 4000;
/** Of each such test. */
export const limitMs = 120_000;

/** Runs three ranks and ends rank 1 with `end` once the writes to it flow. */
export async function lose(
  provider: string,
  end: (ranks: Ranks) => void,
  { bytes = 4096, hosts, thread = 'worker' }: { bytes?: number; hosts?: Hosts; thread?: string } = {},
): Promise<{ report: LossReport; landed: number }> {
  const devices = provider === 'shm' ? [] : [hosts ? 'net0' : 'lo'];
  const results = await runRanks({
    ranks: 3,
    module,
    name: 'losesAPeer',
    args: { bytes, options: { provider, devices, timeoutMs, thread } },
    timeoutMs: limitMs - 10_000,
    ...(hosts ? { under: (rank: number) => hosts.under(rank) } : {}),
    onTold({ what, ranks }) {
      if (what === 'flowing') {
        end(ranks);
        ranks.tell(0, Date.now());
      } else {
        ranks.tell(2, 'over');
        ranks.kill(1, 'SIGKILL');
      }
    },
  });
  return { report: results[0] as LossReport, landed: (results[2] as { landed: number }).landed };
}

export function expectIsolated({ report, landed }: { report: LossReport; landed: number }): void {
  expect(report.code).toBe('HEDDLE_PEER_LOST');
  expect(report.peers).toEqual(['rank 1']);
  expect(report.error).toMatch(/^peer rank 1 was lost during write of \d+ bytes to rank 1 \(immediate 5\)/);
  // Three times the timeout leaves room, too; an operation that hangs takes for ever.
  expect(report.afterMs).toBeLessThan(3 * timeoutMs);
  expect(report.refused).toMatch(/peer rank 1 was lost/);
  expect(report.waited).toMatch(
    /PeerLostError: peer rank 1 was lost during wait for 1 writes with immediate 6/,
  );
  expect(report.bystanderWrites).toBeGreaterThanOrEqual(100);
  expect(report.bystanderFailures).toBe(0);
  expect(report.underway).toBe(0);
  expect(landed).toBeGreaterThanOrEqual(report.bystanderWrites);
}
