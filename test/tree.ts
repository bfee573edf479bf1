/**
 * The repository in JavaScript, in `.test`, for tests and the processes and threads that they start: Node.js loads it in a
 * fraction of the time that a loader takes to bring each of them the TypeScript. Vitest's setup makes it.
 */
import { join, relative, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

export const root = resolve(import.meta.dirname, '..');
export const tree = join(root, '.test');

/** Where a source lies there; its path may be relative to the repository. */
export const transpiled = (source: string): string =>
  join(tree, relative(root, resolve(root, source))).replace(/\.ts$/, '.js');

export const transpiledUrl = (source: string): URL => pathToFileURL(transpiled(source));
