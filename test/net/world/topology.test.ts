import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SimMachine } from '../../../src/gpu/sim/index.js';
import { nodesByReach, topologyOf } from '../../../src/gpu/topology.js';
import { ExpertParallel } from '../../../src/moe/index.js';
import { type Topology, World } from '../../../src/net/world/index.js';
import { LocalCircle } from '../../../src/net/world/local-circle.js';
import { findTopology } from '../../../src/net/world/nodes.js';
import { layerOf, shapeOfRounds } from '../../../src/verify/testing/index.js';

/** Topologies of ranks whose GPUs belong to the machines `of`; `told` says what each knows by itself. */
function found(
  of: readonly number[],
  told: (rank: number) => Partial<Parameters<typeof findTopology>[2]> = () => ({}),
): Promise<Topology[]> {
  const machines = [...new Set(of)].map(() => SimMachine.create({ ranks: of.length }));
  return LocalCircle.run(of.length, (circle) =>
    findTopology(circle, machines[of[circle.rank]!]!.device(circle.rank), {
      ...{ places: of.length, nodes: undefined },
      ...told(circle.rank),
    }),
  );
}

describe('nodes', () => {
  it('are found by mapping, whatever the order of their ranks', async () => {
    const topologies = await found([0, 1, 0, 1, 1]);
    const members = [
      [0, 2],
      [1, 3, 4],
    ];
    expect(topologies.map(({ apart, ...rest }) => rest)).toEqual([
      { nodes: 2, node: 0, localRank: 0, localRanks: 2, members },
      { nodes: 2, node: 1, localRank: 0, localRanks: 3, members },
      { nodes: 2, node: 0, localRank: 1, localRanks: 2, members },
      { nodes: 2, node: 1, localRank: 1, localRanks: 3, members },
      { nodes: 2, node: 1, localRank: 2, localRanks: 3, members },
    ]);
    for (const { apart } of topologies) expect(apart).toMatch(/of the same simulated machine/);
  });

  it('are one where all can map each other, with nothing to explain', async () => {
    const two = { nodes: 1, node: 0, localRanks: 2, members: [[0, 1]], apart: null };
    expect((await found([0, 0]))[1]).toEqual({ ...two, localRank: 1 });
    expect((await found([0]))[0]!.nodes).toBe(1);
  });

  it('are as many as every rank says, of the empty places, too', async () => {
    const nodesOf = (topologies: readonly Topology[]) => topologies.map(({ members }) => members);
    const four = [0, 1].map((node) => [2 * node, 2 * node + 1]);
    expect(nodesOf(await found([0, 0, 0, 0], () => ({ nodes: 2 })))).toEqual([four, four, four, four]);
    expect(nodesOf(await found([0, 0], () => ({ places: 4, nodes: 2 })))).toEqual([four, four]);
    expect(nodesOf(await found([0, 0], () => ({ places: 4 })))).toEqual([0, 1].map(() => [[0, 1, 2, 3]]));
    await expect(found([0, 0], (rank) => ({ places: 2 + 2 * rank }))).rejects.toThrow(
      /HEDDLE_PLACES, HEDDLE_NODES is .*; it must be the same on every rank; rank \d has/,
    );
  });

  it('include a rank without windows as a node of its own, which says why', async () => {
    const machine = SimMachine.create({ ranks: 2 });
    const [first] = await LocalCircle.run(2, (circle) => {
      const device = machine.device(circle.rank);
      if (circle.rank === 1)
        device.allocateWindow = () => {
          throw new Error('no windows today');
        };
      return findTopology(circle, device, { places: 2, nodes: undefined });
    });
    expect(first).toMatchObject({ nodes: 2, localRanks: 1, apart: 'no windows today' });
  });

  it('are refused where reach divides the ranks into none', () => {
    const chain = [
      [true, true, false],
      [true, true, true],
      [false, true, true],
    ];
    expect(() => nodesByReach(chain)).toThrow(
      /ranks 0 and 2 can map memory of rank 1, but not each other's.*HEDDLE_NODES/,
    );
  });

  it('hold for any division: each rank is in one, and finds itself there', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(3), { minLength: 1, maxLength: 12 }), (of) => {
        const reach = of.map((a) => of.map((b) => a === b));
        const nodeOf = nodesByReach(reach);
        for (const rank of of.keys()) {
          const { node, localRank, localRanks, members, nodes } = topologyOf(nodeOf, rank);
          expect(members[node]![localRank]).toBe(rank);
          expect(members[node]).toHaveLength(localRanks);
          expect(members[node]!.every((peer) => of[peer] === of[rank])).toBe(true);
          expect(nodes).toBe(new Set(of).size);
          expect(members.flat().sort((a, b) => a - b)).toEqual([...of.keys()]);
        }
      }),
      { seed: 1 },
    );
  });
});

describe('a world of two nodes in one process', () => {
  it('has windows that span a node, whose ranks are counted from 0', async () => {
    const read = await World.local({ ranks: 4, nodes: 2, device: 'sim' }, async (world) => {
      const { own, rank, ranks, bases } = await world.createWindow(64, 'window');
      expect(ranks).toEqual(world.rank < 2 ? [0, 1] : [2, 3]);
      expect(ranks[rank]).toBe(world.rank);
      expect(rank).toBe(world.topology.localRank);
      const stream = world.device.createStream();
      for (const base of bases) stream.fill(base + rank, 1, 10 + world.rank);
      await stream.synchronize();
      await world.barrier();
      return [...(await stream.copyOut(own.address, 3))];
    });
    expect(read).toEqual([10, 10, 12, 12].map((first) => [first, first + 1, 0]));
  });

  it('is refused by kernels that need one, and cannot have nodes of unequal size', async () => {
    const of = { ranks: 4, experts: 4, topK: 1, maxTokens: 1, hidden: 8, dtype: 'bf16' } as const;
    const shape = shapeOfRounds(of);
    const create = (world: World) => ExpertParallel.create(world, layerOf(shape, { family: 'one-sided' }));
    await expect(World.local({ ranks: 4, nodes: 2, device: 'sim' }, create)).rejects.toThrow(
      /need all ranks in one node, but this world has 2; this rank's is ranks 0, 1/,
    );
    await expect(World.local({ ranks: 4, nodes: 3, device: 'sim' }, create)).rejects.toThrow(
      /nodes is 3; it must be a divisor of 4/,
    );
  });
});
