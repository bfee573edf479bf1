import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { root, transpiled } from '../../../tree.js';

it('a debugger stops at breakpoints in the kernel’s TypeScript, and at its `debugger`', () => {
  const program = 'test/gpu/sim/debugged/program.ts';
  const { stdout, stderr } = spawnSync(
    process.execPath,
    ['--enable-source-maps', transpiled(program), join(root, program)],
    { encoding: 'utf8', timeout: 60_000 },
  );
  expect(stdout, stderr).not.toBe('');
  const { said, words } = JSON.parse(stdout) as {
    said: readonly { why: string; source: string; line: number }[];
    words: readonly number[];
  };
  expect(words).toEqual([0, 3]);
  const lines = readFileSync(join(root, program), 'utf8').split('\n');
  for (const { source } of said) expect(fileURLToPath(source)).toBe(join(root, program));
  const stops = said.map(({ why, line }) => `${why}: ${lines[line - 1]!.trim()}`).sort();
  const breakpoint = 'breakpoint: g.store(out.at(g.threadIdx.x), mine); // a breakpoint';
  expect(stops).toEqual([breakpoint, breakpoint, 'debugger: debugger;']);
});
