/** The networks that proxies drive: real ones through a transfer engine, and that of a simulated machine. */

import { setTimeout as delay } from 'node:timers/promises';
import {
  ArgumentError,
  HeddleError,
  RankLostError,
  requireOneOf,
  UnavailableError,
} from '../../../base/errors.js';
import { GpuFlush } from '../../../gpu/cuda/index.js';
import type { Network, RemoteWrite, WireMemory, WireSide } from '../../../gpu/index.js';
import type { SimMachine } from '../../../gpu/sim/index.js';
import {
  type EngineOptions,
  expectPeers,
  FabricError,
  linkOf,
  machineId,
  type Peer,
  PeerLostError,
  type ProviderName,
  providers,
  type Region,
  type RemoteRegion,
  TransferEngine,
  usableProviders,
  type Write,
} from '../../fabric/index.js';
import type { Circle, CircleLoss } from '../circle.js';
import { connectFabric, type FabricCircle, type FabricConnection } from '../fabric.js';

/** How the proxies of a world run, and reach each other over libfabric; what is left out is found. */
export type FabricOptions = Pick<
  EngineOptions,
  'provider' | 'devices' | 'near' | 'rails' | 'timeoutMs' | 'queue'
> & {
  /** Where what the NICs of a layer's proxies reach lies. Default 'auto': in the GPU's memory if they do reach it there. */
  readonly wires?: WireSide | 'auto';
  /** Processors that proxies' threads stay on: rank r takes entry r modulo their number. */
  readonly processors?: readonly number[];
};

/** A network, and what else its proxy does about it. */
export interface Link {
  /** Peers are ranks of the circle, and places count from the wire's front, where the part that NICs reach begins on every rank. */
  readonly network: Network;
  /** For memory of a GPU whose kernels see what has come only behind a flush. */
  readonly flush: Pick<GpuFlush, 'flush'> | null;
  /** The network's, where that is one of libfabric's. */
  readonly provider: ProviderName | null;
  /** Makes progress; true when anything moved. @throws RankLostError where a peer is gone. */
  progress(): boolean;
  /** Whether every write has come to its peer. */
  allCame(): boolean;
  /** Ends what is under way. Memory may be freed then. */
  close(): Promise<void>;
}

/** Connects memory of this rank with that of others, all unless `reach` names them; every rank calls it. `ranks`: as in Numbering. */
export type Connect = (
  circle: FabricCircle,
  memory: Pick<WireMemory, 'address' | 'nics'>,
  reach?: readonly number[],
  ranks?: readonly number[],
) => Promise<Link>;

/** An engine over the network that the ranks have in common; every rank calls it. */
export async function openEngine(
  circle: Pick<Circle, 'allGather' | 'ranks'>,
  options: FabricOptions,
): Promise<TransferEngine> {
  const provider = await agreeOnProvider(circle, offerHere(withEnvironment(options), circle.ranks));
  return TransferEngine.open(engineOptions(options, provider));
}

function engineOptions(options: FabricOptions, provider: ProviderName): EngineOptions {
  const { processors: _, wires: __, ...wanted } = withEnvironment(options);
  return { ...wanted, provider };
}

type OpenEnd = Awaited<ReturnType<typeof openEnd>>;

/** Opens a rank's end of this provider's network, with its memory, before any peer is known. */
async function openEnd(options: FabricOptions, provider: ProviderName, nics: WireMemory['nics']) {
  const engine = await TransferEngine.open({
    ...engineOptions(options, provider),
    ...{ thread: 'caller', arrivals: 'listed', gpuMemory: nics.kind === 'gpu' },
  });
  try {
    return { engine, own: registerWire(engine, nics) };
  } catch (error) {
    await engine.close();
    throw error;
  }
}

/**
 * Opens the end ahead of time; null where that fails. It waits for the links of its NICs, without which libfabric lists some no more: a rank without one
 * that came back would be lost again. `over`: nobody waits for that any more.
 */
export async function openAhead(over: () => boolean, ...of: Parameters<typeof openEnd>) {
  const { devices = [] } = withEnvironment(of[0]);
  await untilLinked(devices, over);
  const end = await openEnd(...of).catch(() => null);
  if (end !== null) await untilLinked(namesOf(end.engine), over);
  return end;
}

const namesOf = ({ devices }: TransferEngine) => devices.map(({ device }) => device);

/** Waits while one of these devices has no link, and until those that had none have had one for a moment: only then there are routes. */
async function untilLinked(devices: readonly string[], over: () => boolean): Promise<void> {
  const down = () => devices.some((device) => linkOf(device) === 'down');
  if (!down()) return;
  for (let looks = 0; looks < 5 && !over(); looks = down() ? 0 : looks + 1) await delay(100);
}

