/**
 * A whole node stops, its GPUs and its proxies, at each step of a round: before the first, between any two, behind the last.
 * Others can tell which of its messages came, and that no more do. Each survivor in the round must be told of a rank of it, and
 * all their waits together take one time limit at most.
 */

import { RankLostError } from '../../../base/errors.js';
import type { WireSide } from '../../../gpu/index.js';
import type { SimMachine } from '../../../gpu/sim/index.js';
import type { ExpertParallelOptions } from '../../../moe/index.js';
import { World } from '../../../net/world/index.js';
import { shapeOfRounds } from '../../testing/index.js';
import { type CheckConfiguration, WrongResult } from '../subject.js';
import { oneRound } from './losses.js';

type How = Pick<ExpertParallelOptions, 'family' | 'tuning' | 'split'> & {
  readonly nodes: number;
  readonly ranks: number;
  readonly wires?: WireSide;
};

const layer = { topK: 3, maxTokens: 1, hidden: 8, dtype: 'bf16' } as const;

/** The event for which a rank that is through with the round waits. */
const roundEnded = 'the round has ended';

const victims = ({ nodes, ranks }: How): number[] =>
  Array.from({ length: ranks / nodes }, (_, local) => ranks / nodes + local);

/** One configuration for each of so many steps of a round (`SimMachine.killAfter`), of which there are no more. */
export function stopsOf(name: string, steps: number, how: How): CheckConfiguration[] {
  return Array.from({ length: steps + 1 }, (_, step) => ({
    name: `${name}, a node stops after ${step} of ${steps} steps`,
    ranks: how.ranks,
    run: (machine: SimMachine) => stop(machine, how, step),
  }));
}

async function stop(machine: SimMachine, how: How, step: number): Promise<void> {
  const stopped = victims(how);
  const told: unknown[] = [];
  const { ranks, nodes, wires = 'host' } = how;
  const world = World.local(
    { ranks, nodes, device: 'sim', sim: machine, fabric: { wires } },
    async (world) => {
      const round = wholeRound(world, how, () => machine.killAfter(stopped, step));
      if (stopped.includes(world.rank)) await round;
      else told.push(await round.then(String, (error: unknown) => error));
    },
  );
  // The world rejects on the node itself too.
  await world.catch(() => {});
  const losses = told.filter((error) => error instanceof RankLostError);
  const named = losses.filter((error) => error.ranks.every((rank) => stopped.includes(rank)));
  // A rank that is through with the round may hear first that another survivor, which was told of the node, has left.
  const through = losses.filter((error) => !named.includes(error) && error.operation === roundEnded);
  if (named.length === 0 || named.length + through.length !== ranks - stopped.length)
    throw new WrongResult(`survivors were told ${told.map(String).join('; ')}, not of ranks ${stopped}`);
  const { timeLimits } = machine.statistics;
  if (timeLimits > 1) throw new WrongResult(`the waits took ${timeLimits} time limits, not one`);
}

/** One rank's round, and the meeting behind it. */
async function wholeRound(
  world: World,
  { nodes: _, wires: __, ranks, ...how }: How,
  begin: () => void,
): Promise<string> {
  const shape = shapeOfRounds({ ...layer, ranks, experts: ranks });
  const { ep, stream, experts, out, inputs } = await oneRound(world, shape, how, 1);
  await stream.synchronize();
  await world.barrier('the round begins');
  if (world.rank === 0) begin();
  ep.dispatch(inputs, stream);
  // Experts of a round that has failed would read what may still land.
  await ep.synchronize(stream);
  experts.run(stream);
  ep.combine(out, stream);
  await ep.synchronize(stream);
  await world.barrier(roundEnded);
  await stream.synchronize(); // a rank that has stopped since does not come back from this
  await world.barrier('all are still there');
  return 'nothing';
}
