/** What a user gets: the package is packed, put into an empty project, compiled against and run. */
import { execFileSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const root = resolve(import.meta.dirname, '../..');
const folder = mkdtempSync(join(tmpdir(), 'heddle-tarball-'));
const project = join(folder, 'project');
const installed = join(project, 'node_modules/heddle');
const copy = join(folder, 'copy');
let tarball = '';

/** What packing needs of the repository. */
const needed = /^(src|docs|examples|package.*\.json|tsconfig.*\.json|LICENSE|[A-Z]+\.md|llms\.txt)$/;

const run = (command: string, args: readonly string[], cwd: string): string =>
  execFileSync(command, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });

beforeAll(() => {
  // A copy, because packing builds without source maps, and this tree's own build has them.
  for (const entry of readdirSync(root).filter((name) => needed.test(name))) {
    cpSync(join(root, entry), join(copy, entry), { recursive: true });
  }
  // Of the site's folder, which has packages of its own, one page is packed.
  cpSync(join(root, 'site/playground.md'), join(copy, 'site/playground.md'));
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
  const packed = JSON.parse(run('npm', ['pack', '--json', '--offline'], copy)) as [{ filename: string }];
  tarball = join(copy, packed[0].filename);
  // Unpacked as `npm install` would, with the dependencies that are here already.
  mkdirSync(installed, { recursive: true });
  run('tar', ['-xzf', tarball, '-C', installed, '--strip-components=1'], folder);
  const { dependencies } = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8')) as {
    dependencies: Readonly<Record<string, string>>;
  };
  for (const name of Object.keys(dependencies)) {
    symlinkSync(join(root, 'node_modules', name), join(project, 'node_modules', name));
  }
  writeFileSync(join(project, 'package.json'), JSON.stringify({ type: 'module', private: true }));
  cpSync(join(installed, 'examples/round-trip.ts'), join(project, 'main.ts'));
}, 300_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const files = (): string[] =>
  readdirSync(installed, { recursive: true, encoding: 'utf8' }).filter((path) =>
    statSync(join(installed, path)).isFile(),
  );

/** What an importer may write: `heddle`, `heddle/lang` … */
const doors = (): string[] => {
  const manifest = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8')) as { exports: object };
  return Object.keys(manifest.exports)
    .filter((name) => !name.endsWith('.json'))
    .map((name) => name.replace('.', 'heddle'));
};

describe('the tarball', () => {
  test('is small: under 1.48 MB, without maps', () => {
    expect(statSync(tarball).size).toBeLessThan(1_480_000);
    expect(files().filter((path) => path.endsWith('.map'))).toEqual([]);
    const pointing = files().filter(
      (path) =>
        /\.(js|d\.ts)$/.test(path) &&
        /^\/\/# sourceMappingURL/m.test(readFileSync(join(installed, path), 'utf8')),
    );
    expect(pointing).toEqual([]);
  });

  test('says where it comes from', () => {
    const manifest = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8')) as Record<
      string,
      unknown
    >;
    for (const key of ['keywords', 'license', 'publishConfig']) expect(manifest, key).toHaveProperty(key);
  });

  test('brings what its pages link to', () => {
    const pages = files().filter((path) => path.endsWith('.md'));
    expect(pages).toEqual(expect.arrayContaining(['README.md', 'docs/README.md', 'CHANGELOG.md']));
    const dead = pages.flatMap((page) =>
      [...readFileSync(join(installed, page), 'utf8').matchAll(/\]\((?!https?:|#)([^)\s#]+)/g)]
        .map(([, to]) => ({ page, to: to! }))
        .filter(({ to }) => !existsSync(join(installed, page, '..', to))),
    );
    expect(dead).toEqual([]);
  });
});

describe('an empty project', () => {
  const compilers = [
    ['TypeScript 6', join(root, 'node_modules/typescript/bin/tsc')],
    ['TypeScript 7', join(root, 'node_modules/@typescript/native/bin/tsc')],
  ] as const;
  const strict = ['--strict', '--exactOptionalPropertyTypes', '--noUncheckedIndexedAccess'];
  const common = [...strict, '--target', 'es2023', '--lib', 'es2023', '--types', 'node'];
  const types = ['--typeRoots', join(root, 'node_modules/@types')];

  describe.each(compilers)('with %s', (name, compiler) => {
    test.each([
      ['nodenext', 'nodenext'],
      ['bundler', 'esnext'],
    ])(
      'compiles the README’s example and every door, declarations checked too, with %s',
      { timeout: 120_000 },
      (resolution, module) => {
        const out = join(folder, name, resolution);
        const how = ['--moduleResolution', resolution, '--module', module, '--outDir', out];
        const imported = doors().map((door, i) => `export * as door${i} from '${door}';\n`);
        writeFileSync(join(project, 'doors.ts'), imported.join(''));
        run(process.execPath, [compiler, ...common, ...types, ...how, 'main.ts', 'doors.ts'], project);
        expect(existsSync(join(out, 'main.js'))).toBe(true);
      },
    );
  });

  test('runs it', () => {
    cpSync(join(folder, 'TypeScript 6/nodenext/main.js'), join(project, 'main.js'));
    expect(run(process.execPath, ['main.js'], project)).toMatch(
      /^rank 0: its first token.*\nrank 1.*\nrank 2.*\nrank 3.*\n$/,
    );
  });

  test('runs a build older than its sources, as a clone does not', () => {
    const edited = 'src/moe/families/one-sided/flags.ts';
    const later = new Date(Date.now() + 3_600_000);
    const version = (of: string) => run(process.execPath, [join(of, 'dist/cli/main.js'), '--version'], of);
    expect(version(copy)).toMatch(/^\d/);
    for (const of of [installed, copy]) utimesSync(join(of, edited), later, later);
    expect(version(installed)).toMatch(/^\d/);
    expect(() => version(copy)).toThrow(`${edited} is newer than the build`);
  });

  test('has the command, and every door opens', () => {
    const command = join(installed, 'dist/cli/main.js');
    expect(run(process.execPath, [command, 'emit', 'flag_barrier'], project)).toContain('__global__');
    const { exports } = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8')) as {
      exports: Readonly<Record<string, unknown>>;
    };
    const doors = Object.entries(exports)
      .filter(([, door]) => typeof door !== 'string')
      .map(([name]) => name.replace('.', 'heddle'));
    expect(doors).toContain('heddle/world');
    const program = doors.map((door) => `await import('${door}');`).join('');
    run(process.execPath, ['--input-type=module', '-e', program], project);
  });
});
