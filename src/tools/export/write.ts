import { join } from 'node:path';
import { UnavailableError } from '../../base/errors.js';
import { makeFolder, writeOutput } from '../../base/files/index.js';
import { compileKernel, findCompiler, requireHardware } from '../../gpu/cuda/index.js';
import { compileOptions, entryName, type IrModule, printCuda } from '../../lang/index.js';
import { type Architecture, byPreference } from './architecture.js';
import { printHeader } from './header.js';
import type { Exported } from './launch-plan.js';
import { printOwnHeader } from './own-header.js';
import { describe, type Images, packShape } from './pack.js';
import { printSource } from './source.js';

/** Hears of each kernel that is about to be compiled. */
type Compiling = (file: string) => void;

/**
 * Writes a launch plan, its kernels, and a host in C into a folder; names in C begin with `prefix`.
 * @throws, before anything is written, UnavailableError where an architecture lacks what a kernel needs, where rows cross a network or there is no compiler, and
 * CompileError where it refuses a kernel.
 */
export async function writeExport(
  { plan, kernels }: Exported,
  folder: string,
  prefix: string,
  given: readonly Architecture[],
  compiling: Compiling = () => {},
) {
  if (plan.wire !== undefined)
    throw new UnavailableError(
      `rows of the family ${plan.family} need a proxy on the host here, which a host in C does not start`,
      'Export a family whose rows travel over NVLink, or call it from Python, which does',
    );
  const compiled = await compile(kernels, given, compiling);
  const files = new Map<string, string | Uint8Array>([['plan.json', `${JSON.stringify(plan, null, 2)}\n`]]);
  for (const [file, contents] of filesOf(kernels, compiled)) files.set(file, contents);
  files.set(`${prefix}.h`, printHeader(plan, prefix));
  files.set(`${prefix}.c`, printSource(plan, prefix, compiled));
  return writeAll(folder, files);
}

/** Writes kernels that are no family's, and a header in C that says how a host launches each: as `writeExport`. */
export async function writeKernels(
  kernels: Exported['kernels'],
  version: string,
  folder: string,
  prefix: string,
  given: readonly Architecture[],
  compiling: Compiling = () => {},
) {
  const files = filesOf(kernels, await compile(kernels, given, compiling));
  files.set(`${prefix}.h`, printOwnHeader([...kernels.values()], version, prefix));
  return writeAll(folder, files);
}

/** Each kernel's CUDA C++ and its images. */
function filesOf(kernels: Exported['kernels'], { architectures, images }: Images) {
  const files = new Map<string, string | Uint8Array>();
  for (const [name, module] of kernels) {
    files.set(`${name}.cu`, printCuda(module));
    for (const [a, { name: at, image }] of architectures.entries())
      files.set(`${name}.${at}.${image}`, images.get(name)![a]!);
  }
  return files;
}

function writeAll(folder: string, files: ReadonlyMap<string, string | Uint8Array>) {
  makeFolder(folder);
  return [...files].map(([file, contents]) => {
    writeOutput(join(folder, file), contents);
    return { file, bytes: Buffer.byteLength(contents) };
  });
}

/** Writes a shape, the one file that the player takes: as `writeExport`. */
export async function writeShape(
  { plan, kernels }: Exported,
  folder: string,
  prefix: string,
  given: readonly Architecture[],
  compiling: Compiling = () => {},
) {
  const compiled = await compile(kernels, given, compiling);
  const contents = packShape(plan, compiled, JSON.stringify(describe(plan)));
  makeFolder(folder);
  const file = `${prefix}.heddle`;
  writeOutput(join(folder, file), contents);
  return [{ file, bytes: contents.length }];
}

async function compile(
  kernels: Exported['kernels'],
  given: readonly Architecture[],
  compiling: Compiling,
): Promise<Images> {
  const architectures = given.toSorted(byPreference);
  for (const module of kernels.values())
    for (const { capability, name } of architectures) requireHardware(module, capability, name);
  if (architectures.length > 0) await findCompiler();
  const images = new Map<string, Uint8Array[]>();
  for (const [name, module] of kernels) {
    const made: Uint8Array[] = [];
    for (const architecture of architectures) {
      compiling(`${name}.${architecture.name}.${architecture.image}`);
      made.push(await imageOf(module, architecture.name));
    }
    images.set(name, made);
  }
  return { architectures, images };
}

function imageOf(module: IrModule, architecture: string): Promise<Uint8Array> {
  const source = { text: printCuda(module), entry: entryName(module), options: compileOptions };
  return compileKernel(source, architecture);
}