/** `ahead`: an end that is open already, if it is of the provider on which the ranks agree. */
export const overFabric =
  (options: FabricOptions, ahead: OpenEnd | null = null): Connect =>
  async (circle, { nics }, reach, ranks) => {
    let end = ahead;
    try {
      const offer = offerHere(withEnvironment(options), circle.ranks);
      const provider = await agreeOnProvider(circle, offer);
      if (end?.engine.devices[0]?.provider !== provider) {
        await end?.engine.close();
        end = await openEnd(options, provider, nics);
      }
      const { engine, own } = end;
      const fabric = await connectFabric(circle, engine, reach, ranks);
      const { remotes } = await fabric.share(own);
      return fabricLink(circle, engine, fabric, own, remotes, flushOf(nics));
    } catch (error) {
      await end?.engine.close();
      throw error;
    }
  };

/**
 * The part of a wire that NICs reach.
 * @throws UnavailableError where it is memory of a GPU that the provider does not take as it is.
 */
export function registerWire(engine: TransferEngine, nics: WireMemory['nics']): Region {
  if (nics.kind === 'host') return engine.register(nics.raw);
  const region = engine.registerGpu(nics);
  if (region.path !== 'staging') return region;
  region.close();
  const { provider, device } = engine.devices[0]!;
  throw new UnavailableError(
    `${provider} over ${device} does not register memory of GPU ${nics.ordinal}`,
    'A NIC reaches it by dmabuf (libfabric 1.20, an open driver of the GPU), or by nvidia-peermem',
  );
}

/**
 * A write of a NIC may be on its way to the GPU's memory still when its completion is in the host's: those are two ways over
 * PCIe. A kernel that heard of it from the proxy would read what was there before, unless the device says that it orders that
 * itself. So the proxy flushes before anybody hears of the tag. The other direction needs nothing: what kernels stored before they
 * released an epoch at scope `sys` is there for whoever reads over PCIe.
 */
export const flushOf = (nics: WireMemory['nics']): GpuFlush | null =>
  nics.kind === 'gpu' && nics.flush ? new GpuFlush(nics.ordinal) : null;

/**
 * The network as a proxy's program sees it: it counts places from the beginning of a wire, and ranks as `ranks` has them, which are
 * those of the circle unless it is given.
 */
export function wireNetwork(
  { network, flush }: Pick<Link, 'network' | 'flush'>,
  front: number,
  ranks?: readonly number[],
): Network {
  /** Filled in for each write, so that posting allocates nothing. */
  const write: RemoteWrite = { peer: 0, from: 0, to: 0, bytes: 0, tag: 0 };
  return {
    write({ peer, from, to, bytes, tag }) {
      write.peer = ranks === undefined ? peer : ranks[peer]!;
      // A write of nothing is anywhere, also before the front.
      write.from = bytes === 0 ? 0 : from - front;
      write.to = bytes === 0 ? 0 : to - front;
      write.bytes = bytes;
      write.tag = tag;
      return network.write(write);
    },
    /** A tag is told only when kernels see what came with it. */
    arrived() {
      const tag = network.arrived();
      if (tag >= 0) flush?.flush();
      return tag;
    },
  };
}

/** With HEDDLE_PROVIDER, HEDDLE_NICS, HEDDLE_WIRES and HEDDLE_PROXY_CPUS, for programs that leave it to who starts them. */
export function withEnvironment(options: FabricOptions): FabricOptions {
  const { HEDDLE_PROVIDER: provider, HEDDLE_NICS: devices } = process.env;
  const { HEDDLE_WIRES: wires, HEDDLE_PROXY_CPUS: processors } = process.env;
  if (provider && !providers.some((name) => name === provider))
    throw new ArgumentError('HEDDLE_PROVIDER', provider, `one of ${providers.join(', ')}`);
  return {
    ...(provider && { provider: provider as ProviderName }),
    ...(devices && { devices: devices.split(',') }),
    ...(wires && { wires: requireOneOf('HEDDLE_WIRES', wires, ['auto', 'host', 'gpu']) }),
    ...(processors && { processors: processors.split(',').map(Number) }),
    ...options,
  };
}

/**
 * Writes that go to a peer at once over shm; the next go when these have ended. There the receiver copies: when it looks for
 * progress, all that it has been given by then, and until it is through nobody can give it more, but waits in the call. So it is
 * given little at a time, and learns soon what has come.
 */
const shmBurst = 4;

