/** The library that stands for CUDA's runtime: compiled when it is first needed, by the compiler that builds CUDA programs too. */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { messageOf, UnavailableError } from '../../base/errors.js';
import { makeFolder, writeWhole } from '../../base/files/index.js';
import { cacheFolder, requireOwnCache } from '../../gpu/cuda/index.js';

const folderOfSources = join(import.meta.dirname, '../../../src/tools/program');
const sources = ['client.c', 'runtime.c'].map((name) => join(folderOfSources, name));
const versions = [12, 13];

/** The folder with `libcudart.so.12` and `.13`. */
export function libraryFolder(): string {
  const texts = [join(folderOfSources, 'client.h'), ...sources].map((file) => readFileSync(file, 'utf8'));
  const options = ['-shared', '-fPIC', '-O2', '-fvisibility=hidden', '-Wl,--default-symver', '-pthread'];
  requireOwnCache();
  const key = createHash('sha256')
    .update([...options, ...texts].join('\0'))
    .digest('hex')
    .slice(0, 40);
  const folder = join(cacheFolder(), `runtime-${key}`);
  makeFolder(folder, 0o700);
  for (const version of versions) {
    const name = `libcudart.so.${version}`;
    const file = join(folder, name);
    if (existsSync(file)) continue;
    const fresh = mkdtempSync(join(tmpdir(), 'heddle-cc-'));
    try {
      const made = join(fresh, name);
      const own = [`-Wl,-soname,${name}`, `-DRUNTIME=${version}`, '-o', made, ...sources];
      execFileSync('cc', [...options, ...own], { stdio: ['ignore', 'ignore', 'pipe'] });
      writeWhole(file, readFileSync(made), 0o700);
    } catch (error) {
      const remedy = 'Install a C compiler: apt-get install gcc';
      throw new UnavailableError(`cc cannot compile the simulated runtime: ${messageOf(error)}`, remedy);
    } finally {
      rmSync(fresh, { recursive: true });
    }
  }
  return folder;
}
