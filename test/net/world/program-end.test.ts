/** Programs that come to their end with a live layer over proxies, which they do not dispose of. */
import { expect, it } from 'vitest';
import { describeOver } from '../../needs.js';
import { transpiled } from '../../tree.js';
import { launched } from './launched.js';

const modes = [
  ['a process a rank', { ranks: 2, nodes: 2, device: 'sim' }],
  ['several ranks in a process', { ranks: 4, nodes: 2, device: 'sim' }],
  ['proxies in threads', { ranks: 2 }],
] as const;

describeOver(['shm', 'tcp;ofi_rxm'], 'a live layer over %s', (provider) => {
  it.each(modes)('does not keep a program from its end: %s', async (mode, of) => {
    const { exitCode, results, out, errors } = await launched({
      ...of,
      program: transpiled('test/net/world/programs/live-layer.ts'),
      args: [mode, provider],
      ...{ timeoutMs: 60_000, prefix: false },
    });
    expect(out.trim().split('\n'), errors).toEqual(results.map(() => 'it comes to its end'));
    expect(exitCode, errors).toBe(0);
  });
});
