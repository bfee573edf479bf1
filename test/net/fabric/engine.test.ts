import { afterEach, describe, expect, it } from 'vitest';
import { ArgumentError, DisposedError, UnavailableError } from '../../../src/base/errors.js';
import {
  FabricError,
  listProviders,
  PeerLostError,
  TransferEngine,
  WaitTimeoutError,
} from '../../../src/net/fabric/index.js';
import { decodeRegion, encodeRegion } from '../../../src/net/fabric/libfabric/address.js';
import { describeOver, needing } from '../../needs.js';
import { bytesOf, closeEngines, operations, pair, until } from './operations.js';

const all = ['shm', 'tcp;ofi_rxm', 'udp;ofi_rxd'] as const;
afterEach(closeEngines);

describeOver(all, 'operations on %s', (provider) => {
  it.each(Object.entries(operations))('%s', (_, run) => run({ provider }));
});

describe('waiting', needing('tcp;ofi_rxm'), () => {
  it('sleeps until the thread of the engine has what it waits for', async () => {
    const { a, b, whole } = await pair({ thread: 'worker' });
    const counter = a.counter();
    const landed = b.immediate(1).wait(3);
    const write = { ...whole, bytes: 1000, immediate: 1, counter };
    for (let i = 0; i < 3; i++) a.write(write);
    await Promise.all([landed, counter.wait()]);
    for (let i = 0; i < 3; i++) a.write(write);
    counter.waitSync();
    b.immediate(1).waitSync(3);
    expect(counter.completed).toBe(6);
    expect(b.immediate(1).landed).toBe(0);
  });

  it('ends with the tag and what there was of it, and leaves the count as it was', async () => {
    const { a, b, whole, toA } = await pair({ thread: 'worker' });
    a.write({ ...whole, bytes: 8, immediate: 5 });
    await b.immediate(5).wait(1);
    a.write({ ...whole, bytes: 8, immediate: 5 });
    await expect.poll(() => b.immediate(5).landed, { timeout: 20_000 }).toBe(1);
    // When half of it is over a is asked for a sign of life.
    const wait = b.immediate(5).wait(2, { timeoutMs: 1500, from: [toA] });
    await expect(wait).rejects.toThrow(WaitTimeoutError);
    await expect(wait).rejects.toThrow(
      /wait for 2 writes with immediate 5 \(1 landed\): not enough within 1500 ms/,
    );
    expect(b.immediate(5).landed).toBe(1);
  });
});

