/** What is published, and what installing it takes. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';
import { describe, expect, test } from 'vitest';
import { root } from '../tree.js';

const read = (path: string): string => readFileSync(join(root, path), 'utf8');

interface Manifest {
  readonly exports: Readonly<Record<string, string | { readonly types: string; readonly default: string }>>;
  readonly bin: Readonly<Record<string, string>>;
  readonly scripts: Readonly<Record<string, string>>;
  readonly dependencies: Readonly<Record<string, string>>;
}
interface Locked {
  readonly packages: Readonly<Record<string, { readonly resolved?: string; readonly integrity?: string }>>;
}

const manifest = JSON.parse(read('package.json')) as Manifest;
const { packages } = JSON.parse(read('package-lock.json')) as Locked;

describe('the package', () => {
  const doors = Object.entries(manifest.exports).filter(([, door]) => typeof door !== 'string');

  test.each(doors)('%s is the door of a room', (name, door) => {
    if (typeof door === 'string') return;
    expect(door.types).toBe(door.default.replace(/\.js$/, '.d.ts'));
    const source = door.default.replace(/^\.\/dist\//, './src/').replace(/\.js$/, '.ts');
    expect(existsSync(join(root, source))).toBe(true);
    // Examples and documentation are compiled against the same door.
    const { config } = ts.readConfigFile(join(root, 'tsconfig.json'), ts.sys.readFile);
    expect(config.compilerOptions.paths[name.replace('.', 'heddle')]).toEqual([source]);
  });

  test('its command is built from source', () => {
    expect(manifest.bin).toEqual({ heddle: 'dist/cli/main.js' });
    expect(read('src/cli/main.ts')).toMatch(/^#!\/usr\/bin\/env node\n/);
  });

  test('builds nothing when it is installed', () => {
    const atInstall = ['preinstall', 'install', 'postinstall', 'prepare', 'prepublish'];
    expect(Object.keys(manifest.scripts).filter((name) => atInstall.includes(name))).toEqual([]);
  });

  test('needs little at run time', () => {
    expect(Object.keys(manifest.dependencies)).toEqual(['acorn', 'amaro', 'commander', 'koffi']);
  });
});

// npm links the `tsc` of the package whose folder sorts first.
test('tsc is the native compiler; who imports TypeScript gets the API of 6', () => {
  const version = execFileSync(process.execPath, [join(root, 'node_modules/.bin/tsc'), '--version']);
  expect(String(version)).toMatch(/^Version 7\./);
  expect(ts.version).toMatch(/^6\./);
});

describe('the lock file', () => {
  test('names no registry, so that any mirror serves it', () => {
    expect(Object.keys(packages).filter((path) => packages[path]!.resolved !== undefined)).toEqual([]);
  });

  test('pins every package by its content', () => {
    const unpinned = Object.entries(packages).filter(([path, { integrity }]) => path !== '' && !integrity);
    expect(unpinned).toEqual([]);
  });
});
