/** The example of docs/ptx.md: a CUDA kernel of one's own, its host, and what `heddle check` says of it. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { check, formatFinding, ptxSubject } from '../../../../src/verify/check/index.js';
import { cudaTool, needing } from '../../../needs.js';

const root = new URL('../../../../', import.meta.url).pathname;
const host = join(root, 'examples/ptx/all-reduce.ts');

describe('the all-reduce of examples/ptx', () => {
  const folder = mkdtempSync(join(tmpdir(), 'heddle-example-'));
  afterAll(() => rmSync(folder, { recursive: true }));

  function compile(...options: readonly string[]): string {
    const file = join(folder, `all-reduce${options.length}.ptx`);
    const source = join(root, 'examples/ptx/all-reduce.cu');
    const { status, stderr } = spawnSync(
      cudaTool('nvcc')!,
      ['-ptx', '-arch=sm_90', '-lineinfo', ...options, source, '-o', file],
      { encoding: 'utf8' },
    );
    expect(status, stderr).toBe(0);
    return file;
  }

  test('is clean, and each of its mutants is caught', needing('nvcc'), async () => {
    const report = await check([await ptxSubject(compile(), host)], { seeds: 20, mutants: true });
    expect(report.findings.map(formatFinding)).toEqual([]);
    expect(report.mutants.survivors).toEqual([]);
    expect(report.mutants.total).toBeGreaterThan(5);
  });

  test('without its fence has the finding that docs/ptx.md shows', needing('nvcc'), async () => {
    const { findings } = await check([await ptxSubject(compile('-DWITHOUT_FENCE'), host)], { seeds: 20 });
    const text = findings.map(formatFinding).join('\n');
    const page = readFileSync(join(root, 'docs/ptx.md'), 'utf8');
    for (const part of [
      'all-reduce.cu:11:5',
      'all-reduce.cu:29:5',
      'The store at all-reduce.cu:19:5 was seen by the load at all-reduce.cu:21:5, but releases nothing',
    ]) {
      expect(text).toContain(part);
      expect(page).toContain(part);
    }
  });

  test('a file that is none, and a host that launches nothing, are refused', async () => {
    await expect(ptxSubject(join(folder, 'missing.ptx'), host)).rejects.toThrow('cannot be read');
    const other = join(folder, 'host.mjs');
    writeFileSync(other, 'export const nothing = 1;');
    await expect(ptxSubject(join(folder, 'missing.ptx'), other)).rejects.toThrow('default export');
  });
});
