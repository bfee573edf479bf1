import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

/** Folders where CUDA toolkits live, the chosen one first: CUDA_HOME, CUDA_PATH, /usr/local/cuda, then by version. */
export function toolkitFolders(): readonly string[] {
  const folders = [process.env.CUDA_HOME, process.env.CUDA_PATH, '/usr/local/cuda'];
  try {
    const versioned = readdirSync('/usr/local').filter((name) => /^cuda-\d/.test(name));
    versioned.sort((a, b) => b.localeCompare(a, 'en', { numeric: true }));
    folders.push(...versioned.map((name) => join('/usr/local', name)));
  } catch {
    // No /usr/local: nothing there.
  }
  return [...new Set(folders)].filter((folder): folder is string => Boolean(folder) && existsSync(folder!));
}
