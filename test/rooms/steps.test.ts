/** `npm test` counts and names every step that failed. */
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { temporaryFolder } from '../temporary.js';
import { root } from '../tree.js';

test('two steps that fail at once are two', () => {
  const folder = temporaryFolder(onTestFinished);
  const bin = join(folder, 'node_modules/.bin');
  mkdirSync(bin, { recursive: true });
  for (const name of ['biome', 'depcruise', 'tsx', 'tsc']) {
    writeFileSync(join(bin, name), `#!/bin/sh\nexit ${name.startsWith('t') ? 0 : 1}\n`);
    chmodSync(join(bin, name), 0o755);
  }
  const tsx = join(root, 'node_modules/tsx/dist/cli.mjs');
  const args = [tsx, join(root, 'scripts/test.ts')];
  const { stdout } = spawnSync(process.execPath, args, { cwd: folder, encoding: 'utf8' });
  expect(stdout).toContain('failed: lint and format (Biome), import directions (dependency-cruiser)\n');
  expect(stdout).toMatch(/\n3 passed, 2 failed\n$/);
});
