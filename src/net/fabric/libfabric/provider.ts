import { ArgumentError, requireArray, UnavailableError } from '../../../base/errors.js';
import { type Address, addressOf, readString } from '../../../base/native/index.js';
import {
  check,
  domainAttr,
  epAttr,
  errno,
  FI,
  fabricAttr,
  info,
  libfabric,
  readU64,
  remedy,
  struct,
  txAttr,
} from './bindings.js';
import { distancesFrom, systemName } from './nics.js';
import { shmRemedy, shmShortage } from './shm-space.js';

/** The providers that Heddle knows how to drive, best first: `auto` takes the first that has a device. */
export const providers = ['efa', 'verbs;ofi_rxm', 'shm', 'tcp;ofi_rxm', 'udp;ofi_rxd'] as const;
export type ProviderName = (typeof providers)[number];

/** One device through one provider, with what the provider promises about it. */
export interface FabricDevice {
  readonly provider: ProviderName;
  /** libfabric's domain: a NIC, a network interface, or `shm`. */
  readonly device: string;
  /** How a peer's memory is addressed: by its virtual addresses or by offsets into the region. */
  readonly addressing: 'virtual' | 'offset';
  /** Whether it claims to take GPU memory itself; registering some is the proof. */
  readonly gpuMemory: boolean;
  /** Whether a completion means that the bytes are in the peer's memory (otherwise: that they were sent). */
  readonly delivery: boolean;
  readonly maxWriteBytes: number;
}

/** A provider with its devices, or with the reason why it has none. */
export interface ProviderReport {
  readonly provider: ProviderName;
  readonly devices: readonly FabricDevice[];
  readonly missing: string | null;
}

/**
 * The version of the libfabric that Heddle has opened.
 * @throws UnavailableError if there is none.
 */
export function libfabricVersion(): string {
  return libfabric().version;
}

/** Every provider that Heddle drives: its devices on this machine or what it lacks. */
export function listProviders(): ProviderReport[] {
  return providers.map((provider) => {
    const [found, forGpus] = [query(provider, false), query(provider, true)];
    const names = new Set(forGpus.map(({ device }) => device.device));
    const devices = found.map(({ device }) => ({ ...device, gpuMemory: names.has(device.device) }));
    release([...found, ...forGpus]);
    return { provider, devices, missing: devices.length > 0 ? null : whatIsMissing(provider) };
  });
}

/** The providers that have all named devices, or, without names, any device; best first. */
export function usableProviders(devices: readonly string[] = []): ProviderName[] {
  requireArray('devices', devices, 'an array of names');
  return providers.filter((provider) => {
    const found = query(provider, false);
    const usable = pick(found, devices, 1) !== null;
    release(found);
    return usable;
  });
}

/** A device that was chosen, with libfabric's own description of it; the caller frees `info`. */
export interface Chosen {
  readonly device: FabricDevice;
  readonly info: Address;
}

/** The criteria of a choice of devices. */
interface Wanted {
  readonly provider: string;
  readonly devices: readonly string[];
  readonly near: string | undefined;
  readonly rails: number;
  readonly gpuMemory: boolean;
}

/**
 * The devices to use: `rails` of them from one provider. Without a device name, the provider's interfaces are
 * taken from the nearest to the GPU on, equally near ones as libfabric lists them (best first), loopback last; when there are
 * fewer than `rails`, they are shared.
 */
