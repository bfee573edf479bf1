/** `heddle demo` with processes that reach each other by libfabric: `npm run test:nodes`. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { traffic } from '../../src/moe/layer/index.js';
import { makeAllRoutes, shapeOfRounds } from '../../src/verify/testing/index.js';
import { needing } from '../needs.js';
import { transpiled } from '../tree.js';
import { demo } from './demo.js';

describe('heddle demo', () => {
  afterEach(() => {
    vi.restoreAllMocks();
    vi.unstubAllEnvs();
    process.exitCode = undefined;
  });

  it('--join shows a process that is killed and taken in again', needing('libfabric'), async () => {
    const { code, out, err } = await demo('--join', '--ranks', '2');
    expect(code, err).toBe(0);
    expect(out).toMatch(/✓ right: [\d,]+ values in 3 rounds, every bit as in the reference/);
    expect(out.split('\n').slice(-5).join('\n')).toBe(
      [
        '          round 1  round 2      round 3',
        '  rank 0  0 1 2    0 1 2 3 4 5  0 1 2',
        ...['  rank 1  3 4 5    killed       3 4 5', '', ''],
      ].join('\n'),
    );
    expect(err).toContain('rank 1 is started anew');
  });

  it('--join ends by the signal that it gets, and blames no rank', needing('libfabric'), async () => {
    const command = ['--enable-source-maps', transpiled('src/cli/main.ts'), 'demo', '--join'];
    const child = spawn(process.execPath, command, { stdio: ['ignore', 'ignore', 'pipe'] });
    let err = '';
    child.stderr.on('data', (text) => {
      // The first line tells of the rank that is killed.
      if (err === '') child.kill('SIGINT');
      err += text;
    });
    expect(await once(child, 'close')).toEqual([null, 'SIGINT']);
    expect(err).not.toContain('HEDDLE_');
  });

  const byProcesses = async (provider: string): Promise<void> => {
    vi.stubEnv('HEDDLE_PROVIDER', provider);
    const sizes = ['--ranks', '4', '--tokens', '3', '--hidden', '64', '--experts', '8', '--topk', '3'];
    const { code, out, err } = await demo('--device', 'sim', '--nodes', '2', ...sizes, '--json');
    expect(code, err).toBe(0);
    const of = shapeOfRounds({ ranks: 4, experts: 8, topK: 3, maxTokens: 3, hidden: 64, dtype: 'bf16' });
    const { between } = traffic(of, makeAllRoutes(of, 3, 1), 2);
    expect(JSON.parse(out)).toMatchObject({
      ...{ ranks: 4, nodes: 2, network: provider, maxAbsError: 0, bitwiseRepeatable: true },
      bytes: { betweenNodes: between.rows * 2 * 64 * 2 },
    });
    expect(err).toContain(`the same again, in 2 processes over ${provider} …`);
  };
  for (const provider of ['tcp;ofi_rxm', 'shm'] as const)
    it(`reaches nodes by processes over ${provider}`, needing(provider), () => byProcesses(provider));
});
