/** What a proxy allocates in ten thousand rounds: nothing; so nothing is ever collected while a round is near. */
import { spawnSync } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import { describeOver } from '../../needs.js';
import { transpiled } from '../../tree.js';

const program = transpiled('test/moe/families/programs/steady-proxy.ts');
const rounds = 10_000;
/** So large a nursery that nothing is collected before it is counted. */
const heap = ['--expose-gc', '--min-semi-space-size=64', '--max-semi-space-size=64'];
/** Forty thousand rounds over the loopback, while others may want the processors. */
const timeout = 240_000;

const tests = (network: string): void => {
  test('allocates nothing, round after round', () => {
    const node = [...heap, program, network, String(rounds)];
    const { stdout, stderr } = spawnSync(process.execPath, node, { encoding: 'utf8', timeout });
    const spans = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { allocated: number; kept: number });
    expect(spans, stderr).toHaveLength(3);
    // An object for each rank and round would be more; now and then the compiler leaves something, though not in every span.
    expect(Math.min(...spans.map(({ allocated }) => allocated)) / rounds).toBeLessThan(32);
    expect(Math.min(...spans.map(({ kept }) => kept)) / rounds).toBeLessThan(1);
  });
};

describe('a proxy over copies', { timeout }, () => tests('copies'));
describeOver(['tcp;ofi_rxm'], 'a proxy over %s', tests, { timeout });