function fabricLink(
  circle: FabricCircle,
  engine: TransferEngine,
  fabric: FabricConnection,
  source: Region,
  targets: readonly (RemoteRegion | undefined)[],
  flush: GpuFlush | null,
): Link {
  const { provider } = engine.devices[0]!;
  /** The ranks that the circle has lost: a lost rank never comes back, and every round needs every rank. */
  let lost: CircleLoss | null = null;
  const stopListening = circle.onRankLost((loss) => {
    lost ??= loss;
  });
  const counter = engine.counter();
  /** By rank, the description of a write to it: filled in for each, so that posting allocates nothing. */
  const writes = targets.map(
    (target): Write | undefined =>
      target && { source, sourceOffset: 0, target, targetOffset: 0, bytes: 0, immediate: 0, counter },
  );
  /** By rank, how many writes to it were posted since the last look for progress; null where nothing depends on that. */
  const posted = provider === 'shm' ? new Uint32Array(targets.length) : null;

  function mayPost(rank: number, peer: Peer): boolean {
    const before = posted?.[rank];
    if (before !== undefined && (before >= shmBurst || peer.underway !== before)) return false;
    return engine.hasRoomFor(peer);
  }

  /**
   * A peer that a write does not reach is as good as lost, though it may still answer: it waits for that write. But a rank whose own NIC
   * has fallen reaches nobody, and blames itself.
   */
  function lossIn(error: unknown): unknown {
    const fallen =
      engine.fallenDevice ?? (error instanceof PeerLostError && error.own ? engine.devices[0] : undefined);
    if (fallen !== undefined)
      return new UnavailableError(
        `${fallen.device}, by which this rank reaches the others, is gone or has lost its link`,
        'Bring it back, then let the rank rejoin',
        { cause: error },
      );
    if (!(error instanceof FabricError)) return fabric.toRankLost(error);
    const rank = fabric.peers.findIndex((peer) => peer !== undefined && peer.name === error.peer);
    return rank < 0 ? error : new RankLostError([rank], error.operation, undefined, { cause: error });
  }

  const network: Network = {
    write({ peer, from, to, bytes, tag }) {
      const write = writes[peer];
      if (write === undefined)
        throw new ArgumentError('peer', peer, 'another rank, of those that the proxy reaches');
      try {
        if (!mayPost(peer, write.target.peer)) return false;
        if (posted !== null) posted[peer]!++;
        write.sourceOffset = from;
        write.targetOffset = to;
        write.bytes = bytes;
        write.immediate = tag;
        engine.write(write);
        return true;
      } catch (error) {
        throw lossIn(error);
      }
    },
    arrived: () => engine.nextImmediate(),
  };

  return {
    ...{ network, flush, provider },
    progress() {
      if (lost !== null) throw lost;
      posted?.fill(0);
      const moved = engine.poll();
      // The message that the write carried will not come.
      if (counter.error !== null) throw lossIn(counter.error);
      return moved;
    },
    allCame: () => writes.every((write) => write === undefined || write.target.peer.underway === 0),
    async close() {
      stopListening();
      // Soft-RoCE (Linux 6.1) that is to end a connection without a link connects nobody any more, until its device is made anew. And writes
      // fail a moment before the system says that it falls.
      if (provider === 'verbs;ofi_rxm' && lost !== null) {
        await delay(500);
        const end = performance.now() + engine.timeoutMs;
        await untilLinked(namesOf(engine), () => performance.now() > end);
      }
      fabric.close();
      await engine.close();
      flush?.close();
    },
  };
}

/** Within a machine that simulates all ranks of the world. `gpu`: the rank's, in the machine. */
export const overMachine =
  (machine: SimMachine, gpu: number): Connect =>
  async (circle, { address }) => {
    const gathered = await circle.allGather(
      new Uint8Array(Float64Array.of(address).buffer),
      'the network: memory',
    );
    const addresses = gathered.map((bytes) =>
      new DataView(bytes.buffer, bytes.byteOffset).getFloat64(0, true),
    );
    const { network, flush, close } = machine.openNetwork(gpu, addresses, circle.rank);
    await circle.barrier('the network: all are there');
    return {
      ...{ network, flush, provider: null },
      progress: () => false,
      allCame: () => true,
      close: async () => close(),
    };
  };

/** Which providers a rank can use. */
export interface ProviderOffer {
  readonly machine: string;
  /** One, where somebody said which; else all that it has. */
  readonly providers: readonly ProviderName[];
}

/** The providers that this rank offers to `ranks` ranks: `provider` if it is named, on the devices that are named. */
export function offerHere({ provider, devices }: FabricOptions, ranks: number): ProviderOffer {
  expectPeers(ranks);
  const named = provider !== undefined && provider !== 'auto';
  return { machine: machineId(), providers: named ? [provider] : usableProviders(devices) };
}

/** The best that every rank has, and that reaches them all: `shm` only where they share a machine. Every rank calls it. */
export async function agreeOnProvider(
  circle: Pick<Circle, 'allGather'>,
  offer: ProviderOffer,
): Promise<ProviderName> {
  const gathered = await circle.allGather(Buffer.from(JSON.stringify(offer)), 'the network: providers');
  const offers = gathered.map((bytes) => JSON.parse(Buffer.from(bytes).toString()) as ProviderOffer);
  const oneMachine = offers.every(({ machine }) => machine === offers[0]!.machine);
  const common = providers.find(
    (name) => (name !== 'shm' || oneMachine) && offers.every((of) => of.providers.includes(name)),
  );
  if (common !== undefined) return common;
  const had = offers.map((of, rank) => `rank ${rank}: ${of.providers.join(', ') || 'none'}`).join('; ');
  throw new HeddleError(
    'HEDDLE_PROVIDER',
    `the ranks have no provider in common that reaches all of them (${had})` +
      `${oneMachine ? '' : '; they are of several machines, to which shm does not reach'}. ` +
      '`heddle fabric list` shows what a machine has; HEDDLE_PROVIDER says which to take, on every rank',
  );
}
