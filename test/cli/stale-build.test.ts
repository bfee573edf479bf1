/** In a clone `heddle` is the build: it must not run where the sources have gone on. */
import { spawnSync } from 'node:child_process';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeEach, expect, it } from 'vitest';
import { root, transpiled } from '../tree.js';

/** As the command names it, whatever links lead there. */
const folder = realpathSync(mkdtempSync(join(tmpdir(), 'heddle a clone ')));
const source = 'src/moe/families/one-sided/flags.ts';
const build = 'dist/moe/families/one-sided/flags.js';
const [before, after] = [new Date('2026-01-01'), new Date('2026-01-02')];

/** With a time of its own: the clock of the machine may be wrong. */
function write(path: string, text: string | Uint8Array, time: Date): void {
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  writeFileSync(join(folder, path), text);
  utimesSync(join(folder, path), time, time);
}

/** The command as it is built, but for what it would then do. */
beforeEach(() => {
  rmSync(folder, { recursive: true, force: true });
  for (const name of ['main', 'start']) {
    write(`src/cli/${name}.ts`, '', before);
    write(`dist/cli/${name}.js`, readFileSync(transpiled(`src/cli/${name}.ts`)), after);
  }
  write('dist/cli/program.js', "export const heddle = async () => console.log('it ran') ?? 0;", after);
  for (const path of ['src/cli/program.ts', 'src/moe/rounds/h200.json', source, 'tsconfig.build.json'])
    write(path, '', before);
  for (const path of ['dist/moe/rounds/h200.json', build]) write(path, '', after);
  cpSync(join(root, 'package.json'), join(folder, 'package.json'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const run = () =>
  spawnSync(process.execPath, [join(folder, 'dist/cli/main.js'), 'check'], { encoding: 'utf8' });

it('runs a build that is newer than its sources', () => {
  expect(run()).toMatchObject({ status: 0, stdout: 'it ran\n', stderr: '' });
});

it('refuses one that is older than one of them, and says what to do', () => {
  utimesSync(join(folder, source), after, new Date('2026-01-03'));
  expect(run()).toMatchObject({
    status: 2,
    stdout: '',
    stderr: `heddle: ${source} is newer than the build in ${join(folder, 'dist')}, so this would not run what it says: \`npm run build\` builds anew, \`npm run heddle -- …\` runs the sources themselves\n`,
  });
});

it('refuses one that lacks a source', () => {
  rmSync(join(folder, build));
  expect(run().stderr).toContain(`${source} is newer than the build`);
});

it('takes an installed package as it is: its times mean nothing', () => {
  rmSync(join(folder, 'tsconfig.build.json'));
  utimesSync(join(folder, source), after, new Date('2026-01-03'));
  expect(run()).toMatchObject({ status: 0, stdout: 'it ran\n' });
});
