import { randomBytes } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { ArgumentError, valueOr } from '../../../base/errors.js';
import { maxAddressBytes, type U64 } from './bindings.js';

/** Where a peer may write, on one rail. */
export interface RemoteKey {
  readonly base: number;
  readonly key: U64;
}

/** The card that an engine gives its peers: opaque bytes to everybody but this file. */
export interface EngineAddress {
  /** Tells one engine from another, also across restarts of its process. */
  readonly id: string;
  readonly provider: string;
  /** The machine it runs on: `shm` reaches no further. */
  readonly machine: string;
  readonly shard: 'peer' | 'bytes';
  readonly rails: readonly { readonly address: Uint8Array; readonly mailbox: RemoteKey }[];
}

interface RegionDescriptor {
  readonly engine: string;
  readonly bytes: number;
  readonly rails: readonly RemoteKey[];
}

const addressMark = 'heddle-fabric-1';
const regionMark = 'heddle-region-1';

export function encodeAddress(address: EngineAddress): Uint8Array {
  return encode(addressMark, {
    ...address,
    rails: address.rails.map((rail) => ({ ...rail, address: Buffer.from(rail.address).toString('base64') })),
  });
}

export function decodeAddress(bytes: Uint8Array): EngineAddress {
  const mustBe = "another engine's `address`";
  const { id, provider, machine, shard, rails } = decode('address', addressMark, bytes, mustBe);
  const told = Array.isArray(rails) ? rails.map(railFrom) : [null];
  if (!isText(id) || !isText(provider) || !isText(machine) || !told.every((rail) => rail !== null))
    throw new ArgumentError('address', bytes, mustBe);
  if (shard !== 'peer' && shard !== 'bytes') throw new ArgumentError('address', bytes, mustBe);
  return { id, provider, machine, shard, rails: told };
}

export function encodeRegion(region: RegionDescriptor): Uint8Array {
  return encode(regionMark, region);
}

export function decodeRegion(bytes: Uint8Array): RegionDescriptor {
  const mustBe = "a region's `descriptor`";
  const { engine, bytes: size, rails } = decode('descriptor', regionMark, bytes, mustBe);
  const told = Array.isArray(rails) ? rails.map(keyFrom) : [null];
  if (!isText(engine) || !isSize(size) || !told.every((rail) => rail !== null))
    throw new ArgumentError('descriptor', bytes, mustBe);
  return { engine, bytes: size, rails: told };
}

const isText = (value: unknown): value is string => typeof value === 'string';
const isSize = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
const isWord = (value: unknown): value is number => isSize(value) && value < 2 ** 32;

function railFrom(value: unknown): EngineAddress['rails'][number] | null {
  const { address, mailbox } = fieldsOf(value);
  const key = keyFrom(mailbox);
  if (!isText(address) || address === '' || key === null) return null;
  const bytes = Buffer.from(address, 'base64');
  return bytes.length <= maxAddressBytes ? { address: bytes, mailbox: key } : null;
}

function keyFrom(value: unknown): RemoteKey | null {
  const { base, key } = fieldsOf(value);
  const { low, high } = fieldsOf(key);
  return isSize(base) && isWord(low) && isWord(high) ? { base, key: { low, high } } : null;
}

const fieldsOf = (value: unknown): Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};

/**
 * Identifies this machine until it restarts, its shared memory, and the ids of its processes, by which shm reaches the memory of
 * a peer: network namespaces of one machine have all in common, containers of one machine often neither of the others.
 */
export const machineId = (): string =>
  valueOr('unknown', () => {
    const { dev } = statSync('/dev/shm');
    const bootId = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    return `${bootId} ${dev} ${pidNamespace()}`;
  });

/** Names the namespace of this process's ids among those that there are; where nothing tells, one that nobody has. */
export const pidNamespace = (): string =>
  valueOr(null, () => String(statSync('/proc/self/ns/pid').ino)) ?? randomBytes(8).toString('hex');

// Addresses are exchanged once, when a world forms: they are marked JSON, which any tool can show.
function encode(mark: string, value: object): Uint8Array {
  return Buffer.from(`${mark} ${JSON.stringify(value)}`);
}

function decode(
  argument: string,
  mark: string,
  bytes: Uint8Array,
  mustBe: string,
): Readonly<Record<string, unknown>> {
  const text = bytes instanceof Uint8Array ? Buffer.from(bytes).toString() : '';
  if (!text.startsWith(`${mark} `)) throw new ArgumentError(argument, bytes, mustBe);
  try {
    return fieldsOf(JSON.parse(text.slice(mark.length + 1)));
  } catch {
    throw new ArgumentError(argument, bytes, `${mustBe}, whole`);
  }
}
