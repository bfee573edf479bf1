/** The reader of what a command says beside its results may go away: the results come all the same. */
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { temporaryFolder } from '../temporary.js';
import { transpiled } from '../tree.js';

const folder = temporaryFolder();

/** Runs `heddle`, whose standard error nobody reads to its end. */
async function unheard(
  args: readonly string[],
): Promise<{ readonly code: number | null; readonly out: string }> {
  const child = spawn(process.execPath, [transpiled('src/cli/main.ts'), ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  child.stderr.once('data', () => child.stderr.destroy());
  let out = '';
  child.stdout.on('data', (text) => {
    out += text;
  });
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return { code, out };
}

it('heddle bench prints its JSON', async () => {
  const sizes = ['--ep', '2', '--tokens', '1,2', '--experts', '4', '--top-k', '2', '--hidden', '64'];
  const { code, out } = await unheard(['bench', '--device', 'sim', ...sizes, '--json']);
  expect(JSON.parse(out)).toMatchObject({ points: [{ tokens: 1 }, { tokens: 2 }] });
  expect(code).toBe(0);
});

it('heddle run ends the ranks that nobody hears, and sums up', async () => {
  const program = join(folder, 'speaks.mjs');
  writeFileSync(program, "setInterval(() => console.error('still here'), 20);");
  const { code, out } = await unheard(['run', '-n', '2', '--json', program]);
  expect(JSON.parse(out)).toMatchObject({ ranks: 2, exitCode: 143 });
  expect(code).toBe(143);
});