export function choose({ provider, devices, near, rails, gpuMemory }: Wanted): Chosen[] {
  if (provider !== 'auto' && !(providers as readonly string[]).includes(provider)) {
    throw new ArgumentError('provider', provider, `'auto' or one of ${providers.join(', ')}`);
  }
  const candidates = provider === 'auto' ? providers : [provider as ProviderName];
  for (const candidate of candidates) {
    const withGpu = gpuMemory ? query(candidate, true) : [];
    // A provider that cannot take GPU memory still serves: such memory is then staged through the host.
    const found = withGpu.length > 0 ? withGpu : query(candidate, false);
    try {
      const chosen = pick(found, devices, rails, near);
      if (chosen) return chosen.map(({ device, info }) => ({ device, info: libfabric().fi_dupinfo(info) }));
      if (provider !== 'auto' && found.length > 0) {
        const names = found.map(({ device }) => device.device).join(', ');
        throw new ArgumentError('devices', devices.join(', '), `among this provider's devices: ${names}`);
      }
    } finally {
      release(found);
    }
  }
  const reasons = candidates.map((name) => `${name}: ${whatIsMissing(name)}`).join('; ');
  // With libfabric there, and room in /dev/shm all that is missing, that is what helps.
  const help = provider === 'shm' && shmShortage(1) !== null ? shmRemedy(1) : remedy;
  throw new UnavailableError(`No libfabric provider can be used (${reasons})`, help);
}

function pick(
  found: readonly Chosen[],
  devices: readonly string[],
  rails: number,
  near?: string,
): Chosen[] | null {
  if (found.length === 0) return null;
  const byName = new Map(found.map((chosen) => [chosen.device.device, chosen]));
  const names =
    devices.length > 0 ? devices : nearestFirst([...byName.keys()], near).filter((name) => name !== 'lo');
  const usable = names.length > 0 ? names : [...byName.keys()];
  if (!usable.every((name) => byName.has(name))) return null;
  return Array.from({ length: rails }, (_, rail) => byName.get(usable[rail % usable.length]!)!);
}

/** The names, nearest to the PCI address `near` first; in their order if nothing is known. */
export function nearestFirst(names: readonly string[], near: string | undefined, root?: string): string[] {
  if (near === undefined) return [...names];
  const distances = distancesFrom(near, root);
  const distance = (name: string): number =>
    distances.get(name) ?? distances.get(systemName(name)) ?? Number.MAX_SAFE_INTEGER;
  return names.toSorted((a, b) => distance(a) - distance(b));
}

/** Memory registration duties that the engine fulfils when a provider asks for them. */
const duties = FI.MR_LOCAL | FI.MR_VIRT_ADDR | FI.MR_ALLOCATED | FI.MR_PROV_KEY;

/**
 * The offers of libfabric for one provider. An offer that completes on delivery comes before one that completes on sending.
 * GPU memory is asked for only when it will be used: the mere demand costs shm its fast path for small writes.
 */
function query(provider: ProviderName, gpuMemory: boolean): Chosen[] {
  const seen = new Map<string, Chosen>();
  for (const delivery of [true, false]) {
    for (const address of getinfo(provider, { gpuMemory, delivery, demanding: true })) {
      const { immediateBytes, ...device } = describe(provider, address, delivery, gpuMemory);
      // It lists an interface once for each address family and kind of endpoint. The first entry is the best.
      if (immediateBytes < 4 || seen.has(device.device)) libfabric().fi_freeinfo(address);
      else seen.set(device.device, { device, info: address });
    }
  }
  return [...seen.values()];
}

function release(found: readonly Chosen[]): void {
  for (const { info } of found) libfabric().fi_freeinfo(info);
}

type Demands = Readonly<Record<'gpuMemory' | 'delivery' | 'demanding', boolean>>;

