import { readFileSync, statSync } from 'node:fs';
import { ArgumentError } from '../../errors/index.js';
import type { U64 } from './endpoint.js';

/** Where a peer may write, on one rail. */
export interface RemoteKey {
  readonly base: number;
  readonly key: U64;
}

/** What an engine tells its peers: opaque bytes to everybody but this file. */
export interface EngineAddress {
  /** Tells one engine from another, also across restarts of its process. */
  readonly id: string;
  readonly provider: string;
  /** The machine it runs on: `shm` reaches no further. */
  readonly machine: string;
  readonly shard: 'peer' | 'bytes';
  readonly rails: readonly { readonly address: Uint8Array; readonly mailbox: RemoteKey }[];
}

/** What an engine tells of one of its regions. */
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
  const value = decode('address', addressMark, bytes, "another engine's `address`") as EngineAddress;
  return {
    ...value,
    rails: value.rails.map((rail) => ({ ...rail, address: Buffer.from(String(rail.address), 'base64') })),
  };
}

export function encodeRegion(region: RegionDescriptor): Uint8Array {
  return encode(regionMark, region);
}

export function decodeRegion(bytes: Uint8Array): RegionDescriptor {
  return decode('descriptor', regionMark, bytes, "a region's `descriptor`") as RegionDescriptor;
}

/**
 * Identifies this machine until it restarts, and its shared memory: network namespaces of one machine have both in common,
 * containers of one machine often not the latter.
 */
export function machineId(): string {
  try {
    const { dev } = statSync('/dev/shm');
    return `${readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()} ${dev}`;
  } catch {
    return 'unknown';
  }
}

// Addresses are exchanged once, when a world forms: they are marked JSON, which any tool can show.
function encode(mark: string, value: object): Uint8Array {
  return Buffer.from(`${mark} ${JSON.stringify(value)}`);
}

function decode(argument: string, mark: string, bytes: Uint8Array, mustBe: string): unknown {
  const text = bytes instanceof Uint8Array ? Buffer.from(bytes).toString() : '';
  if (!text.startsWith(`${mark} `)) throw new ArgumentError(argument, bytes, mustBe);
  try {
    return JSON.parse(text.slice(mark.length + 1));
  } catch {
    throw new ArgumentError(argument, bytes, `${mustBe}, whole`);
  }
}
