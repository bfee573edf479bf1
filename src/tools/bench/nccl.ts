/**
 * What the same round costs with NCCL, in the three ways that people build it:
 *
 * - **sparse**: grouped sends and receives of exactly the rows that dispatch moves. Its counts are known to the host
 *   for free, its rows lie packed already, and nobody adds up what comes back.
 * - **dense**: an all-to-all padded to all tokens for every rank; no counts needed.
 * - **gather**: every rank gathers all tokens; partial rows come back, added up, by reduce-scatter.
 *
 * So sparse and dense are lower bounds: a real layer also counts, packs, unpacks and adds.
 */
import {
  type CudaDevice,
  type CudaStream,
  NcclCommunicator,
  ncclGroup,
  ncclUniqueId,
} from '../../gpu/cuda/index.js';
import type { Memory } from '../../gpu/index.js';
import { ranksOf } from '../../moe/layer/index.js';
import type { World } from '../../net/world/index.js';
import type { Routes } from '../../verify/testing/index.js';
import { Crew } from './crew.js';
import { type Noise, setsFor } from './inputs.js';
import type { Grouping, Steps, Timing } from './timing.js';
import type { Workload } from './workload.js';

export type NcclWay = 'sparse' | 'dense' | 'gather';
export type NcclPhase = 'dispatch' | 'combine';

/** Shared by the ranks of a process; made before the world. */
export class NcclCrew {
  readonly joining = new Crew<{ readonly device: CudaDevice; communicator?: NcclCommunicator }>();
}

/** In one process: the communicators of all its ranks at once. Else each process joins by itself. */
export async function joinNccl(
  world: World,
  crew: NcclCrew,
  inOneProcess: boolean,
): Promise<NcclCommunicator> {
  const device = world.device as CudaDevice;
  if (inOneProcess) {
    const mine: { readonly device: CudaDevice; communicator?: NcclCommunicator } = { device };
    await crew.joining.together(world, mine, (all) => {
      const made = NcclCommunicator.local(all.map((rank) => rank.device));
      for (const [i, rank] of all.entries()) rank.communicator = made[i]!;
    });
    return mine.communicator!;
  }
  const id = world.rank === 0 ? ncclUniqueId() : new Uint8Array(0);
  const [first] = await world.allGather(id, 'NCCL’s id');
  return NcclCommunicator.join(device, first!, world.rank, world.ranks);
}

/** One rank's buffers and counts for a number of tokens. */
export class NcclRound {
  readonly grouping: Grouping = ncclGroup;
  readonly #communicator: NcclCommunicator;
  readonly #stream: CudaStream;
  readonly #of: Workload;
  readonly #tokens: number;
  /** [set][source][destination]: rows. */
  readonly #rows: readonly (readonly (readonly number[])[])[];
  readonly #from: Memory;
  readonly #to: Memory;
  readonly #sets: number;
  readonly #setBytes: number;

  private constructor(
    communicator: NcclCommunicator,
    stream: CudaStream,
    of: Workload,
    tokens: number,
    rows: readonly (readonly (readonly number[])[])[],
    from: Memory,
    to: Memory,
    sets: number,
    setBytes: number,
  ) {
    this.#communicator = communicator;
    this.#stream = stream;
    this.#of = of;
    this.#tokens = tokens;
    this.#rows = rows;
    this.#from = from;
    this.#to = to;
    this.#sets = sets;
    this.#setBytes = setBytes;
  }

  static create(
    timing: Timing,
    communicator: NcclCommunicator,
    noise: Noise,
    of: Workload,
    routeSets: readonly (readonly Routes[])[],
    rounds: number,
  ): NcclRound {
    const { world, stream, options } = timing;
    const tokens = routeSets[0]![0]!.tokens;
    const most = Math.max(dispatchRow(of), combineRow(of));
    const setBytes = of.ranks * tokens * most;
    const sets = setsFor(rounds, setBytes, options.l2Bytes);
    const from = world.device.allocate(sets * setBytes, 'what NCCL sends');
    const to = world.device.allocate(setBytes, 'what NCCL receives');
    noise.fill(stream, from.address, from.bytes);
    const rows = routeSets.map((routes) => rowsBetween(of, routes));
    return new NcclRound(communicator, stream as CudaStream, of, tokens, rows, from, to, sets, setBytes);
  }

  /** The steps of a round: its dispatch, its combine, or both. */
  steps(way: NcclWay, phases: readonly NcclPhase[]): Steps {
    return phases.map((phase) => (round: number) => {
      const from = this.#from.address + (round % this.#sets) * this.#setBytes;
      if (way === 'sparse') this.#exchange(phase, from, this.#rows[round % this.#rows.length]!);
      else if (way === 'dense') this.#exchange(phase, from, null);
      else if (phase === 'dispatch') {
        const bytes = this.#tokens * dispatchRow(this.#of);
        this.#communicator.allGather(from, this.#to.address, bytes, this.#stream);
      } else {
        const count = this.#tokens * this.#of.hidden;
        this.#communicator.reduceScatter(from, this.#to.address, count, this.#of.combineDtype, this.#stream);
      }
    });
  }

  /** Sends and receives with every rank, this one too: rows that stay also have to get from place to place. */
  #exchange(phase: NcclPhase, from: number, rows: readonly (readonly number[])[] | null): void {
    const communicator = this.#communicator;
    const stream = this.#stream;
    const of = this.#of;
    const row = phase === 'dispatch' ? dispatchRow(of) : combineRow(of);
    const mine = communicator.rank;
    let [sendAt, receiveAt] = [from, this.#to.address];
    for (let peer = 0; peer < of.ranks; peer++) {
      // What dispatch took to a rank comes back from it in combine.
      const [there, here] =
        rows === null
          ? [this.#tokens, this.#tokens]
          : phase === 'dispatch'
            ? [rows[mine]![peer]!, rows[peer]![mine]!]
            : [rows[peer]![mine]!, rows[mine]![peer]!];
      if (there > 0) communicator.send(sendAt, there * row, peer, stream);
      if (here > 0) communicator.recv(receiveAt, here * row, peer, stream);
      sendAt += there * row;
      receiveAt += here * row;
    }
  }

  free(): void {
    this.#from.free();
    this.#to.free();
  }
}

export const dispatchRow = (of: Workload): number =>
  of.payloads.reduce((sum, { rowBytes }) => sum + rowBytes, 0);
export const combineRow = (of: Workload): number => of.hidden * (of.combineDtype === 'f32' ? 4 : 2);

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
