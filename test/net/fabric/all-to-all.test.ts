import { expect, it } from 'vitest';
import { needing } from '../../needs.js';
import { runRanks } from './ranks.js';

const module = new URL('./roles.ts', import.meta.url);

for (const provider of ['shm', 'tcp;ofi_rxm', 'udp;ofi_rxd'] as const)
  it(`every byte of an all-to-all scatter arrives on ${provider}`, needing(provider), async () => {
    const [ranks, slice, rounds] = [4, 40_000, 30];
    const results = await runRanks({
      ranks,
      module,
      name: 'allToAll',
      args: {
        slice,
        rounds,
        options: { provider, devices: provider === 'shm' ? [] : ['lo'], timeoutMs: 20_000 },
      },
      timeoutMs: 50_000,
    });
    expect(results).toEqual(
      Array.from({ length: ranks }, () => ({ bytesChecked: slice * rounds * (ranks - 1) })),
    );
  });
