import { execFileSync, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';
import { transpiled } from '../../tree.js';

describe('completion queues of a verbs device, which are short', needing('cc'), () => {
  const folder = temporaryFolder();
  beforeAll(() => {
    const source = join(import.meta.dirname, 'verbs.c');
    execFileSync('cc', ['-shared', '-fPIC', '-w', '-o', join(folder, 'libibverbs.so.1'), source]);
  });

  it.each([
    ['', {}, '511 32 32'],
    ['4', {}, '127 128 128'],
    ['128', {}, '255 64 64'],
    ['4', { FI_UNIVERSE_SIZE: '256' }, '256 32 32'],
    [
      '4',
      { FI_UNIVERSE_SIZE: '256', FI_OFI_RXM_MSG_TX_SIZE: '128', FI_OFI_RXM_MSG_RX_SIZE: '128' },
      '256 128 128: rxm asks rxe0 for a completion queue of 65536 entries, 256 for each of 256 peers, and it has at most ' +
        '32767 (max_cqe); set FI_UNIVERSE_SIZE to 127 or less',
    ],
  ])('hold the requests of %s peers, with %o', (peers, set, found) => {
    const env = { LD_LIBRARY_PATH: folder, HEDDLE_LIBFABRIC: join(folder, 'libibverbs.so.1'), ...set };
    const child = [transpiled('test/net/fabric/queues-child.ts'), peers];
    const { stdout, stderr } = spawnSync(process.execPath, child, { encoding: 'utf8', env });
    expect(stdout.trim() || stderr).toBe(found);
  });
});
