import { describe, expect, it } from 'vitest';
import { normalBusId } from '../../../src/gpu/cuda/nvml.js';
import { ncclVersion } from '../../../src/tools/bench/index.js';
import { examineCuda, peerFinding } from '../../../src/tools/doctor/cuda.js';
import { about } from '../../../src/tools/doctor/finding.js';

const x = about('X', 'something');
const absence = (reason: string) => x.absent({ reason }, 'install it');

describe('examining CUDA', () => {
  it('says for everything what it enables, and how to have what is missing', async () => {
    const { findings, gpus } = await examineCuda();
    const names = findings.map(({ name }) => name);
    for (const name of ['NVIDIA driver', 'GPUs', 'Peer access', 'CUDA compiler', 'NCCL', 'NVSHMEM']) {
      expect(names).toContain(name);
    }
    for (const where of ['processes', 'machines']) expect(names).toContain(`Windows between ${where}`);
    for (const { name, state, detail, enables, remedy } of findings) {
      expect(detail, name).not.toBe('');
      expect(enables, name).not.toBe('');
      if (state !== 'found') expect(remedy, name).toBeTruthy();
    }
    const gpuFinding = findings.find(({ name }) => name === 'GPUs')!;
    expect(gpuFinding.state === 'found').toBe(gpus.length > 0);
  });

  it('tells a library that is missing from one that is broken', () => {
    const nowhere = 'libx.so.2: cannot open shared object file: No such file or directory';
    expect(absence(nowhere)).toMatchObject({ state: 'missing', detail: 'not found: libx.so.2' });
    expect(absence(`${nowhere}; ${nowhere.replace('.2', '.1')}`).detail).toBe(
      'not found: libx.so.2, libx.so.1',
    );
    expect(absence(`${nowhere}; /opt/libx.so: file too short`).state).toBe('broken');
    expect(absence('opening it ended the probing process with SIGSEGV').state).toBe('broken');
  });

  it('reports a library with its version and place', () => {
    const found = { ok: true, name: 'libx.so', path: '/lib/libx.so.2.1', version: 22_809 } as const;
    expect(x.library(found, ncclVersion, 'install it')).toEqual({
      name: 'X',
      state: 'found',
      detail: '2.28.9 (/lib/libx.so.2.1)',
      enables: 'something',
      remedy: null,
    });
    const crashed = { ok: false, reason: 'opening it ended the probing process with SIGSEGV' } as const;
    expect(x.library(crashed, ncclVersion, 'install it')).toMatchObject({
      state: 'broken',
      remedy: 'install it',
    });
  });

  it('names the GPUs that do not reach each other, and what may be in their way', () => {
    const gpu = (ordinal: number, access: boolean, atomics: boolean) => ({
      ordinal,
      links: null,
      peers: [{ ordinal: 1 - ordinal, access, atomics }],
    });
    expect(peerFinding([gpu(0, true, true), gpu(1, false, false)])).toMatchObject({
      state: 'broken',
      detail: 'refused between 1→0',
      remedy: expect.stringMatching(/CUDA_VISIBLE_DEVICES.*IOMMU/),
    });
    expect(peerFinding([gpu(0, true, true), gpu(1, true, true)]).state).toBe('found');
    expect(peerFinding([gpu(0, true, false), gpu(1, true, false)]).detail).toMatch(/PCIe \(slow\)/);
    expect(peerFinding([gpu(0, true, true)].map((one) => ({ ...one, peers: [] }))).state).toBe('missing');
  });

  it('knows a GPU by the bus id of either library', () => {
    expect(normalBusId('00000000:1B:00.0')).toBe('0000:1b:00.0');
    expect(normalBusId('0000:1b:00.0')).toBe('0000:1b:00.0');
  });
});
