/** One rank's part of `heddle bench`: dispatch and combine beside the limits of the machine and NCCL. */
import { familyNamed } from '../../moe/families/index.js';
import type { ExpertParallelOptions, Waits } from '../../moe/index.js';
import { type Placement, placedRoutes } from '../../moe/layer/index.js';
import { type Ceilings, createCeilings } from './ceilings.js';
import { type Rig, setsFor } from './inputs.js';
import { joinNccl, ncclRound } from './nccl.js';
import type { NcclCommunicator } from './nccl-library.js';
import { networkCeiling, roomFor } from './network/ceiling.js';
import { meanSent, type SentRounds, wiresOf } from './network/sent.js';
import { timeNvshmem } from './nvshmem.js';
import { createRound } from './round.js';
import { type MeasuredPhase, measuredPhases, rowsOf, type Subject } from './rows.js';
import type { Measuring, Report, Tell } from './run.js';
import { type Spread, spread } from './statistics.js';
import type { Timing } from './timing.js';
import {
  busiestLoad,
  placementByCounts,
  type RoundBytes,
  roundBytes,
  routeSets,
  rowBytesOf,
  shapeOf,
  type Workload,
  type WorkloadOptions,
  workload,
} from './workload.js';

export interface RoundsPlan extends Measuring {
  readonly workload: WorkloadOptions;
  /** Equal nodes of consecutive ranks, between which rows cross a network. */
  readonly nodes: number;
  readonly tokens: readonly number[];
  readonly world: 'local' | 'processes';
  /** Rounds are also measured with experts in so many places, by a placement for these routes. */
  readonly places?: number;
  /** Rounds are also run that count how long ranks wait for each other. */
  readonly late?: boolean;
  readonly how: Pick<ExpertParallelOptions, 'family' | 'transport' | 'split' | 'sms'>;
  readonly breakdown: boolean;
}

export interface Members {
  readonly method: Pick<RoundsPlan, 'world' | 'nodes' | 'iterations' | 'places'> & {
    readonly warmups: number;
  };
  readonly workload: Workload;
  /** One meeting of all ranks by flags, among many in one kernel. */
  readonly barrier: Spread | null;
}

export type BenchReport = Report<Point, Members>;

export type Point = Awaited<ReturnType<typeof measure>>;

/** Microseconds of work that a graph should hold, so that its own launch weighs little. */
const graphTime = 2000;
// Rough estimates of a round, over NVLink and where CPUs bring rows to a network: its least time, and bytes a microsecond. They
// only choose how many rounds a graph holds, at least `fewest`.
const overNvlink = { latency: 8, bytesPerMicrosecond: 350_000, fewest: 8 };
const overNetwork = { latency: 100, bytesPerMicrosecond: 10_000, fewest: 2 };

export function roundsFor(of: Pick<RoundBytes, 'dispatch' | 'combine'>, nodes: number): number {
  const { latency, bytesPerMicrosecond, fewest } = nodes === 1 ? overNvlink : overNetwork;
  const estimate = latency + (of.dispatch.busiest + of.combine.busiest) / bytesPerMicrosecond;
  return Math.max(fewest, Math.min(100, Math.ceil(graphTime / estimate)));
}

/** One rank's part, from the first kernel to the last. */
export async function measureRounds(rig: Rig, plan: RoundsPlan, tell: Tell<Point, Members>): Promise<void> {
  const { timing } = rig;
  const of = workload(plan.workload);
  const real = timing.world.device.kind === 'cuda';
  let ceilings: Ceilings | null = null;
  // Ceilings move bytes over windows, which ranks of several nodes do not have in common.
  if (real && plan.nodes === 1) {
    tell.doing('ceilings');
    const largest = Math.max(...plan.tokens);
    const { dispatch, combine } = roundBytes(of, largest, routeSets(of, largest, 2));
    const most = Math.max(dispatch.busiest, combine.busiest);
    // A margin: other sets of routes may have a busier rank.
    ceilings = await createCeilings(timing, 1.25 * most + 2 ** 16);
    await ceilings.transfers('stores', most, 8); // clocks rise under load
    tell.members({ barrier: await ceilings.barrier() });
  }
  let communicator: NcclCommunicator | null = null;
  if (plan.nccl && real) {
    tell.doing('joining NCCL');
    communicator = await joinNccl(timing);
  }
  const placement = plan.places === undefined ? null : placementByCounts(of, plan.places, plan.nodes);
  for (const tokens of plan.tokens) {
    const tools = { ...rig, ceilings, communicator, of, real, plan, placement };
    tell.point(await measure(tools, tokens, tell));
  }
  communicator?.destroy();
  await ceilings?.dispose();
}

interface Tools extends Rig {
  readonly ceilings: Ceilings | null;
  readonly communicator: NcclCommunicator | null;
  readonly of: Workload;
  readonly real: boolean;
  readonly plan: RoundsPlan;
  readonly placement: Placement | null;
}

