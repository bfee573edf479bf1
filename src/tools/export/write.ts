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

/** The place of an export; names in C begin with `prefix`. */
interface Destination {
  readonly folder: string;
  readonly prefix: string;
  readonly architectures: readonly Architecture[];
  /** Hears of each kernel that is about to be compiled. */
  compiling?(file: string): void;
}

/**
 * Writes a launch plan, its kernels, and a host in C.
 * @throws, before anything is written, UnavailableError where an architecture lacks what a kernel needs, where rows cross a network or there is no compiler, and
 * CompileError where it refuses a kernel.
 */
export async function writeExport({ plan, kernels }: Exported, to: Destination) {
  if (plan.wire !== undefined)
    throw new UnavailableError(
      `rows of the family ${plan.family} need a proxy on the host here, which a host in C does not start`,
      'Export a family whose rows travel over NVLink, or call it from Python, which does',
    );
  const { prefix } = to;
  const compiled = await compile(kernels, to);
  const files = new Map<string, string | Uint8Array>([['plan.json', `${JSON.stringify(plan, null, 2)}\n`]]);
  for (const [file, contents] of filesOf(kernels, compiled)) files.set(file, contents);
  files.set(`${prefix}.h`, printHeader(plan, prefix));
  files.set(`${prefix}.c`, printSource(plan, prefix, compiled));
  return writeAll(to.folder, files);
}

/** Writes kernels that are no family's, and a header in C that says how a host launches each: as `writeExport`. */
export async function writeKernels(kernels: Exported['kernels'], version: string, to: Destination) {
  const files = filesOf(kernels, await compile(kernels, to));
  files.set(`${to.prefix}.h`, printOwnHeader([...kernels.values()], version, to.prefix));
  return writeAll(to.folder, files);
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
export async function writeShape({ plan, kernels }: Exported, to: Destination) {
  const contents = packShape(plan, await compile(kernels, to), JSON.stringify(describe(plan)));
  return writeAll(to.folder, new Map([[`${to.prefix}.heddle`, contents]]));
}

async function compile(
  kernels: Exported['kernels'],
  { architectures: given, compiling }: Destination,
): Promise<Images> {
  const architectures = given.toSorted(byPreference);
  for (const module of kernels.values())
    for (const { capability, name } of architectures) requireHardware(module, capability, name);
  if (architectures.length > 0) await findCompiler();
  const images = new Map<string, Uint8Array[]>();
  for (const [name, module] of kernels) {
    const made: Uint8Array[] = [];
    for (const architecture of architectures) {
      compiling?.(`${name}.${architecture.name}.${architecture.image}`);
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
