/** The example of docs/ptx.md: a CUDA kernel of one's own, its host, and what `heddle check` says of it. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import host from '../../../../examples/ptx/all-reduce.js';
import field from '../../../../examples/ptx/field.js';
import { ptx } from '../../../../src/lang/index.js';
import {
  type CheckSubject,
  check,
  formatCause,
  formatFinding,
  ptxSubject,
} from '../../../../src/verify/check/index.js';
import { needing } from '../../../needs.js';
import { temporaryFolder } from '../../../temporary.js';
import { lineMarked, nvccPtx } from './nvcc.js';

const root = new URL('../../../../', import.meta.url).pathname;

function subjectOf(file: string): CheckSubject {
  const program = ptx(readFileSync(file, 'utf8'), 'all-reduce.ptx');
  return { name: 'all-reduce', kernels: program.kernels, configurations: host(program) };
}

describe('the all-reduce of examples/ptx', () => {
  const folder = temporaryFolder();

  const compile = (name: string, ...options: readonly string[]): string =>
    nvccPtx(join(root, `examples/ptx/${name}.cu`), join(folder, `${name}${options.length}.ptx`), ...options);

  test('is clean, and each of its mutants is caught', needing('nvcc'), async () => {
    const report = await check([subjectOf(compile('all-reduce'))], { seeds: 8, mutants: true });
    expect(report.findings.map(formatFinding)).toEqual([]);
    expect(report.mutants.survivors).toEqual([]);
    expect(report.mutants.total).toBeGreaterThan(5);
  });

  test('without its fence has the finding that docs/ptx.md shows', needing('nvcc'), async () => {
    const { findings } = await check([subjectOf(compile('all-reduce', '-DWITHOUT_FENCE'))], { seeds: 20 });
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

  test('bugs of the field are found with their lines, and gone once mended', needing('nvcc'), async () => {
    const subject = (file: string): CheckSubject => {
      const program = ptx(readFileSync(file, 'utf8'), 'field.ptx');
      return { name: 'field', kernels: program.kernels, configurations: field(program) };
    };
    const { causes } = await check([subject(compile('field'))], { seeds: 8 });
    expect(causes).toHaveLength(8);
    for (const [i, cause] of causes.entries()) {
      const line = lineMarked(join(root, 'examples/ptx/field.cu'), `${i + 1}`);
      expect(cause.rules).toEqual([]);
      // No fence or barrier stands in for a wait for copies.
      expect(cause.mend ?? formatCause(cause)).toContain(`field.cu:${line}:`);
    }
    expect(
      causes.filter(({ mend }) => mend === null).map(({ findings: [one] }) => one!.configuration),
    ).toEqual(['prefetch', 'regroup', 'meet']);
    const mended = await check([subject(compile('field', '-DMENDED'))], { seeds: 8 });
    expect(mended.findings.map(formatFinding)).toEqual([]);
  });

  test('a host is a module whose default export gives configurations', async () => {
    const file = join(folder, 'nothing.ptx');
    writeFileSync(
      file,
      '.version 8.0\n.target sm_90\n.address_size 64\n.visible .entry nothing() { ret; }\n',
    );
    const module = join(folder, 'host.mjs');
    writeFileSync(
      module,
      'export default (kernels) => [{ name: kernels.kernels[0], ranks: 1, run: async () => {} }];',
    );
    const subject = await ptxSubject(file, module);
    expect([subject.name, subject.kernels, subject.configurations[0]!.name]).toEqual([
      'nothing',
      ['nothing'],
      'nothing',
    ]);
    await expect(ptxSubject(join(folder, 'missing.ptx'), module)).rejects.toThrow('cannot be read');
    const absent = join(folder, 'absent.ts');
    await expect(ptxSubject(file, absent, true)).rejects.toThrow('look at its guesses');
    expect(readFileSync(absent, 'utf8')).toContain("host.launch(kernels.kernel('nothing'");
    const other = join(folder, 'other.mjs');
    writeFileSync(other, 'export const nothing = 1;');
    await expect(ptxSubject(file, other)).rejects.toThrow('default export');
  });
});
