/**
 * The repository in JavaScript, in `.test`, for tests and the processes and threads that they start: Node.js loads it in a
 * fraction of the time that a loader takes to bring each of them the TypeScript. Vitest's setup makes it.
 */
import { readFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

export const root = resolve(import.meta.dirname, '..');
export const tree = join(root, '.test');

/** Where a source lies there; its path may be relative to the repository. */
export const transpiled = (source: string): string =>
  join(tree, relative(root, resolve(root, source))).replace(/\.ts$/, '.js');

export const transpiledUrl = (source: string): URL => pathToFileURL(transpiled(source));

interface Manifest {
  readonly exports: Readonly<Record<string, string | { readonly default: string }>>;
}
export const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Manifest;

/** What the package exports: its name as imported, and the source that it is, below `src`. */
export const doors: readonly (readonly [name: string, source: string])[] = Object.entries(
  manifest.exports,
).flatMap(([name, door]) =>
  typeof door === 'string'
    ? []
    : [[name.replace('.', 'heddle'), door.default.replace('./dist/', '').replace(/\.js$/, '.ts')] as const],
);