async function measure(tools: Tools, tokens: number, tell: Tell<never>) {
  const { timing, noise, ceilings, communicator, of, real, plan, placement } = tools;
  const doing = (what: string): void => tell.doing(`${tokens} tokens: ${what}`);
  const first = roundBytes(of, tokens, routeSets(of, tokens, 1));
  const rounds = real ? roundsFor(first, plan.nodes) : 2;
  const readBytes = tokens * rowBytesOf(of).dispatch;
  const sets = setsFor(rounds, readBytes, real ? timing.options.l2Bytes : Number.MAX_SAFE_INTEGER);
  const routes = routeSets(of, tokens, sets);
  const bytes = roundBytes(of, tokens, routes, plan.nodes);
  const times = new Map<string, Spread>();
  const keep = (subject: Subject, phase: MeasuredPhase, time: Spread) =>
    times.set(`${subject}/${phase}`, time);

  // First, for a family may refuse it.
  if (plan.late) doing('who is late');
  const waits = plan.late ? await measureWaits(tools, routes) : null;

  doing('compiling');
  const round = await createRound({ timing, noise }, of, routes, plan.how);
  if (plan.nodes > 1) doing('counting messages');
  const sent = await round.sent();
  doing('dispatch + combine');
  keep('heddle', 'both', await round.time(rounds, round.both));
  await round.verify();
  await tell.trace(() => round.both[0]!(0));
  // Simulated steps of a kernel beside those of its peers' say nothing.
  if (plan.breakdown && real) doing('kernels');
  const kernels = plan.breakdown && real ? await round.breakdown() : null;
  const { family, tuning } = round.ep;
  await round.dispose();

  const alone = plan.how.split === true ? undefined : familyNamed(family).alone?.(tuning);
  if (alone !== undefined) {
    doing('dispatch alone');
    const half = await createRound({ timing, noise }, of, routes, { ...plan.how, family, tuning: alone });
    keep('heddle', 'dispatch', await half.time(rounds, half.dispatch()));
    await half.dispose();
  }

  if (placement !== null) doing('dispatch + combine, placed');
  const placed = placement === null ? null : await measurePlaced(tools, placement, routes, rounds);

  if (real && sent !== null) {
    doing('the network alone');
    for (const [phase, values] of await networkAlone(timing, sent, rounds))
      keep('network', phase, spread(values));
  }

  if (ceilings !== null) {
    doing('ceilings');
    const { dispatch, combine } = bytes;
    const stores = await ceilings.transfers('stores', dispatch.busiest, rounds);
    keep('stores', 'dispatch', stores);
    const alike = dispatch.busiest === combine.busiest;
    keep('stores', 'combine', alike ? stores : await ceilings.transfers('stores', combine.busiest, rounds));
    keep('loads', 'dispatch', await ceilings.transfers('loads', dispatch.busiest, rounds));
  }

  if (communicator !== null) {
    const baseline = ncclRound({ timing, noise }, communicator, of, routes, rounds);
    for (const way of ['sparse', 'dense', 'gather'] as const)
      for (const phase of way === 'sparse' ? measuredPhases : (['both'] as const)) {
        doing(`NCCL, ${way} ${phase}`);
        const steps = baseline.steps(way, phase === 'both' ? ['dispatch', 'combine'] : [phase]);
        keep(`nccl ${way}`, phase, await timing.time(rounds, steps, baseline.grouping));
      }
    baseline.free();
  }
  if (plan.how.transport === 'nvshmem') {
    doing('NVSHMEM’s all-to-all');
    const time = await timeNvshmem(timing, of, tokens, rounds);
    if (time !== null) keep('nvshmem dense', 'both', time);
  }
  const network = sent && (await meanSent(timing.world, sent.rounds));
  return {
    // Rounds in a graph, and different inputs among them. The network's are null where all ranks are one node.
    ...{ tokens, rounds, sets, bytes, network, kernels, tuning },
    // Where the messages lie that NICs read and write, and why; likewise.
    wires: sent && (await wiresOf(timing.world)),
    rows: [...rowsOf(times, bytes, real), ...(placed === null ? [] : [placed.row])],
    // The routes of the busiest rank over the mean, without and with a placement.
    ...(placed !== null && { busiest: placed.busiest }),
    // [rank][peer]: how long a rank waits for a peer in a round.
    ...(waits !== null && { waits }),
  };
}

/** How long ranks wait for each other in a round, in the report's unit. */
async function measureWaits({ timing, noise, of, real, plan }: Tools, routes: ReturnType<typeof routeSets>) {
  const round = await createRound({ timing, noise }, of, routes, { ...plan.how, waits: true });
  const { dispatch, combine } = await round.waits();
  await round.dispose();
  const scale = (rows: Waits['dispatch']) => rows.map((row) => row.map((time) => time * (real ? 1 : 1000)));
  return { dispatch: scale(dispatch), combine: scale(combine) };
}

/** A round with experts in their places, and what the busiest rank gets without and with them. */
async function measurePlaced(
  { timing, noise, of, real, plan }: Tools,
  placement: Placement,
  routes: ReturnType<typeof routeSets>,
  rounds: number,
) {
  const round = await createRound({ timing, noise }, of, routes, { ...plan.how, placement });
  const both = await round.time(rounds, round.both);
  await round.verify();
  await round.dispose();
  const { tokens } = routes[0]![0]!;
  const inPlaces = { ...of, experts: placement.places.length };
  const placed = routes.map((set) => placedRoutes(shapeOf(of, tokens), set, placement, plan.nodes));
  const bytes = roundBytes(inPlaces, tokens, placed, plan.nodes);
  const [row] = rowsOf(new Map([['heddle/both', both]]), bytes, real);
  return {
    row: { ...row!, subject: 'heddle placed' as const },
    busiest: { plain: busiestLoad(of, routes), placed: busiestLoad(inPlaces, placed) },
  };
}

async function networkAlone(
  { world, options }: Timing,
  sent: SentRounds,
  rounds: number,
): Promise<readonly (readonly [MeasuredPhase, number[]])[]> {
  const memory = world.device.allocateMapped(roomFor(sent.wireBytes), 'messages, for the network alone');
  const ceiling = await networkCeiling(world, memory, sent);
  const { iterations, warmups } = options;
  const times: [MeasuredPhase, number[]][] = [];
  for (const phase of measuredPhases)
    times.push([phase, await ceiling.time(phase, rounds, iterations, warmups)]);
  await ceiling.dispose();
  memory.free();
  return times;
}
