/**
 * Compiles examples/export-host.c for each plan, where there are gcc and cuda.h: machines with GPUs often have neither, nor
 * need this one a GPU. `npm run build:gpu-test` runs it.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { writeExport } from '../../src/tools/export/index.js';
import { cases, exported, hostOf } from './export-cases.js';

const source = join(import.meta.dirname, '../../../examples/export-host.c');
const headers = [process.env.CUDA_HOME ?? '', '/usr/local/cuda']
  .map((home) => join(home, 'include'))
  .find((path) => existsSync(join(path, 'cuda.h')));
const gcc = ['/usr/bin/gcc', '/usr/local/bin/gcc'].find((path) => existsSync(path));

if (gcc === undefined || headers === undefined)
  process.stdout.write(`no hosts in C: there is no ${gcc === undefined ? 'gcc' : 'cuda.h'} here\n`);
else
  for (const of of cases) {
    const folder = mkdtempSync(join(tmpdir(), 'heddle-export-'));
    try {
      await writeExport(await exported(of), folder, 'heddle', []);
      // Stands for the driver's library, which only machines with GPUs have.
      const driver = join(folder, 'libcuda.so.1');
      execFileSync(gcc, ['-shared', '-Wl,-soname,libcuda.so.1', '-x', 'c', '/dev/null', '-o', driver]);
      mkdirSync(dirname(hostOf(of)), { recursive: true });
      // It has no functions: `-E` keeps their names for the loader to find.
      const link = ['-Wl,--no-as-needed,-E,--unresolved-symbols=ignore-in-object-files', driver];
      const compile = ['-std=c11', '-O2', '-I', folder, '-isystem', headers, source];
      execFileSync(gcc, [...compile, ...link, '-o', hostOf(of)]);
    } finally {
      rmSync(folder, { recursive: true });
    }
  }
