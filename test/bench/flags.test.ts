import { describe, expect, it } from 'vitest';
import { flagToFlag } from '../../src/bench/fabric/flags.js';
import { listProviders } from '../../src/fabric/index.js';

const usable = (() => {
  try {
    return listProviders().filter(
      ({ provider, devices }) => provider === 'tcp;ofi_rxm' && devices.length > 0,
    );
  } catch {
    return [];
  }
})();

describe.skipIf(usable.length === 0)('from flag to flag', () => {
  it('takes a message through two proxies and back, round after round', async () => {
    const fabric = { provider: 'tcp;ofi_rxm', devices: ['lo'], timeoutMs: 20_000 } as const;
    const microseconds = await flagToFlag(fabric, 2048, 20, 5);
    expect(microseconds).toBeGreaterThan(0);
    expect(microseconds).toBeLessThan(10_000_000);
  });

  it('ends where no message can come', async () => {
    const fabric = { provider: 'tcp;ofi_rxm', devices: ['lo'], timeoutMs: 20_000 } as const;
    // A row beyond the room of a message: the network refuses it.
    await expect(flagToFlag(fabric, 40_000, 1, 0, 100)).rejects.toThrow(
      /within 100 ms|is 32768|sourceOffset/,
    );
  });
});
