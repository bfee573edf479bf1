import { join } from 'node:path';
import { makeFolder, writeOutput } from '../../base/files/index.js';
import { compileKernel, findCompiler, requireHardware } from '../../gpu/cuda/index.js';
import { compileOptions, entryName, type IrModule, printCuda } from '../../lang/index.js';
import { type Architecture, byPreference } from './architecture.js';
import { printHeader } from './header.js';
import type { Exported } from './launch-plan.js';
import { printSource } from './source.js';

/**
 * Writes a launch plan, its kernels, and a host in C into a folder; names in C begin with `prefix`. `compiling` hears of each kernel
 * that is about to be compiled.
 * @throws, before anything is written, UnavailableError where an architecture lacks what a kernel needs, or there is no compiler, and
 * CompileError where it refuses a kernel.
 */
export async function writeExport(
  { plan, kernels }: Exported,
  folder: string,
  prefix: string,
  given: readonly Architecture[],
  compiling: (file: string) => void = () => {},
) {
  const architectures = given.toSorted(byPreference);
  for (const kernel of kernels.values())
    for (const { capability, name } of architectures) requireHardware(kernel.ir(), capability, name);
  if (architectures.length > 0) await findCompiler();
  const files = new Map<string, string | Uint8Array>([['plan.json', `${JSON.stringify(plan, null, 2)}\n`]]);
  const images = new Map<string, Uint8Array[]>();
  for (const [name, kernel] of kernels) {
    files.set(`${name}.cu`, printCuda(kernel.ir()));
    const made: Uint8Array[] = [];
    for (const architecture of architectures) {
      const file = `${name}.${architecture.name}.${architecture.image}`;
      compiling(file);
      made.push(await imageOf(kernel.ir(), architecture.name));
      files.set(file, made.at(-1)!);
    }
    images.set(name, made);
  }
  files.set(`${prefix}.h`, printHeader(plan, prefix));
  files.set(`${prefix}.c`, printSource(plan, prefix, { architectures, images }));
  makeFolder(folder);
  return [...files].map(([file, contents]) => {
    writeOutput(join(folder, file), contents);
    return { file, bytes: Buffer.byteLength(contents) };
  });
}

function imageOf(module: IrModule, architecture: string): Promise<Uint8Array> {
  const source = { text: printCuda(module), entry: entryName(module), options: compileOptions };
  return compileKernel(source, architecture);
}
