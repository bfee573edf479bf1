import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Builds the driver of stand-in.c. With `folder` on LD_LIBRARY_PATH, a process finds it as libcuda.so.1. */
export function buildStandIn(): { readonly folder: string; remove(): void } {
  const folder = mkdtempSync(join(tmpdir(), 'heddle-driver-'));
  const text = readFileSync(join(import.meta.dirname, 'stand-in.c'), 'utf8');
  // The bindings want every symbol; these are never called.
  const bindings = readFileSync(join(import.meta.dirname, '../../../src/gpu/cuda/driver.ts'), 'utf8');
  const others = [...bindings.matchAll(/^ {2}(cu\w+): \[/gm)]
    .map(([, name]) => name!)
    .filter((name) => !text.includes(` ${name}(`));
  const source = join(folder, 'cuda.c');
  writeFileSync(source, `${text}${others.map((name) => `int ${name}(void) { return 999; }\n`).join('')}`);
  execFileSync('cc', ['-shared', '-fPIC', '-o', join(folder, 'libcuda.so.1'), source]);
  return { folder, remove: () => rmSync(folder, { recursive: true, force: true }) };
}
