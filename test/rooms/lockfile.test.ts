import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';

const root = resolve(import.meta.dirname, '../..');
const lock = readFileSync(join(root, 'package-lock.json'), 'utf8');

interface Locked {
  readonly packages: Readonly<Record<string, { readonly resolved?: string; readonly integrity?: string }>>;
}

test('the lock file names no registry, so that any mirror serves it', () => {
  const { packages } = JSON.parse(lock) as Locked;
  expect(Object.entries(packages).filter(([, { resolved }]) => resolved !== undefined)).toEqual([]);
  // Only the addresses of funding pages and the like may be there.
  expect(lock).not.toMatch(/https?:\/\/[^"]*\.tgz/);
});

test('every locked package is pinned by its content', () => {
  const { packages } = JSON.parse(lock) as Locked;
  const unpinned = Object.entries(packages).filter(
    ([path, { integrity }]) => path !== '' && integrity === undefined,
  );
  expect(unpinned).toEqual([]);
});
