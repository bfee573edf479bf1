import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Ranks, runRanks } from '../../src/fabric/bench/ranks.js';
import { createHosts, type Hosts, whyNoHosts } from './hosts.js';
import type { LossReport } from './roles.js';

const module = new URL('./roles.ts', import.meta.url);
const timeoutMs = 2000;
const noHosts = whyNoHosts();
if (noHosts) console.warn(`skipping the tests of hosts that are cut off: ${noHosts}`);

/** Runs three ranks and ends rank 1 with `end` once the writes to it flow. */
async function lose(
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
    timeoutMs: 50_000,
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

function expectIsolated({ report, landed }: { report: LossReport; landed: number }): void {
  expect(report.code).toBe('HEDDLE_PEER_LOST');
  expect(report.peers).toEqual(['rank 1']);
  expect(report.error).toMatch(/^peer rank 1 was lost during write of \d+ bytes to rank 1 \(immediate 5\)/);
  // Twice the timeout leaves room for a busy machine; an operation that hangs takes for ever.
  expect(report.afterMs).toBeLessThan(2 * timeoutMs);
  expect(report.refused).toMatch(/peer rank 1 was lost/);
  expect(report.waited).toMatch(
    /PeerLostError: peer rank 1 was lost during wait for 1 writes with immediate 6/,
  );
  expect(report.bystanderWrites).toBeGreaterThanOrEqual(100);
  expect(report.bystanderFailures).toBe(0);
  expect(report.underway).toBe(0);
  expect(landed).toBeGreaterThanOrEqual(report.bystanderWrites);
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

describe.each(['shm', 'tcp;ofi_rxm', 'udp;ofi_rxd'])('a peer on %s', (provider) => {
  it('that is killed ends its own operations and nobody else’s', async () => {
    expectIsolated(await lose(provider, (ranks) => ranks.kill(1, 'SIGKILL')));
  });

  it('that stops answering and comes back too late does no harm', async () => {
    let victim = 0;
    const result = await lose(provider, (ranks) => {
      victim = ranks.pid(1);
      process.kill(victim, 'SIGSTOP');
      setTimeout(() => {
        // The test may have failed and cleaned up meanwhile.
        if (isRunning(victim)) process.kill(victim, 'SIGCONT');
      }, 1.2 * timeoutMs);
    });
    expectIsolated(result);
  });
});

describe.skipIf(noHosts !== null)('a host that is cut off', () => {
  let hosts: Hosts;
  beforeAll(() => {
    hosts = createHosts(3);
  });
  afterAll(() => hosts?.remove());

  // A cut-off port is not connected again, so each test has its own hosts.
  it.each(['tcp;ofi_rxm', 'udp;ofi_rxd'])(
    'on %s ends its own operations and nobody else’s',
    async (provider) => {
      hosts.remove();
      hosts = createHosts(3);
      expectIsolated(await lose(provider, () => hosts.cutOff(1), { hosts, bytes: 65_536 }));
    },
  );
});
