/**
 * A rank dies, and the others must say so: who it was, in which operation and epoch. The waits that give up are
 * synchronisation too, and only here do they.
 * All waits of a launch together take one time limit.
 */
import { RankLostError } from '../../../base/errors.js';
import type { SimMachine } from '../../../gpu/sim/index.js';
import type { Operation } from '../../../moe/families/index.js';
import {
  type Combining,
  ExpertParallel,
  type ExpertParallelOptions,
  emptyTensor,
} from '../../../moe/index.js';
import type { Shape } from '../../../moe/layer/index.js';
import { World } from '../../../net/world/index.js';
import { ExampleExperts, layerOf, makeSources, shapeOfRounds } from '../../testing/index.js';
import { type CheckConfiguration, WrongResult } from '../subject.js';
import { exceptKilled } from './by-rank.js';
import { type FamilyOptionsOf, type Rounds, roundsOf } from './rounds.js';

const lossLayer = { experts: 3, topK: 3, maxTokens: 4, hidden: 16, dtype: 'bf16' } as const;

/** The round, of several blocks of which each gives up one wait while more waits are ahead of it. */
export interface Loss extends Partial<Rounds>, OfVictim {}

interface OfVictim {
  /** The rank that dies. Default 0: of the words that a failure leaves, its number is 0. */
  readonly victim?: number;
  /** The host of the victim lives on and says nothing, so the others know only whom their kernels missed. */
  readonly silent?: boolean;
  /** The victim has sent what it had for a combine: only what it would still have handed its group is missing. */
  readonly afterSend?: boolean;
  /**
   * Ranks that gave up go on with the work that is enqueued behind. Races of their later accesses do not count. The other ranks send
   * nothing more.
   */
  readonly goesOn?: boolean;
}

export const ranksOfLoss = (replicas = 1): number => (replicas === 1 ? 3 : 2 * replicas);

/** A rank is gone when the others begin the operation, or its receive, in the first round. None where nobody carries that. */
export function lossOf(
  name: string,
  operation: Operation,
  carried: FamilyOptionsOf,
  { victim = 0, silent = false, afterSend = false, goesOn = false, ...differences }: Loss = {},
): CheckConfiguration[] {
  const of = roundsOf({ ...lossLayer, ranks: ranksOfLoss(differences.replicas), ...differences });
  const family = carried(of);
  if (family === null) return [];
  const { ranks, nodes, replicas, split } = of;
  const shape = shapeOfRounds(of);
  const how = { ...family, split, victim, silent, afterSend, goesOn };
  const run = async (machine: SimMachine): Promise<void> => {
    const errors: unknown[] = [];
    const local = ranks / nodes;
    /** Others may miss those that waited for it. */
    const waitsForIt = (rank: number) =>
      Math.floor(rank / local) === Math.floor(victim / local) || rank % local === victim % local;
    const world = World.local({ ranks, nodes, device: 'sim', sim: machine }, async (world) => {
      const error = await survive(world, machine, shape, how, operation);
      if (world.rank !== victim) errors[world.rank] = error;
    });
    await exceptKilled(world);
    const right = errors.filter((error, rank) => {
      if (!(error instanceof RankLostError)) return false;
      if ((!silent || waitsForIt(rank)) && String(error.ranks) !== String(victim)) return false;
      // Behind its send a proxy's write to it may be the first that fails, which is no operation's.
      if (afterSend && error.epoch === undefined) return true;
      return error.operation === operation && error.epoch === 1;
    });
    if (right.length !== ranks - 1) {
      throw new WrongResult(
        `survivors saw ${errors.map(String).join('; ')} instead of a loss of rank ${victim} in ${operation}`,
      );
    }
    const { timeLimits } = machine.statistics;
    if (timeLimits !== 1) throw new WrongResult(`the waits took ${timeLimits} time limits instead of one`);
  };
  const groups = replicas > 1 ? `, groups of ${replicas}` : '';
  const who = silent ? 'one that says nothing' : 'a rank';
  return [
    {
      name: `${name}${groups}, ${who} lost in ${operation}${afterSend ? ', after its send' : ''}`,
      ranks,
      run,
    },
  ];
}

const givenUp = 'the others have given up';

/** One rank's round up to the loss; resolves with what it was told. */
async function survive(
  world: World,
  machine: SimMachine,
  shape: Shape,
  { afterSend, goesOn, victim, silent, ...how }: Required<OfVictim> & Partial<ExpertParallelOptions>,
  operation: Operation,
): Promise<unknown> {
  const { ep, stream, experts, out, inputs } = await oneRound(world, shape, how, 2);
  let sent: Combining | null = null;
  if (operation === 'combine') {
    const received = ep.dispatch(inputs, stream);
    experts.run(stream);
    if (afterSend) sent = ep.combineSend(received, stream, experts.made);
    await ep.synchronize(stream);
    await world.barrier(afterSend ? 'sums are sent' : 'experts are done');
  }
  if (world.rank === victim) {
    machine.kill(victim);
    const killed = ep.synchronize(stream);
    if (!silent) await killed;
    await killed.catch(() => {});
    await world.barrier(givenUp);
    return 'killed';
  }
  try {
    if (operation === 'dispatch') ep.dispatch(inputs, stream);
    else if (sent !== null) ep.combineRecv(sent, out, stream);
    else ep.combine(out, stream, experts.made);
    if (!goesOn && !afterSend) {
      if (operation === 'combine') ep.dispatch(inputs, stream);
      ep.combine(out, stream, experts.made);
    }
    await ep.synchronize(stream);
  } catch (error) {
    if (silent) await world.barrier(givenUp);
    return error;
  }
  return 'no error';
}

/** All that one rank needs for a round in which something goes wrong; `blocks` of experts, a warp each. */
export async function oneRound(
  world: World,
  shape: Shape,
  how: Partial<ExpertParallelOptions>,
  blocks: number,
) {
  const { tokens, topkIds, topkWeights, payloads } = makeSources(shape, shape.maxTokens, 1)[world.rank]!;
  const ep = await ExpertParallel.create(world, layerOf(shape, how));
  const stream = world.device.createStream();
  const experts = await ExampleExperts.create(world, ep, stream, { blocks, threads: 32 });
  const out = emptyTensor(world.device, shape.output.dtype, [tokens, shape.output.hidden], 'out');
  return { ep, stream, experts, out, inputs: { topkIds, topkWeights: topkWeights!, payloads } };
}
