import { describe, expect, it } from 'vitest';
import { flagToFlag } from '../../../src/tools/bench/fabric/flags.js';
import { needing } from '../../needs.js';

describe('from flag to flag', needing('tcp;ofi_rxm'), () => {
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
