import {
  ArgumentError,
  RankLostError,
  requireArray,
  requireFunction,
  requireInteger,
  requireObject,
} from '../../base/errors.js';
import {
  type Peer,
  type PeerGroup,
  PeerLostError,
  Region,
  type RemoteRegion,
  TransferEngine,
} from '../fabric/index.js';
import type { Circle } from './circle.js';

/** The part of a circle that connecting needs: a proxy's thread reaches its rank's by mail. */
export type FabricCircle = Pick<Circle, 'rank' | 'ranks' | 'allGather' | 'barrier' | 'onRankLost'>;

/** A region of every rank, ready to be written to. */
export interface FabricRegions {
  /** By rank; undefined for this rank itself and those that it does not reach. */
  readonly remotes: readonly (RemoteRegion | undefined)[];
  /** The group of the ranks that are reached, for `scatter` and `barrier`; entry i belongs to the i-th of them. Null where there is none. */
  readonly others: PeerGroup | null;
}

/**
 * Makes the engines of a circle's ranks known to each other; every rank calls it. Addresses travel through the
 * circle's rendezvous, so that only who was let into the world becomes a peer. A rank that the circle loses is lost
 * to the engine at once, instead of after the engine's timeout. `reach`: the ranks that this one writes to, and is
 * written to by; all others unless it is said. Connections cost memory. `ranks`: by what numbers errors name them, where the world
 * counts them otherwise (entry i is the number in the circle of its rank i).
 */
export async function connectFabric(
  circle: FabricCircle,
  engine: TransferEngine,
  reach?: readonly number[],
  ranks?: readonly number[],
): Promise<FabricConnection> {
  requireObject('circle', circle, 'a circle: world.circle');
  for (const method of ['allGather', 'barrier', 'onRankLost'] as const)
    requireFunction(`circle.${method}`, circle[method], 'the method of a circle');
  if (!(engine instanceof TransferEngine)) throw new ArgumentError('engine', engine, 'a TransferEngine');
  if (reach !== undefined) requireReach(reach, circle.ranks);
  const addresses = await circle.allGather(engine.address, 'the fabric: addresses');
  const peers = addresses.map((address, rank) =>
    rank === circle.rank || reach?.includes(rank) === false
      ? undefined
      : engine.addPeer(address, `rank ${ranks?.indexOf(rank) ?? rank}`),
  );
  // Nobody writes before everybody knows everybody: some providers drop what comes from strangers.
  await circle.barrier('the fabric: peers');
  return new FabricConnection(circle, engine, peers);
}

export function requireReach(reach: readonly number[], ranks: number): void {
  requireArray('reach', reach, 'an array of ranks');
  for (const rank of reach) requireInteger('reach', rank, 0, ranks - 1);
}

/** The ranks of a circle as peers of an engine. */
export class FabricConnection {
  readonly #circle: FabricCircle;
  readonly #engine: TransferEngine;
  readonly #stopListening: () => void;

  /** @internal */
  constructor(
    circle: FabricCircle,
    engine: TransferEngine,
    /** By rank; undefined for this rank itself and those that it does not reach. */
    readonly peers: readonly (Peer | undefined)[],
  ) {
    this.#circle = circle;
    this.#engine = engine;
    this.#stopListening = circle.onRankLost((loss) => {
      // The loss of a rendezvous that is no rank says nothing about the peers.
      if (!(loss instanceof RankLostError)) return;
      for (const rank of loss.ranks) {
        const peer = peers[rank];
        if (peer && !peer.removed) engine.losePeer(peer);
      }
    });
  }

  /** Exchanges one region of each rank; every rank calls it, with regions in the same order. */
  async share(region: Region): Promise<FabricRegions> {
    if (!(region instanceof Region)) throw new ArgumentError('region', region, 'a region of this engine');
    const descriptors = await this.#circle.allGather(region.descriptor, 'the fabric: regions');
    const remotes = descriptors.map((descriptor, rank) => {
      const peer = this.peers[rank];
      return peer && this.#engine.remote(peer, descriptor);
    });
    const members = remotes.filter((remote) => remote !== undefined);
    return { remotes, others: members.length > 0 ? this.#engine.group(members) : null };
  }

  /** The ranks behind an engine's error: a PeerLostError becomes a RankLostError, anything else stays what it is. */
  toRankLost(error: unknown): unknown {
    if (!(error instanceof PeerLostError)) return error;
    const ranks = this.peers.flatMap((peer, rank) => (peer && error.peers.includes(peer.name) ? [rank] : []));
    return ranks.length > 0 ? new RankLostError(ranks, error.operation, undefined, { cause: error }) : error;
  }

  /** Forgets the peers; the engine and the circle go on. */
  close(): void {
    this.#stopListening();
    for (const peer of this.peers) if (peer && !peer.removed) this.#engine.removePeer(peer);
  }
}
