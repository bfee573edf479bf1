/** What the site says before it is built. */
import { spawnSync } from 'node:child_process';
import { join, resolve } from 'node:path';
import { expect, test, vi } from 'vitest';
import { firstScreen } from '../prepare/home.js';

const root = resolve(import.meta.dirname, '../..');

test('--help of its command says how it is used, and builds nothing', () => {
  const { status, stdout } = spawnSync(join(root, 'node_modules/.bin/tsx'), ['scripts/site.ts', '--help'], {
    ...{ cwd: root, encoding: 'utf8' },
  });
  expect(status).toBe(0);
  expect(stdout).toMatch(/^Usage: npm run site/);
  expect(stdout).not.toContain('──');
});

test('however slow the machine is, a race is found in a schedule that was run', async () => {
  let now = 0;
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => {
    now += 10_000;
    return now;
  });
  const page = await firstScreen(root).finally(() => clock.mockRestore());
  expect(page).toContain('A data race, found in the first schedule');
  expect(page).toContain('Mended: one schedule, no finding');
});
