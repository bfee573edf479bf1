/**
 * The cost of the same round with NCCL, in the three ways that people build it:
 *
 * - **sparse**: grouped sends and receives of exactly the rows that dispatch moves. Its counts are known to the host
 *   for free, its rows lie packed already, and nobody adds up what comes back.
 * - **dense**: an all-to-all padded to all tokens for every rank; no counts needed.
 * - **gather**: every rank gathers all tokens; partial rows come back, added up, by reduce-scatter.
 *
 * So sparse and dense are lower bounds: a real layer also counts, packs, unpacks and adds.
 */
import type { CudaDevice, CudaStream } from '../../gpu/cuda/index.js';
import { ranksOf } from '../../moe/layer/index.js';
import type { Routes } from '../../verify/testing/index.js';
import { type Rig, setsFor } from './inputs.js';
import { type NcclCommunicator, ncclAmong, ncclGroup, ncclUniqueId } from './nccl-library.js';
import type { Steps, Timing } from './timing.js';
import { rowBytesOf, type Workload } from './workload.js';

type NcclPhase = 'dispatch' | 'combine';

/** The communicators of all ranks of a process are made at once. */
export async function joinNccl({ world, crew }: Timing): Promise<NcclCommunicator> {
  const { rank, ranks } = world;
  const [id] = await world.allGather(rank === 0 ? ncclUniqueId() : new Uint8Array(0), 'NCCL’s id');
  const mine: { readonly device: CudaDevice; readonly rank: number; communicator?: NcclCommunicator } = {
    ...{ device: world.device as CudaDevice, rank },
  };
  await crew.together(world, mine, (here) => {
    const made = ncclAmong(here, id, ranks);
    for (const [i, one] of here.entries()) one.communicator = made[i]!;
  });
  return mine.communicator!;
}

/** One rank's buffers and counts for the tokens of `routeSets[set][rank]`. */
export function ncclRound(
  { timing, noise }: Rig,
  communicator: NcclCommunicator,
  of: Workload,
  routeSets: readonly (readonly Routes[])[],
  rounds: number,
) {
  const { device } = timing.world;
  const stream = timing.stream as CudaStream;
  const { tokens } = routeSets[0]![0]!;
  const row = rowBytesOf(of);
  const setBytes = of.ranks * tokens * Math.max(row.dispatch, row.combine);
  const sets = setsFor(rounds, setBytes, timing.options.l2Bytes);
  const from = device.allocate(sets * setBytes, 'what NCCL sends');
  const to = device.allocate(setBytes, 'what NCCL receives');
  noise.fill(stream, from.address, from.bytes);
  const allRows = routeSets.map((routes) => rowsBetween(of, routes));

  /** Sends and receives with every rank, this one too: rows that stay also have to get from place to place. */
  const exchange = (phase: NcclPhase, start: number, rows: readonly (readonly number[])[] | null): void => {
    const mine = communicator.rank;
    let [sendAt, receiveAt] = [start, to.address];
    for (let peer = 0; peer < of.ranks; peer++) {
      // The rows that dispatch took to a rank come back from it in combine.
      const [there, here] =
        rows === null
          ? [tokens, tokens]
          : phase === 'dispatch'
            ? [rows[mine]![peer]!, rows[peer]![mine]!]
            : [rows[peer]![mine]!, rows[mine]![peer]!];
      if (there > 0) communicator.send(sendAt, there * row[phase], peer, stream);
      if (here > 0) communicator.recv(receiveAt, here * row[phase], peer, stream);
      sendAt += there * row[phase];
      receiveAt += here * row[phase];
    }
  };
  return {
    grouping: ncclGroup,
    /** The steps of a round: its dispatch, its combine, or both. */
    steps: (way: 'sparse' | 'dense' | 'gather', phases: readonly NcclPhase[]): Steps =>
      phases.map((phase) => (round) => {
        const start = from.address + (round % sets) * setBytes;
        if (way === 'sparse') exchange(phase, start, allRows[round % allRows.length]!);
        else if (way === 'dense') exchange(phase, start, null);
        else if (phase === 'dispatch')
          communicator.allGather(start, to.address, tokens * row.dispatch, stream);
        else communicator.reduceScatter(start, to.address, tokens * of.hidden, of.combineDtype, stream);
      }),
    free() {
      from.free();
      to.free();
    },
  };
}

/** [source][destination]: tokens of the source with an expert at the destination. */
export function rowsBetween(
  of: Pick<Workload, 'ranks' | 'experts' | 'topK'>,
  routes: readonly Routes[],
): number[][] {
  return routes.map(({ tokens, topkIds }) => {
    const rows = new Array<number>(of.ranks).fill(0);
    for (let token = 0; token < tokens; token++) {
      for (const owner of ranksOf(of, topkIds.subarray(token * of.topK, (token + 1) * of.topK)))
        rows[owner]!++;
    }
    return rows;
  });
}
