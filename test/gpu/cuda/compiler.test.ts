import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { CompileError } from '../../../src/gpu/cuda/diagnostics.js';
import { findNvcc, parseNvccVersion } from '../../../src/gpu/cuda/nvcc.js';
import { nvrtcCandidates, openNvrtc } from '../../../src/gpu/cuda/nvrtc.js';
import { needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';

const options = (architecture: string) => [`--gpu-architecture=${architecture}`, '--std=c++17'];
const good = 'extern "C" __global__ void k(unsigned* p) { p[threadIdx.x] = threadIdx.x; }';
const bad = 'extern "C" __global__ void k(unsigned* p) {\n#line 7 "kernels/k.ts"\n  p[0] = missing;\n}';
const elf = '\x7fELF';

describe('nvcc', needing('nvcc'), () => {
  it('compiles to a cubin', async () => {
    const compiled = await (await findNvcc()).compile(good, options('sm_90a'));
    expect(compiled.ok && Buffer.from(compiled.image.subarray(0, 4)).toString('latin1')).toBe(elf);
  });
});

describe('NVRTC', needing('nvrtc'), () => {
  it('compiles to a cubin, and reports errors', async () => {
    const nvrtc = openNvrtc();
    const compiled = await nvrtc.compile(good, options('sm_90a'));
    expect(compiled.ok && Buffer.from(compiled.image.subarray(0, 4)).toString('latin1')).toBe(elf);
    const refused = await nvrtc.compile(bad, options('sm_90a'));
    expect(refused).toMatchObject({ ok: false, log: expect.stringContaining('kernels/k.ts(7): error') });
  });
});

describe('compiling a kernel', needing('nvrtc or nvcc'), () => {
  const folder = temporaryFolder();
  beforeAll(() => void vi.stubEnv('HEDDLE_CACHE', folder));
  afterAll(() => void vi.unstubAllEnvs());

  it('happens once for callers that ask together, and fills the cache', async () => {
    const { compileKernel } = await import('../../../src/gpu/cuda/compiler.js');
    const source = { text: good, entry: 'k', options };
    const [a, b] = await Promise.all([compileKernel(source, 'sm_90a'), compileKernel(source, 'sm_90a')]);
    expect(a).toBe(b);
    expect(await readdir(folder)).toHaveLength(1);
    expect(Buffer.compare(await compileKernel(source, 'sm_90a'), a)).toBe(0);
  });

  it('shows errors at the line of the TypeScript', async () => {
    const { compileKernel } = await import('../../../src/gpu/cuda/compiler.js');
    const lineOf = (file: string, line: number) =>
      file === 'kernels/k.ts' && line === 7 ? 'p[0] = missing;' : null;
    const refused = compileKernel({ text: bad, entry: 'k', options, lineOf }, 'sm_90a');
    await expect(refused).rejects.toThrow(CompileError);
    await expect(refused).rejects.toThrow(/kernels\/k.ts:7: error: .*"missing".*\n +7 \| p\[0\] = missing;/);
  });
});

describe('choosing a compiler', () => {
  it('says what to install when there is none', async () => {
    vi.resetModules();
    vi.stubEnv('HEDDLE_COMPILER', 'nvrtc');
    vi.doMock('../../../src/gpu/cuda/nvrtc.js', () => ({
      openNvrtc: () => {
        throw new Error('libnvrtc.so.13: not there');
      },
    }));
    const { findCompiler } = await import('../../../src/gpu/cuda/compiler.js');
    await expect(findCompiler()).rejects.toThrow(
      /No CUDA compiler was found \(libnvrtc.so.13: not there\).*pip install nvidia-cuda-nvrtc/,
    );
    vi.stubEnv('HEDDLE_COMPILER', 'clang');
    await expect(findCompiler()).rejects.toThrow(
      /HEDDLE_COMPILER is "clang"; it must be auto, nvrtc or nvcc/,
    );
    vi.doUnmock('../../../src/gpu/cuda/nvrtc.js');
    vi.unstubAllEnvs();
  });

  it('says that nvcc finds no compiler of the host', needing('linux'), async () => {
    const toolkit = temporaryFolder(onTestFinished);
    const nvcc = join(toolkit, 'bin/nvcc');
    await mkdir(join(toolkit, 'bin'));
    const script =
      '#!/bin/sh\n[ "$1" = --version ] && echo V13.0.88 && exit\necho gcc: not found >&2; exit 1\n';
    await writeFile(nvcc, script, { mode: 0o755 });
    vi.stubEnv('CUDA_HOME', toolkit);
    await expect(findNvcc()).rejects.toThrow(
      `${nvcc} finds no compiler of the host: gcc: not found. Install g++, or name a compiler by NVCC_CCBIN`,
    );
    vi.unstubAllEnvs();
  });

  it('reads the version of nvcc', () => {
    expect(parseNvccVersion('Cuda compilation tools, release 13.0, V13.0.88\nBuild …')).toBe('13.0.88');
    expect(parseNvccVersion('command not found')).toBeNull();
  });

  it('prefers the generation of NVRTC that the driver can load', () => {
    expect(nvrtcCandidates(12_080)[0]).toBe('libnvrtc.so.12');
    expect(nvrtcCandidates(13_000)[0]).toBe('libnvrtc.so.13');
    expect(nvrtcCandidates(null)[0]).toBe('libnvrtc.so.13');
  });
});
