/**
 * What some tests need that Node.js and npm do not bring: how each thing is found, and what brings it. A test, or a group of
 * them, says so in its options, `needing('libfabric')`. Where the thing is lacking they are skipped, and `npm test` says at its
 * end for want of what.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, statSync } from 'node:fs';
import nodeModule from 'node:module';
import { join } from 'node:path';
import { describe, type TestOptions } from 'vitest';
import { UnavailableError } from '../src/base/errors.js';
import { probe } from '../src/base/native/index.js';
import { toolkitFolders } from '../src/gpu/cuda/compilers.js';
import { driverCandidates } from '../src/gpu/cuda/driver.js';
import { nvrtcCandidates } from '../src/gpu/cuda/nvrtc.js';
import { nvshmemCandidates } from '../src/gpu/cuda/nvshmem/library.js';
import { canTakeDescriptors } from '../src/gpu/cuda/posix.js';
import {
  libfabricVersion,
  type ProviderName,
  shmRemedy,
  shmShortage,
  usableProviders,
} from '../src/net/fabric/index.js';
import { areMade } from './machines/machine.js';
import { whyNoContainer } from './net/fabric/container.js';
import { whyNoHosts } from './net/fabric/hosts.js';

/** Something that is not here, and the one thing to do about it. */
export interface Lack {
  readonly what: string;
  readonly remedy: string;
}

const because = (why: string | null, what: string, remedy: string): Lack | null =>
  why === null ? null : { what, remedy: `${remedy} (${why})` };
const unless = (here: boolean, what: string, remedy: string): Lack | null => (here ? null : { what, remedy });

/** Asked once of each: some are started many times. */
const running = new Map<string, boolean>();
function runs(program: string): boolean {
  if (!running.has(program)) running.set(program, spawnSync(program, ['--version']).status === 0);
  return running.get(program)!;
}

/** A program of the CUDA toolkit; null where there is none. */
export const cudaTool = (name: 'nvcc' | 'nvdisasm'): string | null =>
  [name, ...toolkitFolders().map((folder) => join(folder, 'bin', name))].find(runs) ?? null;

/** nvcc does nothing without a compiler of the host. */
function lacksNvcc(): Lack | null {
  const nvcc = cudaTool('nvcc');
  if (nvcc === null) return { what: 'nvcc', remedy: toolkit };
  const works = spawnSync(nvcc, ['-E', '-x', 'cu', '/dev/null'], { stdio: 'ignore' }).status === 0;
  return unless(works, 'a compiler of the host for nvcc', 'apt-get install g++');
}

/** Where the toolkit's headers are; null where there are none. */
export const cudaHeaders = (): string | null =>
  toolkitFolders()
    .map((folder) => join(folder, 'include'))
    .find((folder) => existsSync(join(folder, 'cuda.h'))) ?? null;

/** A compiler for C++; null where there is none. */
export const hostCompiler = (): string | null =>
  [process.env.CXX ?? '', 'g++', 'clang++'].filter(Boolean).find(runs) ?? null;

/** Null where there is none. */
export const findChromium = (): string | null =>
  ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((path) =>
    existsSync(path),
  ) ?? null;

const toolkit = 'install the CUDA toolkit (developer.nvidia.com/cuda-downloads), where kernels are changed';

function lacksLibfabric(): Lack | null {
  try {
    libfabricVersion();
    return null;
  } catch (error) {
    if (error instanceof UnavailableError) return { what: 'libfabric', remedy: 'apt-get install libfabric1' };
    throw error;
  }
}

/** On the interfaces that every machine has. */
function lacksProvider(provider: ProviderName): Lack | null {
  const here = () => usableProviders(provider === 'shm' ? [] : ['lo']).includes(provider);
  const remedy = 'another libfabric: Debian’s has it (apt-get install libfabric1)';
  return lacksLibfabric() ?? unless(here(), `${provider} in libfabric`, remedy);
}

/** More than any test has over shm. */
const mostEndpoints = 32;

function lacksSharedMemory(): Lack | null {
  const shortage = shmShortage(mostEndpoints);
  return shortage === null ? null : { what: shortage, remedy: shmRemedy(mostEndpoints) };
}

const hasNvrtc = (): boolean => probe(nvrtcCandidates()).ok;
const nvrtc = 'pip install nvidia-cuda-nvrtc, and put its lib folder on LD_LIBRARY_PATH';
const missed = 'none: these tests are about machines without it';

