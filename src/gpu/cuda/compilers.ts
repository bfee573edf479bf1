/** Compilers of CUDA C++ on this machine: what one is, and where toolkits bring one. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { valueOr } from '../../base/errors.js';

export interface Compiler {
  readonly kind: 'nvrtc' | 'nvcc';
  /** '13.0'; NVRTC tells no more. */
  readonly version: string;
  readonly path: string;
  /** Compiles for what the options name as architecture, or says why not. */
  compile(text: string, options: readonly string[], to?: ImageKind): Promise<Compiled>;
}

/** A cubin (default) runs on some GPUs; a driver makes cubins of PTX for its own. */
export type ImageKind = 'cubin' | 'ptx';

export type Compiled =
  | { readonly ok: true; readonly image: Uint8Array }
  | { readonly ok: false; readonly log: string };

/** Paths at which a toolkit's library may be: wherever the loader looks (LD_LIBRARY_PATH), then the toolkits' folders. */
export const libraryCandidates = (sonames: readonly string[]): readonly string[] => [
  ...sonames,
  ...toolkitFolders().flatMap((folder) => sonames.map((name) => join(folder, 'lib64', name))),
];

/** Folders where CUDA toolkits live, the chosen one first: CUDA_HOME, CUDA_PATH, /usr/local/cuda, then by version. */
export function toolkitFolders(): readonly string[] {
  const folders = [process.env.CUDA_HOME, process.env.CUDA_PATH, '/usr/local/cuda'];
  const versioned = valueOr([], () => readdirSync('/usr/local').filter((name) => /^cuda-\d/.test(name)));
  versioned.sort((a, b) => b.localeCompare(a, 'en', { numeric: true }));
  folders.push(...versioned.map((name) => join('/usr/local', name)));
  return [...new Set(folders)].filter((folder): folder is string => Boolean(folder) && existsSync(folder!));
}
