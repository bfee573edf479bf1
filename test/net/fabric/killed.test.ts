import { it } from 'vitest';
import { describeOver } from '../../needs.js';
import { isRunning } from '../../processes.js';
import { expectIsolated, limitMs, lose, timeoutMs } from './loss.js';

const tests = (provider: string): void => {
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
};

describeOver(['shm', 'tcp;ofi_rxm', 'udp;ofi_rxd'], 'a peer on %s', tests, { timeout: limitMs });
