/** Finds NVSHMEM's headers, and those of CUDA that they include. */
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { UnavailableError } from '../../../base/errors.js';
import { toolkitFolders } from '../compilers.js';
import { nvshmem, nvshmemRemedy } from './library.js';

export interface NvshmemHeaders {
  /** '3.4.5', the library's own. */
  readonly version: string;
  readonly folders: readonly string[];
}

/** @throws UnavailableError where they are missing, or are not the library's. */
export function nvshmemHeaders(): NvshmemHeaders {
  const library = nvshmem();
  const version = library.version.join('.');
  const beside = join(dirname(library.path), '..');
  const own = [join(beside, 'include'), ...folderOf(process.env.NVSHMEM_HOME)].find((folder) =>
    existsSync(join(folder, 'nvshmem.h')),
  );
  if (own === undefined)
    throw new UnavailableError(
      `The headers of NVSHMEM are not where its library is (${library.path})`,
      `Set NVSHMEM_HOME to the folder that has its include, or ${nvshmemRemedy}`,
    );
  const saying = join(own, 'non_abi/nvshmem_version.h');
  // Older ones say it elsewhere.
  const theirs = existsSync(saying) ? versionIn(readFileSync(saying, 'utf8')) : null;
  if (theirs !== version)
    throw new UnavailableError(
      `The headers in ${own} ${theirs === null ? 'do not say of which version they are' : `are of NVSHMEM ${theirs}`}, the library ${library.path} is ${version}`,
      'Install one of them again, or set NVSHMEM_HOME',
    );
  // A toolkit's, or what pip installs beside NVSHMEM.
  const cuda = [...toolkitFolders(), join(beside, '../cu13'), join(beside, '../cuda_runtime')]
    .flatMap((folder) => [join(folder, 'include'), join(folder, 'include/cccl')])
    .filter((folder) => existsSync(folder));
  for (const [header, of] of Object.entries(wanted))
    if (!cuda.some((folder) => existsSync(join(folder, header))))
      throw new UnavailableError(
        `NVSHMEM’s headers include ${header}, which was not found`,
        `pip install ${of} beside NVSHMEM, or set CUDA_HOME to a CUDA toolkit`,
      );
  return { version, folders: [own, ...cuda] };
}

const wanted = {
  'cuda_runtime.h': 'nvidia-cuda-runtime',
  'cuda/std/type_traits': 'nvidia-cuda-cccl',
} as const;

const folderOf = (home: string | undefined): string[] => (home ? [join(home, 'include')] : []);

/** The version in its header: '3.4.5'. */
export function versionIn(text: string): string {
  const part = (name: string) => new RegExp(`NVSHMEM_VENDOR_${name}_VERSION\\s+(\\d+)`).exec(text)?.[1];
  return ['MAJOR', 'MINOR', 'PATCH'].map((name) => part(name) ?? '?').join('.');
}
