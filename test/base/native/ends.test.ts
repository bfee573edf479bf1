/** Processes that end while their threads are in foreign calls. */
import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { transpiled } from '../../tree.js';

it.each([
  ['comes to its end', 0],
  ['exits', 3],
  ['throws', 1],
] as const)('a program that %s first gets its threads out of foreign calls', (way, code) => {
  const program = transpiled('test/base/native/programs/ends.ts');
  const { status, signal, stdout, stderr } = spawnSync(process.execPath, [program, way], {
    encoding: 'utf8',
  });
  expect({ status, signal, stdout }, stderr).toEqual({
    status: code,
    signal: null,
    stdout: 'out\n'.repeat(4),
  });
});
