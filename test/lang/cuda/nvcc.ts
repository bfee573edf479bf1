/** nvcc and nvdisasm: what the tests of printed CUDA compile and read with. */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { compileOptions } from '../../../src/lang/index.js';
import { cudaTool } from '../../needs.js';

/** The architectures for which every kernel must compile cleanly. */
export const architectures = ['sm_90a', 'sm_100a'] as const;

export interface CompiledKernel {
  readonly name: string;
  readonly registers: number;
  /** Bytes of registers spilled to local memory, stores and loads together. */
  readonly spillBytes: number;
  /** Bytes of local memory that a thread has for anything else. */
  readonly stackBytes: number;
}

export interface CompiledCuda {
  readonly kernels: readonly CompiledKernel[];
  readonly warnings: readonly string[];
  readonly cubin: Uint8Array;
}

const run = promisify(execFile);

/** Compiles a translation unit with the options that devices use. Rejects with the compiler's messages. */
export async function compileCuda(
  text: string,
  architecture: string,
  /** What lies beside it, by name. */
  files: Readonly<Record<string, string>> = {},
): Promise<CompiledCuda> {
  const folder = await mkdtemp(join(tmpdir(), 'heddle-nvcc-'));
  try {
    for (const [name, content] of Object.entries(files)) await writeFile(join(folder, name), content);
    await writeFile(join(folder, 'kernel.cu'), text);
    const verbose = ['-Xptxas', '-v,-warn-spills,-warn-lmem-usage', '-Xcudafe', '--display_error_number'];
    const { stdout, stderr } = await run(
      cudaTool('nvcc')!,
      [...compileOptions(architecture), ...verbose, '--cubin', 'kernel.cu', '-o', 'kernel.cubin'],
      { cwd: folder },
    );
    const log = stdout + stderr;
    return {
      kernels: log.split(/(?=Compiling entry function)/).flatMap(kernelReport),
      warnings: log.split('\n').filter((line) => /warning|Potential Performance Loss/i.test(line)),
      cubin: await readFile(join(folder, 'kernel.cubin')),
    };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** What ptxas -v says about one kernel. */
function kernelReport(log: string): CompiledKernel[] {
  const number = (pattern: RegExp): number => Number(pattern.exec(log)?.[1] ?? Number.NaN);
  const name = /Compiling entry function '(\w+)'/.exec(log)?.[1];
  if (name === undefined) return [];
  return [
    {
      name,
      registers: number(/Used (\d+) registers/),
      spillBytes: number(/(\d+) bytes spill stores/) + number(/(\d+) bytes spill loads/),
      stackBytes: number(/(\d+) bytes stack frame/),
    },
  ];
}

/** The machine instructions of each kernel of a cubin, without their addresses. */
export async function disassemble(cubin: Uint8Array): Promise<Map<string, string[]>> {
  const folder = await mkdtemp(join(tmpdir(), 'heddle-sass-'));
  try {
    await writeFile(join(folder, 'kernel.cubin'), cubin);
    const options = { maxBuffer: 1 << 28 };
    const { stdout } = await run(
      cudaTool('nvdisasm')!,
      ['--print-code', join(folder, 'kernel.cubin')],
      options,
    );
    const sections = stdout.split(/^\.text\.(?=\w+:)/m).slice(1);
    return new Map(
      sections.map((section) => [
        section.slice(0, section.indexOf(':')),
        [...section.matchAll(/\/\*[0-9a-f]{4,}\*\/\s+(.*?)\s*;/g)].map((match) => match[1]!),
      ]),
    );
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
