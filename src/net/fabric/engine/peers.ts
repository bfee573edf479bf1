import { ArgumentError, requireInteger, requireText } from '../../../base/errors.js';
import { commandWords, transferHeader } from '../core/shared.js';
import { decodeAddress, decodeRegion, type EngineAddress } from '../libfabric/address.js';
import { errno, strerror } from '../libfabric/bindings.js';
import { FabricError, PeerLostError } from '../libfabric/errors.js';
import type { Driver } from './driver.js';
import { Peer, PeerGroup, RemoteRegion } from './handles.js';

export type Peers = ReturnType<typeof createPeers>;

/**
 * The partners of an engine, `ours`: its peers, their regions, and groups of those. `states`: two words for each peer, which the core
 * writes: whether it is lost, and how many of its requests have ended.
 */
export function createPeers(driver: Driver, ours: EngineAddress, states: Int32Array, timeoutMs: number) {
  const all: Peer[] = [];
  /** The next number of something that commands write to: a mailbox, a region or a group. */
  let nextPlace = 0;

  function add(address: Uint8Array, name?: string): Peer {
    if (name !== undefined) requireText('name', name);
    const theirs = decodeAddress(address);
    requireReached(theirs);
    const id = all.length;
    requireInteger('the number of peers', id + 1, 1, states.length / 2);
    const mailbox = { index: nextPlace++ };
    driver.call('addPeer', id, theirs, mailbox.index);
    const peer = new Peer(id, name ?? `${id} (${theirs.id})`, theirs.id, mailbox, states);
    all.push(peer);
    return peer;
  }

  function remove(peer: Peer): void {
    requirePeer('peer', peer);
    peer.removed = true;
    driver.call('removePeer', peer.id);
  }

  function lose(peer: Peer): void {
    requirePeer('peer', peer);
    driver.call('losePeer', peer.id, errno.HOSTDOWN);
  }

  function remote(peer: Peer, descriptor: Uint8Array): RemoteRegion {
    requirePeer('peer', peer);
    const { engine, bytes, rails } = decodeRegion(descriptor);
    if (engine !== peer.engineId) {
      throw new ArgumentError(
        'descriptor',
        descriptor,
        `of a region of ${peer.name}, not of engine ${engine}`,
      );
    }
    // The core takes a place on each of them, and a command as many.
    requireInteger('descriptor.rails.length', rails.length, ours.rails.length, ours.rails.length);
    const index = nextPlace++;
    driver.call('addRemote', index, peer.id, rails);
    return new RemoteRegion(index, peer, bytes);
  }

  function group(members: readonly RemoteRegion[]): PeerGroup {
    if (!Array.isArray(members)) throw new ArgumentError('members', members, 'an array of remote regions');
    requireInteger('members.length', members.length, 1, Math.floor((commandWords - transferHeader) / 6));
    const seen = new Set<Peer>();
    for (const member of members) {
      requireTarget(member);
      const { peer } = member;
      if (seen.has(peer)) {
        throw new ArgumentError('members', members, `regions of different peers, but has ${peer.name} twice`);
      }
      seen.add(peer);
    }
    const index = nextPlace++;
    driver.call(
      'addGroup',
      index,
      members.map((member) => member.index),
    );
    return new PeerGroup(index, [...members]);
  }

  function requirePeer(argument: string, peer: Peer): void {
    if (!(peer instanceof Peer) || all[peer.id] !== peer) {
      throw new ArgumentError(argument, peer, 'of a peer of this engine, from engine.addPeer()');
    }
    if (peer.removed) {
      throw new ArgumentError(argument, peer, `of a peer that is still there, but ${peer.name} was removed`);
    }
  }

  function requireTarget(region: RemoteRegion): void {
    if (!(region instanceof RemoteRegion)) {
      throw new ArgumentError('target', region, "a peer's region, from engine.remote()");
    }
    requirePeer('target', region.peer);
  }

  function requireGroup(group: PeerGroup): void {
    if (!(group instanceof PeerGroup) || all[group.members[0]!.peer.id] !== group.members[0]!.peer) {
      throw new ArgumentError('group', group, 'a group of this engine, from engine.group()');
    }
  }

  function requireReachable(peer: Peer): void {
    if (peer.removed) requirePeer('peer', peer);
    if (peer.lost)
      throw new PeerLostError([peer.name], 'the start of an operation', 'it was found lost before');
  }

  function failure(code: number, peer: number, operation: string, target: Peer | PeerGroup): Error {
    const about = all[peer]!;
    if (!about.lost) return new FabricError(operation, code, strerror(code), about.name);
    const lost = target instanceof PeerGroup ? target.peers.filter((member) => member.lost) : [about];
    const reasons: { readonly [code: number]: string } = {
      [errno.TIMEDOUT]: `no answer within ${timeoutMs} ms`,
      [errno.CANCELED]: 'it was removed',
      [errno.HOSTDOWN]: 'it was reported lost',
    };
    const reason = reasons[code] ?? strerror(code);
    return new PeerLostError(
      lost.map(({ name }) => name),
      operation,
      reason,
      code === errno.NETDOWN,
    );
  }

  /** Refuses an engine that this one's provider cannot reach, or that cuts what is written otherwise. */
  function requireReached(theirs: EngineAddress): void {
    if (theirs.provider !== ours.provider) {
      throw new ArgumentError('address.provider', theirs.provider, `${ours.provider}, as this engine's`);
    }
    if (theirs.provider === 'shm' && theirs.machine !== ours.machine) {
      throw new ArgumentError(
        'address.machine',
        theirs.machine,
        `${ours.machine}: shm reaches no other machine`,
      );
    }
    if (theirs.shard !== ours.shard) {
      throw new ArgumentError('address.shard', theirs.shard, `${ours.shard}, as this engine's`);
    }
    requireInteger('address.rails.length', theirs.rails.length, ours.rails.length, ours.rails.length);
  }

  return {
    add,
    remove,
    lose,
    remote,
    group,
    requirePeer,
    requireTarget,
    requireGroup,
    requireReachable,
    failure,
  };
}