describe('refusals', () => {
  it('name the argument of a bad operation, at the call', needing('shm'), async () => {
    const { a, b, source, target, remote, toB, toA, whole } = await pair({ provider: 'shm' });
    const good = { ...whole, bytes: 8 };
    const refused = (change: object, argument: string) => {
      try {
        a.write({ ...good, ...change });
      } catch (error) {
        expect(error).toBeInstanceOf(ArgumentError);
        expect((error as ArgumentError).argument).toBe(argument);
        return;
      }
      expect.unreachable(`${argument} was accepted`);
    };
    refused({ sourceOffset: 65_529 }, 'sourceOffset');
    refused({ sourceOffset: -1 }, 'sourceOffset');
    refused({ sourceOffset: 0.5 }, 'sourceOffset');
    refused({ targetOffset: 65_529 }, 'targetOffset');
    refused({ bytes: 65_537 }, 'bytes');
    refused({ bytes: Number.NaN }, 'bytes');
    refused({ immediate: -1 }, 'immediate');
    refused({ immediate: 2 ** 32 }, 'immediate');
    refused({ immediate: 1.5 }, 'immediate');
    refused({ source: target }, 'source');
    refused({ source: new Uint8Array(8) }, 'source');
    refused({ target: target }, 'target');
    refused({ target: b.remote(toA, source.descriptor) }, 'target');
    expect(() => a.group([remote, remote])).toThrow(/members .*b twice/);
    expect(() => a.barrier({ group: a.group([remote]), immediate: -5 })).toThrow(/immediate is -5/);
    expect(() => a.remote(toB, source.descriptor)).toThrow(/descriptor .*of a region of b, not of engine/);
    const told = decodeRegion(target.descriptor);
    for (const rails of [[], [...told.rails, ...told.rails]])
      expect(() => a.remote(toB, encodeRegion({ ...told, rails }))).toThrow(
        /descriptor.rails.length is [02]/,
      );
    expect(() => a.addPeer(new Uint8Array(4))).toThrow(/address is .*another engine's/);
    expect(() => a.immediate(2 ** 32)).toThrow(/tag/);
    const [pages, group] = [{ ...good, sourceOffsets: [0], targetOffsets: [0] }, a.group([remote])];
    const slices = { source, group, sourceOffsets: [0], targetOffsets: [0], bytes: [8] };
    expect(() => a.paged({ ...pages, sourceOffsets: [65_529] })).toThrow(/sourceOffsets is 65529/);
    expect(() => a.paged({ ...pages, targetOffsets: [] })).toThrow(/targetOffsets.length is 0/);
    expect(() => a.paged({ ...pages, immediate: 2 ** 32 })).toThrow(/immediate is 4294967296/);
    expect(() => a.scatter({ ...slices, targetOffsets: [65_529] })).toThrow(/targetOffsets is 65529/);
    expect(() => a.scatter({ ...slices, bytes: [8, 8] })).toThrow(/bytes.length is 2/);
    expect(() => a.scatter({ ...slices, source: target })).toThrow(/source is .*not of another/);
    expect(() => a.scatter({ ...slices, group: b.group([b.remote(toA, source.descriptor)]) })).toThrow(
      /group is .*a group of this engine/,
    );
    expect(() => a.hasRoomFor(toA)).toThrow(/peer is .*of this engine/);
    expect(() => a.removePeer(toA)).toThrow(/peer is .*of this engine/);
    expect(() => a.register([1, 2] as unknown as Uint8Array)).toThrow(/buffer is/);
    const spare = a.allocate(4096);
    spare.close();
    expect(() => a.write({ ...good, source: spare })).toThrow(DisposedError);
    a.removePeer(toB);
    expect(() => a.write(good)).toThrow(/target .*but b was removed/);
    await a.close();
    for (const call of [
      () => a.write(good),
      () => a.paged(pages),
      () => a.scatter(slices),
      () => a.barrier({ group, immediate: 1 }),
      () => a.hasRoomFor(toB),
      () => a.addPeer(b.address),
      () => a.allocate(1),
    ])
      expect(call).toThrow(DisposedError);
  });

  it.each(['caller', 'worker'] as const)(
    'of waits on a closed engine name it (%s)',
    needing('libfabric'),
    async (thread) => {
      const engine = await TransferEngine.open({ thread });
      const [counter, landed] = [engine.counter(), engine.immediate(3)];
      await engine.close();
      expect(engine.poll()).toBe(false);
      expect(counter.reached(1)).toBe(false);
      expect(landed.take(1)).toBe(false);
      await expect(landed.wait(1)).rejects.toThrow(DisposedError);
      expect(() => landed.waitSync(1)).toThrow(DisposedError);
      for (const call of [
        () => engine.register(new Uint8Array(8)),
        () => engine.registerGpu({ address: 4096, bytes: 8, ordinal: 0 }),
        () => engine.group([]),
      ])
        expect(call).toThrow(DisposedError);
    },
  );

  it.each(['caller', 'worker'] as const)(
    'nobody who closes an engine goes on before it is closed (%s)',
    needing('libfabric'),
    async (thread) => {
      const engine = await TransferEngine.open({ thread });
      let closed = false;
      const first = engine.close().then(() => {
        closed = true;
      });
      await engine.close();
      expect(closed).toBe(true);
      await first;
    },
  );

  it('name the options of a bad engine', needing('tcp;ofi_rxm'), async () => {
    await expect(TransferEngine.open({ provider: 'pigeon' as 'shm' })).rejects.toThrow(
      /provider is "pigeon".*tcp;ofi_rxm/,
    );
    await expect(TransferEngine.open({ provider: 'tcp;ofi_rxm', devices: ['nope0'] })).rejects.toThrow(
      /devices.*nope0.*lo/,
    );
    await expect(TransferEngine.open({ rails: 0 })).rejects.toThrow(/rails is 0/);
    await expect(TransferEngine.open({ immediates: 0 })).rejects.toThrow(/immediates is 0/);
    await expect(TransferEngine.open({ provider: 'efa' })).rejects.toThrow(UnavailableError);
    await expect(TransferEngine.open({ provider: 'efa' })).rejects.toThrow(/efa: .*Install libfabric/);
  });

  it('tell engines apart that cannot talk to one another', needing('shm', 'udp;ofi_rxd'), async () => {
    const { a } = await pair({ provider: 'shm' });
    const { a: other } = await pair({ provider: 'udp;ofi_rxd' });
    const { a: twoRails } = await pair({ provider: 'shm', rails: 2 });
    expect(() => a.addPeer(other.address)).toThrow(/address.provider is "udp;ofi_rxd".* shm/);
    expect(() => a.addPeer(twoRails.address)).toThrow(/address.rails.length is 2/);
  });
});

describe('failure', needing('tcp;ofi_rxm'), () => {
  it('of one write with a bad key leaves the peer and its other writes alone, or loses the peer by name', async () => {
    const { a, b, target, remote, toB, whole } = await pair({});
    const counter = a.counter();
    const stale = b.allocate(4096);
    const descriptor = stale.descriptor;
    stale.close();
    const gone = a.remote(toB, descriptor);
    a.write({ ...whole, target: gone, bytes: 64, counter });
    until([a, b], () => counter.reached(1));
    expect(counter.failed).toBe(1);
    expect(counter.error instanceof PeerLostError || counter.error instanceof FabricError).toBe(true);
    expect(counter.error?.message).toMatch(/write of 64 bytes to b/);
    expect(bytesOf(target).every((byte) => byte === 0)).toBe(true);
    expect(remote.peer).toBe(toB);
  });

  it('of a peer that never answers frees what was under way, and the region with it', async () => {
    const { a, source, toB, whole } = await pair({ timeoutMs: 200 });
    const counter = a.counter();
    for (let i = 0; i < 20; i++) a.write({ ...whole, bytes: 4096, counter, immediate: 1 });
    expect(() => source.close()).toThrow(/region.underway is 20/);
    // Nobody polls b: to a, it has stopped.
    until([a], () => counter.reached(20));
    expect(counter.failed).toBe(20);
    expect(counter.error).toBeInstanceOf(PeerLostError);
    expect(toB.lost).toBe(true);
    expect(a.underway).toBe(0);
    source.close();
    expect(() => source.buffer).toThrow(DisposedError);
  });

  it('of an immediate too many is told to whoever waits', async () => {
    const { a, b, whole } = await pair({ immediates: 1 });
    for (let immediate = 1; immediate <= 4; immediate++) a.write({ ...whole, bytes: 8, immediate });
    until([a, b], () => a.underway === 0);
    await expect(b.immediate(1).wait(2)).rejects.toThrow(/More different immediates/);
  });
});

describe('GPU memory', () => {
  it(
    'is staged, too, when neither its dmabuf nor its address can be registered',
    needing('tcp;ofi_rxm'),
    async () => {
      // A libfabric older than 1.20 is not asked about the dmabuf; a newer one refuses what is no file.
      const { a } = await pair({ provider: 'tcp;ofi_rxm', gpuMemory: true });
      const dmabuf = { fd: -1, offset: 4096 };
      const staged = a.registerGpu({ address: 0x7000_0000_0000, bytes: 4096, ordinal: 0, dmabuf });
      expect(staged.path).toBe('staging');
      expect(() => a.registerGpu({ address: 0, bytes: 4096, ordinal: 0 })).toThrow(/address is 0/);
      expect(() => a.registerGpu({ address: 4096, bytes: 0, ordinal: 0 })).toThrow(/bytes is 0/);
    },
  );

  it('is staged, visibly, where no provider takes it', needing('shm', 'tcp;ofi_rxm'), async () => {
    // The address stands for GPU memory: nothing reads it, because neither build of libfabric here knows CUDA.
    for (const provider of ['shm', 'tcp;ofi_rxm'] as const) {
      const { a, b, toA } = await pair({ provider, gpuMemory: true });
      const staged = a.registerGpu({ address: 0x7000_0000_0000, bytes: 4096, ordinal: 0 });
      expect(staged.path).toBe('staging');
      expect(a.allocate(16).path).toBe('host');
      const source = b.allocate(4096);
      bytesOf(source).fill(9);
      const target = b.remote(toA, staged.descriptor);
      b.driver.pause = () => a.poll() && false;
      b.write({ source, sourceOffset: 0, target, targetOffset: 0, bytes: 4096, immediate: 1 });
      until([a, b], () => a.immediate(1).landed === 1);
      expect(bytesOf(staged).every((byte) => byte === 9)).toBe(true);
    }
  });
});

describe('listProviders', needing('tcp;ofi_rxm'), () => {
  it('has devices or a reason for every provider', () => {
    const reports = listProviders();
    expect(reports.map(({ provider }) => provider)).toEqual(['efa', 'verbs;ofi_rxm', ...all]);
    for (const { devices, missing } of reports) expect(devices.length > 0).toBe(missing === null);
    const tcp = reports.find(({ provider }) => provider === 'tcp;ofi_rxm');
    expect(tcp?.devices.filter(({ device }) => device === 'lo')).toHaveLength(1);
  });
});
