/**
 * The documentation site, in `site/dist`. What it is made with has a package of its own, in `site`, installed the first
 * time: those who only use the repository need none of it. Arguments go to VitePress: `npm run site -- --base /heddle/`,
 * and `npm run site -- dev` shows it while it is written.
 */
import { spawnSync } from 'node:child_process';
import { statSync } from 'node:fs';
import { join, resolve } from 'node:path';

if (process.argv.some((arg) => arg === '--help' || arg === '-h')) {
  console.log(`Usage: npm run site -- [build | dev | preview] [options of VitePress]

Makes the documentation site in site/dist. 'dev' shows it while it is written, 'preview' as it was made.

Example: npm run site -- build --base /heddle/`);
  process.exit();
}

const site = resolve(import.meta.dirname, '../site');

/** When a file was written; 0 where there is none. */
function written(path: string): number {
  return statSync(join(site, path), { throwIfNoEntry: false })?.mtimeMs ?? 0;
}

function run(what: string, program: string, args: readonly string[], options: { cwd?: string } = {}): void {
  console.log(`── ${what}`);
  const { status, error } = spawnSync(program, args, { stdio: 'inherit', ...options });
  if (error !== undefined) console.error(`${program}: ${error.message}`);
  if (status !== 0) process.exit(status ?? 1);
}

if (written('node_modules/.package-lock.json') < written('package-lock.json')) {
  // Not `ci`: the lock file omits what other platforms would need of optional packages, which that refuses.
  run('what the site is made with (npm install)', 'npm', ['install', '--no-audit', '--no-fund'], {
    cwd: site,
  });
}
run('pages and API reference', 'tsx', [join(site, 'prepare/pages.ts')]);
const [command = 'build', ...options] = process.argv.slice(2);
const isOption = command.startsWith('-');
const vitepress = join(site, 'node_modules/vitepress/bin/vitepress.js');
const args = isOption ? ['build', site, command, ...options] : [command, site, ...options];
run('VitePress', process.execPath, [vitepress, ...args]);
