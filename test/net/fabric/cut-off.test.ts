import { afterEach, beforeEach, describe, it } from 'vitest';
import { needing } from '../../needs.js';
import { createHosts, type Hosts } from './hosts.js';
import { expectIsolated, limitMs, lose } from './loss.js';

const needed = needing('tcp;ofi_rxm', 'udp;ofi_rxd', 'hosts');

describe('a host that is cut off', { timeout: limitMs, ...needed }, () => {
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
