/** The host that the check writes where there is none: the mistakes of kernels in common shapes are found by it as it is. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { type CheckSubject, check, ptxSubject } from '../../../src/verify/check/index.js';
import { lineMarked, nvccPtx } from '../../gpu/sim/ptx/nvcc.js';
import { needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';
import { root, transpiledUrl } from '../../tree.js';

const source = join(root, 'test/verify/check/first-host.cu');

describe('the first host', needing('nvcc'), () => {
  const folder = temporaryFolder();
  let subject: CheckSubject;
  beforeAll(async () => {
    const [file, host] = [nvccPtx(source, join(folder, 'first.ptx')), join(folder, 'host.ts')];
    await expect(ptxSubject(file, host)).rejects.toThrow('look at its guesses, then say the same again');
    const text = readFileSync(host, 'utf8');
    writeFileSync(host, text.replace('heddle/check', transpiledUrl('src/verify/check/index.ts').href));
    subject = await ptxSubject(file, host);
  });

  test('finds what is missing in each kernel, with a mend that was tried', async () => {
    const { causes } = await check([subject], { seeds: 20 });
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