/** fi_getinfo: a list of descriptions, each owned by the caller. */
function getinfo(provider: ProviderName, { gpuMemory, delivery, demanding }: Demands): Address[] {
  const { negotiated, fi_dupinfo, fi_freeinfo, fi_getinfo } = libfabric();
  const hints = fi_dupinfo(0);
  const name = Buffer.from(`${provider}\0`);
  const root = struct(hints, info.bytes);
  const fabric = struct(readU64(root, info.fabric), fabricAttr.bytes);
  fabric.setBigUint64(fabricAttr.provName, BigInt(addressOf(name)), true);
  struct(readU64(root, info.ep), epAttr.bytes).setUint32(epAttr.type, FI.EP_RDM, true);
  if (demanding) {
    root.setBigUint64(info.caps, FI.MSG | FI.RMA | (gpuMemory ? FI.HMEM : 0n), true);
    const domain = struct(readU64(root, info.domain), domainAttr.bytes);
    domain.setUint32(domainAttr.threading, FI.THREAD_DOMAIN, true);
    domain.setUint32(domainAttr.controlProgress, FI.PROGRESS_MANUAL, true);
    domain.setUint32(domainAttr.dataProgress, FI.PROGRESS_MANUAL, true);
    domain.setUint32(domainAttr.resourceMgmt, FI.RM_ENABLED, true);
    domain.setUint32(domainAttr.mrMode, duties | (gpuMemory ? FI.MR_HMEM : 0), true);
    const tx = struct(readU64(root, info.tx), txAttr.bytes);
    if (delivery) tx.setBigUint64(txAttr.opFlags, BigInt(FI.DELIVERY_COMPLETE), true);
  }
  const out = new BigUint64Array(1);
  const status = fi_getinfo(negotiated, 0, 0, 0, hints, out);
  // The name lives in JavaScript memory: libfabric must not free it with the hints.
  fabric.setBigUint64(fabricAttr.provName, 0n, true);
  fi_freeinfo(hints);
  if (status === -errno.NODATA) return [];
  check('fi_getinfo', status);
  const list: Address[] = [];
  for (let at = Number(out[0]); at !== 0; at = readU64(struct(at, info.bytes), info.next))
    list.push(fi_dupinfo(at));
  fi_freeinfo(Number(out[0]));
  return list;
}

function describe(
  provider: ProviderName,
  address: Address,
  delivery: boolean,
  gpuMemory: boolean,
): FabricDevice & { readonly immediateBytes: number } {
  const root = struct(address, info.bytes);
  const domain = struct(readU64(root, info.domain), domainAttr.bytes);
  const ep = struct(readU64(root, info.ep), epAttr.bytes);
  const mode = domain.getUint32(domainAttr.mrMode, true);
  return {
    provider,
    device: readString(readU64(domain, domainAttr.name)) ?? provider,
    addressing: mode & FI.MR_VIRT_ADDR ? 'virtual' : 'offset',
    gpuMemory,
    delivery,
    immediateBytes: readU64(domain, domainAttr.cqDataSize),
    maxWriteBytes: Math.min(readU64(ep, epAttr.maxMsgSize), Number.MAX_SAFE_INTEGER),
  };
}

/** Why a provider gave nothing: it is absent, or it lacks something by name. */
function whatIsMissing(provider: ProviderName): string {
  const list = getinfo(provider, { gpuMemory: false, delivery: false, demanding: false });
  if (list.length === 0) {
    const noRoom = provider === 'shm' ? shmShortage(1) : null;
    return noRoom ?? 'not in this libfabric, or no device of its kind';
  }
  const root = struct(list[0]!, info.bytes);
  const caps = root.getBigUint64(info.caps, true);
  const domain = struct(readU64(root, info.domain), domainAttr.bytes);
  const other = domain.getUint32(domainAttr.mrMode, true) & ~duties & ~3;
  const lacks = [
    caps & FI.MSG ? null : 'messages (FI_MSG)',
    caps & FI.RMA ? null : 'remote writes (FI_RMA)',
    readU64(domain, domainAttr.cqDataSize) >= 4 ? null : '32-bit immediates (cq_data_size)',
    root.getBigUint64(info.mode, true) === 0n ? null : 'a mode without duties for the caller (fi_info.mode)',
    other === 0 ? null : `memory registration that the engine knows (mr_mode 0x${other.toString(16)})`,
  ].filter((line) => line !== null);
  for (const address of list) libfabric().fi_freeinfo(address);
  return lacks.length > 0
    ? `it lacks ${lacks.join(', ')}`
    : 'its offer does not meet the demands of the engine';
}
