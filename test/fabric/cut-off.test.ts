import { afterEach, beforeEach, describe, it } from 'vitest';
import { createHosts, type Hosts, whyNoHosts } from './hosts.js';
import { expectIsolated, limitMs, lose } from './loss.js';

const noHosts = whyNoHosts();
if (noHosts) console.warn(`skipping the tests of hosts that are cut off: ${noHosts}`);

describe.skipIf(noHosts !== null)('a host that is cut off', { timeout: limitMs }, () => {
  let hosts: Hosts;
  beforeEach(() => {
    hosts = createHosts(3);
  });
  afterEach(() => hosts?.remove());

  it.each(['tcp;ofi_rxm', 'udp;ofi_rxd'])(
    'on %s ends its own operations and nobody else’s',
    async (provider) => {
      expectIsolated(await lose(provider, () => hosts.cutOff(1), { hosts, bytes: 65_536 }));
    },
  );

  it.each(['tcp;ofi_rxm', 'udp;ofi_rxd'])('on %s is killed with its process, likewise', async (provider) => {
    expectIsolated(await lose(provider, (ranks) => ranks.kill(1, 'SIGKILL'), { hosts, bytes: 65_536 }));
  });
});
