/**
 * Writes each plan, and compiles its host and the engine in C++, where there are gcc, nvcc or NVRTC, and cuda.h: machines with
 * GPUs often have none of them, nor need this one a GPU. `npm run build:gpu-test` runs it.
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { architectureNamed, type Exported, writeExport } from '../../src/tools/export/index.js';
import { architectures, cases, exported, folderOf, pages, planOf } from './export-cases.js';

const examples = join(import.meta.dirname, '../../../examples/export');
const headers = [process.env.CUDA_HOME ?? '', '/usr/local/cuda']
  .map((home) => join(home, 'include'))
  .find((path) => existsSync(join(path, 'cuda.h')));
const compiler = (name: string): string | undefined =>
  ['/usr/bin', '/usr/local/bin'].map((path) => join(path, name)).find(existsSync);
const [gcc, gxx] = ['gcc', 'g++'].map(compiler);

/** The folder of an export, with its host as an object and as a library. */
async function write(name: string, plan: Exported): Promise<string> {
  const folder = folderOf(name);
  mkdirSync(dirname(folder), { recursive: true });
  const named = architectures.map((of) => architectureNamed('--arch', of));
  await writeExport(plan, { folder, prefix: 'heddle', architectures: named });
  const source = join(folder, 'heddle.c');
  execFileSync(gcc!, ['-std=c11', '-O2', '-c', source, '-o', join(folder, 'heddle.o')]);
  execFileSync(gcc!, ['-O2', '-shared', '-fPIC', source, '-ldl', '-o', join(folder, 'heddle.so')]);
  return folder;
}

if (gcc === undefined || gxx === undefined || headers === undefined)
  process.stdout.write(
    `no engines in C++: there is no ${headers === undefined ? 'cuda.h' : 'gcc, or g++,'} here\n`,
  );
else {
  for (const of of cases) {
    const folder = await write(of.name, await exported(of));
    // Stands for the driver's library, which only machines with GPUs have.
    const driver = join(folder, 'libcuda.so.1');
    execFileSync(gcc, ['-shared', '-Wl,-soname,libcuda.so.1', '-x', 'c', '/dev/null', '-o', driver]);
    // It has no functions: `-E` keeps their names for the loader to find. What else is needed comes along.
    const link = ['-Wl,--no-as-needed,-E,--unresolved-symbols=ignore-in-object-files', driver];
    const own = ['-static-libstdc++', '-static-libgcc', '-ldl', '-lpthread'];
    const sources = [join(examples, 'engine.cpp'), join(folder, 'heddle.o')];
    const include = ['-I', folder, '-isystem', headers];
    execFileSync(gxx, ['-O2', ...include, ...sources, ...link, ...own, '-o', join(folder, 'engine')]);
  }
  for (const { name, shape } of pages) {
    const folder = await write(name, await planOf('one-sided', shape));
    copyFileSync(join(examples, 'engine.py'), join(folder, 'engine.py'));
  }
}
