/** The libraries that stand for CUDA's driver and runtime: compiled when they are first needed, by the compiler that builds CUDA programs too. */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { messageOf, UnavailableError } from '../../base/errors.js';
import { makeFolder, writeWhole } from '../../base/files/index.js';
import { cacheFolder, requireOwnCache } from '../../gpu/cuda/index.js';
import { namesOfKinds } from './session.js';

const sources = join(import.meta.dirname, '../../../src/tools/program');
/** The runtime stands on the driver, and so finds it when it is linked. */
const libraries = [
  { name: 'libcuda.so.1', from: ['client.c', 'driver.c'] },
  { name: 'libcudart.so.12', from: ['runtime.c', '-DRUNTIME=12', '-l:libcuda.so.1'] },
  { name: 'libcudart.so.13', from: ['runtime.c', '-DRUNTIME=13', '-l:libcuda.so.1'] },
];

/** The folder with `libcuda.so.1`, and `libcudart.so.12` and `.13`. */
export function libraryFolder(): string {
  const files = ['client.h', 'both.h', 'client.c', 'driver.c', 'runtime.c'].map((one) => join(sources, one));
  const options = ['-shared', '-fPIC', '-O2', '-fvisibility=hidden', '-Wl,--default-symver', '-pthread'];
  options.push(`-DKINDS=${namesOfKinds.join()}`);
  requireOwnCache();
  const key = createHash('sha256')
    .update([...options, ...files.map((file) => readFileSync(file, 'utf8'))].join('\0'))
    .digest('hex')
    .slice(0, 40);
  const folder = join(cacheFolder(), `runtime-${key}`);
  makeFolder(folder, 0o700);
  for (const { name, from } of libraries) {
    const file = join(folder, name);
    if (existsSync(file)) continue;
    const fresh = mkdtempSync(join(tmpdir(), 'heddle-cc-'));
    try {
      const made = join(fresh, name);
      const own = [`-Wl,-soname,${name}`, '-o', made, ...from, '-L', folder, '-ldl'];
      execFileSync('cc', [...options, ...own], { cwd: sources, stdio: ['ignore', 'ignore', 'pipe'] });
      writeWhole(file, readFileSync(made), 0o700);
    } catch (error) {
      const remedy = 'Install a C compiler: apt-get install gcc';
      throw new UnavailableError(`cc cannot compile the simulated driver: ${messageOf(error)}`, remedy);
    } finally {
      rmSync(fresh, { recursive: true });
    }
  }
  return folder;
}
