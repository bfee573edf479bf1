import { ArgumentError, requireInteger, requireText } from '../../../base/errors.js';
import { commandWords, transferHeader } from '../core/shared.js';
import { decodeAddress, decodeRegion } from '../libfabric/address.js';
import { errno, strerror } from '../libfabric/bindings.js';
import { FabricError, PeerLostError } from '../libfabric/errors.js';
import type { Driver } from './driver.js';
import { Peer, PeerGroup, RemoteRegion } from './handles.js';

/** The partners of an engine: its peers, their regions, and groups of those. */
export class Peers {
  readonly #driver: Driver;
  /** Two words for each peer, which the core writes: whether it is lost, and how many of its requests have ended. */
  readonly #states: Int32Array;
  readonly #timeoutMs: number;
  readonly #all: Peer[] = [];
  #nextRemote = 0;
  #nextGroup = 0;

  constructor(driver: Driver, states: Int32Array, timeoutMs: number) {
    this.#driver = driver;
    this.#states = states;
    this.#timeoutMs = timeoutMs;
  }

  add(address: Uint8Array, name?: string): Peer {
    if (name !== undefined) requireText('name', name);
    const theirs = decodeAddress(address);
    this.#requireReached(theirs);
    const id = this.#all.length;
    requireInteger('the number of peers', id + 1, 1, this.#states.length / 2);
    this.#driver.call('addPeer', id, theirs);
    const mailbox = this.#nextRemote++;
    this.#driver.call(
      'addRemote',
      mailbox,
      id,
      theirs.rails.map((rail) => rail.mailbox),
    );
    const alone = { index: this.#nextGroup++ };
    this.#driver.call('addGroup', alone.index, [mailbox]);
    const peer = new Peer(id, name ?? `${id} (${theirs.id})`, theirs.id, alone, this.#states);
    this.#all.push(peer);
    return peer;
  }

  remove(peer: Peer): void {
    this.require('peer', peer);
    peer.removed = true;
    this.#driver.call('removePeer', peer.id);
  }

  lose(peer: Peer): void {
    this.require('peer', peer);
    this.#driver.call('losePeer', peer.id, errno.HOSTDOWN);
  }

  remote(peer: Peer, descriptor: Uint8Array): RemoteRegion {
    this.require('peer', peer);
    const { engine, bytes, rails } = decodeRegion(descriptor);
    if (engine !== peer.engineId) {
      throw new ArgumentError(
        'descriptor',
        descriptor,
        `of a region of ${peer.name}, not of engine ${engine}`,
      );
    }
    const index = this.#nextRemote++;
    this.#driver.call('addRemote', index, peer.id, rails);
    return new RemoteRegion(index, peer, bytes);
  }

  group(members: readonly RemoteRegion[]): PeerGroup {
    if (!Array.isArray(members)) throw new ArgumentError('members', members, 'an array of remote regions');
    requireInteger('members.length', members.length, 1, Math.floor((commandWords - transferHeader) / 6));
    const seen = new Set<Peer>();
    for (const member of members) {
      this.requireTarget(member);
      const { peer } = member;
      if (seen.has(peer)) {
        throw new ArgumentError('members', members, `regions of different peers, but has ${peer.name} twice`);
      }
      seen.add(peer);
    }
    const index = this.#nextGroup++;
    this.#driver.call(
      'addGroup',
      index,
      members.map((member) => member.index),
    );
    return new PeerGroup(index, [...members]);
  }

  require(argument: string, peer: Peer): void {
    if (!(peer instanceof Peer) || this.#all[peer.id] !== peer) {
      throw new ArgumentError(argument, peer, 'of a peer of this engine, from engine.addPeer()');
    }
    if (peer.removed) {
      throw new ArgumentError(argument, peer, `of a peer that is still there, but ${peer.name} was removed`);
    }
  }

  requireTarget(region: RemoteRegion): void {
    if (!(region instanceof RemoteRegion)) {
      throw new ArgumentError('target', region, "a peer's region, from engine.remote()");
    }
    this.require('target', region.peer);
  }

  requireGroup(group: PeerGroup): void {
    if (!(group instanceof PeerGroup) || this.#all[group.members[0]!.peer.id] !== group.members[0]!.peer) {
      throw new ArgumentError('group', group, 'a group of this engine, from engine.group()');
    }
  }

  requireReachable(peer: Peer): void {
    if (peer.removed) this.require('peer', peer);
    if (peer.lost)
      throw new PeerLostError([peer.name], 'the start of an operation', 'it was found lost before');
  }

  /** The error of an operation, from the core's error number and the peer that it is about. */
  failure(code: number, peer: number, operation: string, group: PeerGroup | null): Error {
    const about = this.#all[peer]!;
    if (!about.lost) return new FabricError(operation, code, strerror(code), about.name);
    const lost = group ? group.peers.filter((member) => member.lost) : [about];
    const reasons: { readonly [code: number]: string } = {
      [errno.TIMEDOUT]: `no answer within ${this.#timeoutMs} ms`,
      [errno.CANCELED]: 'it was removed',
      [errno.HOSTDOWN]: 'it was reported lost',
    };
    const reason = reasons[code] ?? strerror(code);
    return new PeerLostError(
      lost.map(({ name }) => name),
      operation,
      reason,
    );
  }

  /** Refuses an engine that this one's provider cannot reach, or that cuts what is written otherwise. */
  #requireReached(theirs: ReturnType<typeof decodeAddress>): void {
    const { address: ours } = this.#driver.info;
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
}
