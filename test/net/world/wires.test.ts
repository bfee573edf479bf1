/** Where wires lie: found by trying, or as somebody says; and what comes of it. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { HeddleError, UnavailableError } from '../../../src/base/errors.js';
import type { Device } from '../../../src/gpu/index.js';
import { SimMachine } from '../../../src/gpu/sim/index.js';
import { type FabricOptions, World } from '../../../src/net/world/index.js';
import { LocalCircle } from '../../../src/net/world/local-circle.js';
import { wireNetwork } from '../../../src/net/world/proxy/network.js';
import { findWires } from '../../../src/net/world/proxy/wires.js';
import { needing } from '../../needs.js';
import { freePort } from './circles.js';

const fabric: FabricOptions = { provider: 'tcp;ofi_rxm', devices: ['lo'] };
const asked = 'HEDDLE_WIRES, or fabric.wires, says so';

beforeEach(() => void vi.stubEnv('HEDDLE_WIRES', undefined));
afterEach(() => void vi.unstubAllEnvs());

async function found(device: Device, options: FabricOptions = {}) {
  const [wires] = await LocalCircle.run(1, (circle) => findWires(circle, device, { ...fabric, ...options }));
  return wires!;
}

const simulated = () => SimMachine.create({ ranks: 1 }).device(0);

/** A simulated GPU but for what a test says. */
const but = (differences: Partial<Device>): Device => Object.assign(simulated(), differences);

describe('over libfabric', () => {
  it('a write into memory of the GPU is tried where it must lie there', needing('tcp;ofi_rxm'), async () => {
    expect(await found(simulated(), { wires: 'gpu' })).toEqual({
      side: 'gpu',
      why: 'a write over tcp;ofi_rxm landed there (simulated)',
    });
  });

  it('what a simulated GPU has lies in host memory unless it is asked for', async () => {
    expect(await found(simulated())).toEqual({ side: 'host', why: 'the GPU is simulated' });
    expect(await found(simulated(), { wires: 'host' })).toEqual({ side: 'host', why: asked });
  });

  it('a provider that would copy by CUDA is not taken for a GPU', async () => {
    const gpu = () => but({ kind: 'cuda' });
    const why = expect.stringMatching(
      /^tcp;ofi_rxm would move a GPU's memory by copies of CUDA, which may wait/,
    );
    expect(await found(gpu())).toEqual({ side: 'host', why });
    const refusal = expect.stringMatching(
      /^Wires must lie in the GPU's memory .*, but tcp;ofi_rxm would move/,
    );
    await expect(found(gpu(), { wires: 'gpu' })).rejects.toMatchObject({ message: refusal });
  });

  it('a GPU that has no such memory says why', async () => {
    const allocateWire = () => {
      throw new UnavailableError('GPU 0 (Old) has no memory that NICs reach', 'Buy one');
    };
    await expect(found(but({ allocateWire }), { wires: 'gpu' })).rejects.toThrow('GPU 0 (Old) has no memory');
  });

  it('bytes that did not land are not believed', needing('tcp;ofi_rxm'), async () => {
    const device = simulated();
    const { createStream } = device;
    device.createStream = () => {
      const stream = createStream.call(device);
      stream.copyOut = async (_, bytes) => new Uint8Array(bytes);
      return stream;
    };
    await expect(found(device, { wires: 'gpu' })).rejects.toThrow('is not there');
  });

  it('a search that failed is none: the next call searches again', needing('tcp;ofi_rxm'), async () => {
    const options = { device: 'sim', fabric: { ...fabric, wires: 'gpu' } } as const;
    const address = `127.0.0.1:${await freePort()}`;
    const world = await World.join({ ...options, rank: 0, ranks: 1, address });
    const { allocateWire } = world.device;
    world.device.allocateWire = () => {
      throw new UnavailableError('GPU 0 has no memory that NICs reach', 'Buy one');
    };
    await expect(world.wires()).rejects.toThrow('has no memory');
    world.device.allocateWire = allocateWire;
    expect(await world.wires()).toMatchObject({ side: 'gpu' });
    await world.dispose();
  });

  it('the environment decides where the program does not', needing('tcp;ofi_rxm'), async () => {
    vi.stubEnv('HEDDLE_WIRES', 'gpu');
    expect((await found(simulated())).side).toBe('gpu');
    expect((await found(simulated(), { wires: 'host' })).side).toBe('host');
    vi.stubEnv('HEDDLE_WIRES', 'nowhere');
    await expect(found(simulated())).rejects.toThrow(/HEDDLE_WIRES is "nowhere"; it must be one of/);
  });
});

describe('a wire in memory of a simulated GPU', () => {
  it('is seen by the host up to its front, and reached by NICs from there on', async () => {
    const machine = SimMachine.create({ ranks: 2 });
    const wires = [0, 1].map((rank) =>
      machine.device(rank).allocateWire({ bytes: 96, front: 32, side: 'gpu' }, 'a wire'),
    );
    const { host, raw } = wires[0]!;
    expect(raw.length).toBe(32);
    host.store(28, 5);
    expect(() => host.load(32)).toThrow(/offset is 32/);
    expect(() => host.read(24, new Uint8Array(16))).toThrow(/offset is 24/);
    const { network } = machine.openNetwork(
      0,
      wires.map(({ address }) => address),
    );
    const bytes = 32;
    expect(() => network.write({ peer: 1, from: -16, to: 0, bytes, tag: 0 })).toThrow(/offset is -16/);
    expect(() => network.write({ peer: 1, from: 0, to: 48, bytes, tag: 0 })).toThrow(/offset is 48/);
    expect(network.write({ peer: 1, from: 32, to: 32, bytes, tag: 0 })).toBe(true);
  });

  it('refuses a shape that cannot be', async () => {
    const device = simulated();
    const wire = (bytes: number, front: number, side: string) => () =>
      device.allocateWire({ bytes, front, side: side as 'gpu' }, 'a wire');
    expect(wire(64, 8, 'gpu')).toThrow(/front is 8; it must be a multiple of 16/);
    expect(wire(64, 64, 'gpu')).toThrow(/front is 64/);
    expect(wire(64, 16, 'disk')).toThrow(/side is "disk"/);
    await expect(
      World.local({ ranks: 1, device: 'sim', fabric: { wires: 'disk' as 'gpu' } }, (world) => world.wires()),
    ).rejects.toThrow(HeddleError);
  });
});

describe('what a NIC has written into memory of a GPU', () => {
  const hear = (tag: number) => {
    const done: string[] = [];
    const network = {
      write: () => true,
      arrived() {
        done.push('came');
        return tag;
      },
    };
    const proxys = wireNetwork({ network, flush: { flush: () => void done.push('flushed') } }, 0);
    done.push(`told ${proxys.arrived()}`);
    return done;
  };

  it('is flushed behind its coming and before anybody is told', () => {
    expect(hear(7)).toEqual(['came', 'flushed', 'told 7']);
    expect(hear(0)).toEqual(['came', 'flushed', 'told 0']);
  });

  it('is not flushed where nothing came: that takes a call of the driver', () => {
    expect(hear(-1)).toEqual(['came', 'told -1']);
  });
});
