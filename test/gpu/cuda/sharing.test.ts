import { describe, expect, it } from 'vitest';
import { view } from '../../../src/base/native/index.js';
import { type Context, createOut } from '../../../src/gpu/cuda/driver.js';
import type { Gpu } from '../../../src/gpu/cuda/gpu.js';
import { decodeHandle, encodeHandle, type WindowHandle } from '../../../src/gpu/cuda/handle.js';
import { type ProcessId, probeFabric, wayTo } from '../../../src/gpu/cuda/sharing.js';
import { fabricFinding } from '../../../src/tools/doctor/cuda.js';

const here: ProcessId = { pid: 100, started: 5000, bootId: 'this machine', pidNamespace: 7 };
const window: WindowHandle = {
  ...{ kind: 'virtual', ...here, pid: 101, fd: 12, fabric: 800, opaque: new Uint8Array(64) },
  ...{ address: 2 ** 40, bytes: 4096, mappedBytes: 2 ** 21, ordinal: 1, uuid: '00'.repeat(16) },
  ...{ token: new Uint8Array(16), purpose: 'receive window' },
};
const way = (changes: Partial<WindowHandle>) => {
  // As it arrives.
  const handle = decodeHandle(encodeHandle({ ...window, ...changes }));
  return wayTo(handle, here, 'the receive window of process 101 (GPU 1)');
};

describe('the way to another window', () => {
  const elsewhere = { bootId: 'another machine' };
  const container = { pidNamespace: 8 };
  const fabric = { fabric: 0, opaque: new Uint8Array(64).fill(3) };

  it('is the owner’s mapping in the same process only', () => {
    expect(way({ pid: 100 })).toBe('here');
    expect(way({ pid: 100, kind: 'ipc' })).toBe('here');
    // The id was used again, by another container or on another machine.
    expect(way({ pid: 100, started: 4999 })).toBe('descriptor');
    expect(way({ pid: 100, ...container, ...fabric })).toBe('fabric');
    expect(way({ pid: 100, ...elsewhere, ...fabric })).toBe('fabric');
  });

  it('is a descriptor on one machine, whether or not there is a fabric handle', () => {
    expect(way({})).toBe('descriptor');
    expect(way(fabric)).toBe('descriptor');
  });

  it('is the fabric handle between machines, between containers, and where there is no descriptor', () => {
    expect(way({ ...elsewhere, ...fabric })).toBe('fabric');
    expect(way({ ...container, ...fabric })).toBe('fabric');
    expect(way({ fd: -1, ...fabric })).toBe('fabric');
  });

  it('is CUDA IPC where the owner has nothing else, on its machine', () => {
    expect(way({ kind: 'ipc', fd: -1 })).toBe('ipc');
    expect(() => way({ kind: 'ipc', fd: -1, ...elsewhere })).toThrow(
      /on another machine.*CUDA IPC ends there/,
    );
  });

  it('is none where the owner’s driver refused, and says so', () => {
    expect(() => way(elsewhere)).toThrow(
      /^the receive window of process 101 \(GPU 1\) is on another machine and has no fabric handle \(.*\(800\): no IMEX channel/,
    );
    expect(() => way({ ...elsewhere, fabric: 801 })).toThrow(
      /\(801\): no NVLink domain.*nvidia-imex.*beyond a node/,
    );
    expect(() => way(container)).toThrow(/in another container.*docker run --pid host/);
  });
});

// Each GPU of a process is asked once: every trial has its own.
let ordinals = 30;

/** A GPU whose driver may refuse one call; it notes what it made and did not get back. */
function stand(refuses?: string, fabricHandles = true) {
  const ordinal = ordinals++;
  const gpu = { ordinal, virtualMemory: true, posixHandles: true, fabricHandles } as Gpu;
  const out = createOut(256);
  const live = new Set<bigint>();
  const calls: string[] = [];
  const call =
    (name: string, does: (...args: number[]) => void) =>
    (...args: number[]) => {
      calls.push(name);
      if (name === refuses) return 800;
      does(...args);
      return 0;
    };
  const make = (to: number) => {
    const handle = BigInt(100 + calls.length);
    live.add(handle);
    new BigUint64Array(view(to, 8))[0] = handle;
  };
  const driver = {
    out,
    cuMemGetAllocationGranularity: call('cuMemGetAllocationGranularity', (to) => {
      new BigUint64Array(view(to!, 8))[0] = 2n ** 21n;
    }),
    cuMemCreate: call('cuMemCreate', (to, bytes, properties) => {
      // CUmemAllocationProp: pinned, shared by descriptor and fabric handle, on this device.
      expect([...new Int32Array(view(properties!, 16))]).toEqual([1, 9, 1, ordinal]);
      expect(bytes).toBe(2 ** 21);
      make(to!);
    }),
    cuMemExportToShareableHandle: call('cuMemExportToShareableHandle', (to, _, type) => {
      expect(type).toBe(8);
      new Uint8Array(view(to!, 64)).fill(0xab);
    }),
    cuMemImportFromShareableHandle: call('cuMemImportFromShareableHandle', (to, from, type) => {
      expect(type).toBe(8);
      expect(new Uint8Array(view(from!, 64)).every((byte) => byte === 0xab)).toBe(true);
      make(to!);
    }),
    cuMemRelease: (handle: bigint) => (live.delete(handle) ? 0 : 1),
  };
  const probe = () => probeFabric({ driver, use() {} } as unknown as Context, gpu);
  return { probe, live, calls };
}

describe('probing fabric handles', () => {
  it('makes, exports and imports a piece of memory, once, and keeps nothing', () => {
    const { probe, live, calls } = stand();
    expect(probe()).toMatchObject({ result: 0 });
    const asked = calls.length;
    expect(probe()).toMatchObject({ result: 0 });
    expect(calls).toHaveLength(asked);
    expect(live.size).toBe(0);
  });

  it('does not ask a driver that says it has none', () => {
    const { probe, calls } = stand(undefined, false);
    expect(probe()).toMatchObject({ result: 801 });
    expect(calls).toEqual([]);
  });

  it.each([
    'cuMemGetAllocationGranularity',
    'cuMemCreate',
    'cuMemExportToShareableHandle',
    'cuMemImportFromShareableHandle',
  ])('believes a refusal of %s rather than the attribute, and doctor passes it on', (call) => {
    const { probe, live } = stand(call);
    const { result, detail } = probe();
    expect(result).toBe(800);
    expect(detail).toMatch(new RegExp(`^${call} refuses fabric handles with .*\\(800\\): no IMEX channel`));
    expect(live.size).toBe(0);
    expect(fabricFinding(probe())).toMatchObject({ state: 'missing', detail });
    expect(fabricFinding(probe()).remedy).toMatch(/NVLink domain.*nvidia-imex/);
  });

  it('is a finding on every machine', () => {
    expect(fabricFinding(null)).toMatchObject({ state: 'missing', detail: 'no GPUs' });
    const found = fabricFinding({ result: 0, detail: 'fabric handles' });
    expect(found).toMatchObject({ state: 'found', remedy: null });
  });
});
