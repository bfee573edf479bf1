/** A process of a world whose GPUs are simulated: it is several ranks, which share a machine and make a node. */
import { randomUUID } from 'node:crypto';
import { type Topology, topologyOf } from '../../gpu/index.js';
import { SimMachine } from '../../gpu/sim/index.js';
import { messageOf } from './participant.js';
import { findPlace, type JoinOptions, ProcessCircle } from './process-circle.js';

/** What each rank of the process is given. */
interface SimulatedRank {
  readonly circle: ProcessCircle;
  readonly topology: Topology;
  readonly machine: SimMachine;
}

/** Joins with `ranksHere` ranks from the process's own on. */
export async function joinSimulated(options: JoinOptions, ranksHere: number): Promise<SimulatedRank[]> {
  const { rank: first } = findPlace(options);
  const machine = SimMachine.create({ ranks: ranksHere });
  const joining = Array.from({ length: ranksHere }, (_, i) =>
    ProcessCircle.join({ ...options, rank: first + i, localRank: i }),
  );
  const joined = await Promise.allSettled(joining);
  const circles = joined.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  try {
    for (const result of joined) if (result.status === 'rejected') throw result.reason;
    const process = Buffer.from(randomUUID());
    return await Promise.all(
      circles.map(async (circle) => {
        const processes = await circle.allGather(process, 'the nodes: processes');
        const nodeOf = processes.map((bytes) => Buffer.from(bytes).toString());
        const apart = 'their GPUs are simulated by other processes';
        return { circle, machine, topology: topologyOf(nodeOf, circle.rank, apart) };
      }),
    );
  } catch (error) {
    // Where a rank was lost, the others know it already; to abandon them as well would make this one lost to them, too.
    for (const circle of circles) if (!circle.signal.aborted) circle.abandon(messageOf(error));
    await Promise.all(circles.map((circle) => circle.dispose()));
    throw error;
  }
}