/** Each thing, by the name that tests give it. */
const things = {
  libfabric: lacksLibfabric,
  'tcp;ofi_rxm': () => lacksProvider('tcp;ofi_rxm'),
  'udp;ofi_rxd': () => lacksProvider('udp;ofi_rxd'),
  shm: () => lacksLibfabric() ?? lacksSharedMemory() ?? lacksProvider('shm'),
  container: () => because(whyNoContainer(), 'a mount namespace', 'be root, outside of a container'),
  'process ids': () =>
    unless(
      spawnSync('unshare', ['--mount', '--pid', '--fork', '--mount-proc', 'true']).status === 0,
      'process ids of one’s own',
      'apt-get install util-linux, and be root, outside of a container',
    ),
  hosts: () => because(whyNoHosts(), 'network namespaces', 'apt-get install iproute2, and be root'),
  descriptors: () =>
    unless(
      canTakeDescriptors(),
      'leave to take descriptors of other processes',
      'docker run --cap-add SYS_PTRACE, on Linux 5.6 or newer',
    ),
  linux: () => unless(process.platform === 'linux', 'Linux', 'none: these tests are about its files'),
  mkfifo: () => unless(runs('mkfifo'), 'mkfifo', 'apt-get install coreutils'),
  // In a container somebody may have put an ordinary file in its place.
  '/dev/full': () =>
    unless(
      statSync('/dev/full', { throwIfNoEntry: false })?.isCharacterDevice() === true,
      'the device /dev/full',
      'mknod -m 666 /dev/full c 1 7, as root',
    ),
  'type stripping': () =>
    unless('stripTypeScriptTypes' in nodeModule, 'a Node.js that strips types', 'Node.js 22.13 or newer'),
  cc: () => unless(runs('cc'), 'a C compiler', 'apt-get install gcc'),
  'c++': () => unless(hostCompiler() !== null, 'a C++ compiler', 'apt-get install g++'),
  python3: () => unless(runs('python3'), 'Python', 'apt-get install python3'),
  torch: () =>
    unless(
      spawnSync('python3', ['-c', 'import torch']).status === 0,
      'PyTorch',
      'pip install torch (its CPU build will do), and have its python3 first on PATH',
    ),
  mypy: () => unless(spawnSync('mypy', ['--version']).status === 0, 'mypy', 'pip install mypy torch'),
  transformers: () =>
    unless(
      spawnSync('python3', ['-c', 'import torch, transformers.integrations.moe']).status === 0,
      'transformers',
      'pip install torch transformers (5.17 or newer), and have their python3 first on PATH',
    ),
  rustc: () => unless(runs('rustc'), 'a Rust compiler', 'apt-get install rustc'),
  'cuda.h': () => unless(cudaHeaders() !== null, 'cuda.h', toolkit),
  nvcc: lacksNvcc,
  nvdisasm: () => unless(cudaTool('nvdisasm') !== null, 'nvdisasm', toolkit),
  nvrtc: () => unless(hasNvrtc(), 'NVRTC', nvrtc),
  'nvrtc or nvcc': () => unless(hasNvrtc() || lacksNvcc() === null, 'NVRTC and nvcc', nvrtc),
  'no driver': () => unless(!probe(driverCandidates).ok, 'a machine without an NVIDIA driver', missed),
  'no efa': () =>
    lacksLibfabric() ?? unless(!usableProviders([]).includes('efa'), 'a machine without EFA', missed),
  'no nvshmem': () => unless(!probe(nvshmemCandidates).ok, 'a machine without NVSHMEM', missed),
  machines: () =>
    unless(
      areMade() && runs('qemu-system-x86_64'),
      'virtual machines',
      'apt-get install qemu-system-x86 busybox-static rdma-core ibverbs-providers cpio kmod, and test/machines/make',
    ),
  etcd: () => unless(runs('etcd'), 'etcd', 'apt-get install etcd-server'),
  openssl: () => unless(spawnSync('openssl', ['version']).status === 0, 'openssl', 'apt-get install openssl'),
  chromium: () => unless(findChromium() !== null, 'Chromium', 'apt-get install chromium'),
} satisfies Readonly<Record<string, () => Lack | null>>;

const found = new Map<Need, Lack | null>();

/** Looked for once. */
function lackOf(need: Need): Lack | null {
  let lack = found.get(need);
  if (lack === undefined) {
    lack = things[need]();
    found.set(need, lack);
  }
  return lack;
}

export type Need = keyof typeof things;
export type TestedProvider = ProviderName & Need;

declare module 'vitest' {
  interface TaskMeta {
    /** For want of which it is skipped. */
    lack?: Lack;
  }
}

/** Options of a test, or a group of them, that needs all of these. */
export function needing(...needs: readonly Need[]): TestOptions {
  const lack = needs.map(lackOf).find((lack) => lack !== null);
  return lack === undefined ? {} : { skip: true, meta: { lack } };
}

/** A group of tests over each of these providers; `name` says its name at `%s`. */
export function describeOver(
  providers: readonly TestedProvider[],
  name: string,
  tests: (provider: TestedProvider) => void,
  options: TestOptions = {},
): void {
  for (const provider of providers)
    describe(name.replace('%s', provider), { ...options, ...needing(provider) }, () => tests(provider));
}
