/** The host that the check writes where there is none: the mistakes of kernels in common shapes are found by it as it is. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { heddle } from '../../../src/cli/program.js';
import { check, ptxSubject } from '../../../src/verify/check/index.js';
import { err, hear } from '../../cli/said.js';
import { lineMarked, nvccPtx } from '../../gpu/sim/ptx/nvcc.js';
import { needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';
import { root, transpiledUrl } from '../../tree.js';

const source = join(root, 'test/verify/check/first-host.cu');

hear();

describe('the first host', needing('nvcc'), () => {
  const folder = temporaryFolder();
  const [ptx, host] = [join(folder, 'first.ptx'), join(folder, 'host.ts')];
  beforeAll(() => void nvccPtx(source, ptx));

  test.each([['ring'], ['--replay', 'ring/random-1'], ['--baseline', 'known.json'], ['--list']])(
    'is not written beside %s, which an existing host has',
    async (...other) => {
      expect(await heddle(['check', '--ptx', ptx, '--host', host, ...other])).toBeGreaterThan(0);
      expect([existsSync(host), err]).toEqual([false, expect.stringContaining('cannot be read')]);
    },
  );

  test('finds what is missing in each kernel, with a mend that was tried', async () => {
    expect(await heddle(['check', '--ptx', ptx, '--host', host])).toBe(2);
    expect(err).toContain('look at its guesses, then say the same again. If the name is a slip');
    const door = transpiledUrl('src/verify/check/index.ts').href;
    writeFileSync(host, readFileSync(host, 'utf8').replace('heddle/check', door));
    const { causes } = await check([await ptxSubject(ptx, host)], { seeds: 20 });
    const at = (mark: string): string => `first-host.cu:${lineMarked(source, mark)}`;
    expect(causes.map(({ mend }) => mend)).toEqual([
      `__threadfence_system() before ${at('push')}:5`,
      `__threadfence_system() after ${at('one_shot')}:5`,
      `__threadfence_system() before ${at('hand_over')}:5`,
      `__threadfence_system() after ${at('consumer')}:5`,
      `__syncthreads() before ${at('swap')}:3`,
      `__threadfence_system() before ${at('gather')}:5`,
    ]);
  });
});
