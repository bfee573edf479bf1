import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { attributes, blankUniqueId, requireKnownVersion } from '../../../src/gpu/cuda/nvshmem/attributes.js';
import { versionIn } from '../../../src/gpu/cuda/nvshmem/headers.js';
import { nvshmemFinding } from '../../../src/tools/doctor/cuda.js';
import { needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';
import { transpiled } from '../../tree.js';

function child(what: string, env: Record<string, string> = {}) {
  const { stdout, stderr } = spawnSync(
    process.execPath,
    [transpiled('test/gpu/cuda/nvshmem-child.ts'), what],
    {
      encoding: 'utf8',
      timeout: 30_000,
      env: { ...process.env, ...env },
    },
  );
  return { said: stdout.trim(), calls: stderr.trim().split('\n') };
}

describe('the structures of 3.4', () => {
  it('are what its headers say, word by word', () => {
    const view = new DataView(attributes(0x7f12_3456_7890, 3, 8).buffer);
    expect(view.byteLength).toBe(144);
    expect([0, 16, 24].map((at) => view.getUint32(at, true))).toEqual([65_680, 65_664, 65_560]);
    expect(view.getBigUint64(32, true)).toBe(0x7f12_3456_7890n);
    expect([40, 44].map((at) => view.getInt32(at, true))).toEqual([3, 8]);
    expect(view.getBigUint64(8, true)).toBe(0n);
    const id = blankUniqueId();
    expect([id.length, new DataView(id.buffer).getUint32(0, true)]).toEqual([128, 65_664]);
  });

  it('are those of no other version', () => {
    expect(requireKnownVersion([3, 4, 5])).toBeUndefined();
    for (const version of [
      [2, 11, 0],
      [3, 3, 9],
      [3, 5, 0],
      [4, 4, 5],
    ] as const)
      expect(() => requireKnownVersion(version)).toThrow(
        `This is NVSHMEM ${version.join('.')}; Heddle knows the structures of 3.4 only. pip install`,
      );
  });
});

describe('a machine without NVSHMEM', needing('no nvshmem'), () => {
  it('gets told what to install', () => {
    expect(child('round').said).toMatch(
      /^UnavailableError: .*libnvshmem_host\.so\.3: .*pip install nvidia-nvshmem/,
    );
  });
});

describe('a stand-in for the library', needing('cc'), () => {
  const folder = temporaryFolder();
  beforeAll(() => {
    for (const sub of ['lib', 'include/non_abi', 'cuda/include/cuda/std'])
      mkdirSync(join(folder, sub), { recursive: true });
    const source = join(import.meta.dirname, 'nvshmem.c');
    execFileSync('cc', ['-shared', '-fPIC', '-o', join(folder, 'lib/libnvshmem_host.so.3'), source]);
  });
  const over = (what: string, env: Record<string, string> = {}) =>
    child(what, { ...env, LD_LIBRARY_PATH: join(folder, 'lib'), CUDA_HOME: join(folder, 'cuda') });

  const coming = ['id', 'init 8, rank 1 of 2, where to meet, NVLS 1', 'malloc 64', 'module in'];

  it('is called in order, and never with multicast', () => {
    const { said, calls } = over('round', { NVSHMEM_DISABLE_NVLS: '0' });
    expect(said).toBe('');
    expect(calls).toEqual([...coming, 'module out', 'free', 'finalize']);
  });

  it('is entered once', () => {
    expect(over('twice').said).toMatch(/This process has been in NVSHMEM before.*a process for each world/);
  });

  it('is refused in another version, before anything else is called', () => {
    const { said, calls } = over('round', { FAKE_MINOR: '3' });
    expect(said).toMatch(/This is NVSHMEM 3\.3\.5; Heddle knows the structures of 3\.4 only/);
    expect(calls).toEqual(['']);
  });

  it('may fail without a word: its state is asked for', () => {
    expect(over('round', { FAKE_STARTS: '0' }).said).toMatch(
      /NVSHMEM did not start on rank 1 of 2 \(result 0, status 0\)\. Set NVSHMEM_DEBUG=INFO/,
    );
  });

  it('has only so much room', () => {
    expect(over('greedy').said).toMatch(
      /no room for the 1073741824 bytes of the receive window.*SYMMETRIC_SIZE/,
    );
  });

  it('has headers beside it, of its own version, and those of CUDA', () => {
    const header = (at: string, text = '') => writeFileSync(join(folder, at), text);
    const version = (patch: number) =>
      header(
        'include/non_abi/nvshmem_version.h',
        versionHeader.replace('PATCH_VERSION 5', `PATCH_VERSION ${patch}`),
      );
    expect(over('headers').said).toMatch(/headers of NVSHMEM are not where its library is.*NVSHMEM_HOME/);
    header('include/nvshmem.h');
    expect(over('headers').said).toMatch(
      /^UnavailableError: The headers in .*include do not say of which version .*, the library .* is 3\.4\.5/,
    );
    version(6);
    expect(over('headers').said).toMatch(/are of NVSHMEM 3\.4\.6, the library .* is 3\.4\.5/);
    version(5);
    header('cuda/include/cuda_runtime.h');
    header('cuda/include/cuda/std/type_traits');
    expect(over('headers').said).toBe(`3.4.5 ${join(folder, 'include')}`);
  });
});

const versionHeader = `#define NVSHMEM_VENDOR_MAJOR_VERSION 3
#define NVSHMEM_VENDOR_MINOR_VERSION 4
#define NVSHMEM_VENDOR_PATCH_VERSION 5
#define NVSHMEM_TRANSPORT_PLUGIN_MAJOR_VERSION 9
`;

it('reads the version of headers', () => {
  expect(versionIn(versionHeader)).toBe('3.4.5');
  expect(versionIn('')).toBe('?.?.?');
});

it('doctor says what the trial saw', () => {
  const trial = { version: '3.4.5', cameUp: true, plugins: ['ibrc'], refusal: null };
  expect(nvshmemFinding(trial, '/lib/x.so')).toMatchObject({
    state: 'found',
    detail: '3.4.5 (/lib/x.so); transports: NVLink (came up on GPU 0), ibrc',
    remedy: null,
  });
  expect(nvshmemFinding({ ...trial, refusal: 'no headers' }, '')).toMatchObject({
    state: 'broken',
    detail: 'no headers',
  });
  expect(nvshmemFinding('it ended with exit code 255', '/x')).toMatchObject({
    state: 'broken',
    detail: 'it ended with exit code 255 (/x)',
  });
});
