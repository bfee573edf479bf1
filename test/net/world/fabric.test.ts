import { describe, expect, it, vi } from 'vitest';
import { ArgumentError, RankLostError, UnavailableError } from '../../../src/base/errors.js';
import { PeerLostError, type Region, TransferEngine } from '../../../src/net/fabric/index.js';
import type { Circle } from '../../../src/net/world/circle.js';
import { connectFabric, type FabricConnection } from '../../../src/net/world/fabric.js';
import { LocalCircle } from '../../../src/net/world/local-circle.js';
import { overFabric } from '../../../src/net/world/proxy/network.js';
import { describeOver, needing } from '../../needs.js';
import { transpiled } from '../../tree.js';
import { launched } from './launched.js';

const program = transpiled('test/net/world/programs/fabric.ts');

describeOver(['shm', 'tcp;ofi_rxm', 'udp;ofi_rxd'], 'ranks on %s', (provider) => {
  it('meet through the rendezvous, and a lost rank is a lost peer at once', async () => {
    const { out, errors } = await launched({
      ...{ ranks: 3, program, args: [provider], graceMs: 40_000, prefix: false },
    });
    const reports = out
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line))
      .sort((a, b) => a.rank - b.rank);
    const common = {
      code: 'HEDDLE_RANK_LOST',
      lost: [1],
      cause: expect.stringMatching(/^peer rank 1 was lost during wait for 1 writes with immediate 2/),
      peerLost: true,
    };
    // Rank f fills the slice for rank t with 10 f + t + 1.
    expect(reports, errors).toEqual([
      { rank: 0, got: [[11], [21]], ...common },
      { rank: 2, got: [[3], [13]], ...common },
    ]);
  });
});

describe('connectFabric', needing('tcp;ofi_rxm'), () => {
  /** Runs ranks with an engine each, which are connected. */
  const connected = <T>(
    ranks: number,
    program: (circle: Circle, fabric: FabricConnection, engine: TransferEngine) => Promise<T>,
    { timeoutMs = 20_000, reach = [] as readonly number[][] } = {},
  ) =>
    LocalCircle.run(ranks, async (circle) => {
      const engine = await TransferEngine.open({ provider: 'tcp;ofi_rxm', devices: ['lo'], timeoutMs });
      const fabric = await connectFabric(circle, engine, reach[circle.rank]);
      const made = await program(circle, fabric, engine);
      fabric.close();
      await engine.close();
      return made;
    });

  it('names the ranks behind what the engine reports, and leaves other errors as they are', async () => {
    await connected(2, async (circle, fabric) => {
      const lost = new PeerLostError([`rank ${1 - circle.rank}`], 'write of 8 bytes', 'no answer');
      expect(fabric.toRankLost(lost)).toBeInstanceOf(RankLostError);
      expect(fabric.toRankLost(lost)).toMatchObject({
        ranks: [1 - circle.rank],
        operation: 'write of 8 bytes',
      });
      const strange = new PeerLostError(['a stranger'], 'write', 'no answer');
      expect(fabric.toRankLost(strange)).toBe(strange);
      expect(fabric.toRankLost(undefined)).toBeUndefined();
      await circle.barrier();
    });
  });

  it('tells what is under way to a rank that was lost', async () => {
    const program: Parameters<typeof connected>[1] = async (circle, fabric, engine) => {
      await circle.barrier();
      if (circle.rank === 1) return circle.abandon('it has had enough');
      const wait = engine.immediate(1).wait(1, { from: [fabric.peers[1]!] });
      await expect(wait).rejects.toThrow(/peer rank 1 was lost during wait/);
      expect(() => engine.hasRoomFor(fabric.peers[1]!)).toThrow(PeerLostError);
    };
    await connected(2, program, { timeoutMs: 600_000 });
  });

  it('knows only the ranks that it is to reach', async () => {
    const reach = [[1], [0], []];
    const program: Parameters<typeof connected<number[]>>[1] = async (circle, fabric, engine) => {
      const { remotes } = await fabric.share(engine.allocate(64));
      await circle.barrier();
      return remotes.flatMap((remote, rank) => (remote === undefined ? [] : [rank]));
    };
    expect(await connected(3, program, { reach })).toEqual(reach);
  });

  it('has nobody to write to in a circle of one, and shares regions only', async () => {
    await connected(1, async (_, fabric, engine) => {
      expect(await fabric.share(engine.allocate(64))).toEqual({ remotes: [undefined], others: null });
      await expect(fabric.share(new Uint8Array(8) as unknown as Region)).rejects.toThrow(ArgumentError);
    });
  });
});

describe('a proxy whose writes fail', needing('tcp;ofi_rxm'), () => {
  const connect = (circle: Circle, timeoutMs = 20_000) =>
    overFabric({ provider: 'tcp;ofi_rxm', devices: ['lo'], timeoutMs })(circle, {
      ...{ address: 0, nics: { kind: 'host', raw: new Uint8Array(64) } },
    });

  it.each([
    ['blames the peer', undefined, RankLostError],
    ['whose own NIC has fallen, blames its rank', { device: 'nic0' }, UnavailableError],
  ] as const)('%s', async (_, fallen, blamed) => {
    const device = vi.spyOn(TransferEngine.prototype, 'fallenDevice', 'get');
    await LocalCircle.run(2, async (circle) => {
      const link = await connect(circle, 300);
      if (circle.rank === 0) {
        device.mockReturnValue(fallen as never);
        link.network.write({ peer: 1, from: 0, to: 0, bytes: 8, tag: 1 });
        const untilItEnds = () => {
          while (!link.allCame()) link.progress();
          link.progress();
        };
        expect(untilItEnds).toThrow(blamed);
        device.mockRestore();
      }
      // Rank 1 does nothing for the write meanwhile.
      await circle.barrier();
      await link.close();
    });
  });

  it('since its own NIC failed, though that is up again, blames its rank', async () => {
    const write = vi.spyOn(TransferEngine.prototype, 'write').mockImplementation(() => {
      throw new PeerLostError(['rank 1'], 'write of 8 bytes', 'Network is down', true);
    });
    await LocalCircle.run(2, async (circle) => {
      const link = await connect(circle);
      const given = { peer: 1 - circle.rank, from: 0, to: 0, bytes: 8, tag: 1 };
      expect(() => link.network.write(given)).toThrow(
        'lo, by which this rank reaches the others, is gone or has lost',
      );
      await link.close();
    });
    write.mockRestore();
  });
});
