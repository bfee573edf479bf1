import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { access, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { UnavailableError } from '../../base/errors.js';
import { type Compiled, type Compiler, type ImageKind, toolkitFolders } from './compilers.js';

const compileLimit = 300_000;
const versionLimit = 20_000;

/** Finds nvcc on PATH or in a toolkit's folder. @throws UnavailableError where there is none, or none of the host's compilers for it. */
export async function findNvcc(): Promise<Compiler> {
  const folders = [
    ...toolkitFolders().map((folder) => join(folder, 'bin')),
    ...(process.env.PATH ?? '').split(delimiter).filter(Boolean),
  ];
  for (const folder of folders) {
    const path = join(folder, 'nvcc');
    try {
      await access(path, constants.X_OK);
    } catch {
      continue;
    }
    const version = parseNvccVersion((await run(path, ['--version'], versionLimit)).output);
    if (version !== null) {
      const { ok, output } = await run(path, ['-E', '-x', 'cu', '/dev/null'], versionLimit);
      if (!ok)
        throw new UnavailableError(
          `${path} finds no compiler of the host: ${output.trim().split('\n')[0]}`,
          'Install g++, or name a compiler by NVCC_CCBIN',
        );
      return { kind: 'nvcc', version, path, compile: (...what) => compile(path, ...what) };
    }
  }
  throw new UnavailableError('nvcc is neither on PATH nor in a CUDA toolkit', 'Set CUDA_HOME to the toolkit');
}

/** 'Cuda compilation tools, release 13.0, V13.0.88' → '13.0.88'. */
export function parseNvccVersion(output: string): string | null {
  return /\bV(\d+\.\d+\.\d+)/.exec(output)?.[1] ?? null;
}

async function compile(
  nvcc: string,
  text: string,
  options: readonly string[],
  to: ImageKind = 'cubin',
): Promise<Compiled> {
  const folder = await mkdtemp(join(tmpdir(), 'heddle-nvcc-'));
  try {
    const source = join(folder, 'kernel.cu');
    const image = join(folder, `kernel.${to}`);
    await writeFile(source, text);
    const { ok, output } = await run(nvcc, [`-${to}`, ...options, '-o', image, source], compileLimit);
    return ok ? { ok, image: await readFile(image) } : { ok, log: output };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function run(
  program: string,
  parameters: readonly string[],
  timeout: number,
): Promise<{ readonly ok: boolean; readonly output: string }> {
  return new Promise((resolve) => {
    execFile(program, parameters, { timeout, maxBuffer: 2 ** 26 }, (error, stdout, stderr) => {
      const output = `${stdout}${stderr}`;
      resolve({ ok: error === null, output: output === '' && error !== null ? error.message : output });
    });
  });
}
