/** Network interfaces, as Linux lists them, and which of them are near a GPU. */
import { readdirSync, readFileSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { requireText, valueOr } from '../../../base/errors.js';
import { verbsDevices } from './verbs.js';

export interface Nic {
  readonly name: string;
  /** `rdma`: an InfiniBand, RoCE or EFA device, which a fabric writes with; `net`: an ordinary interface. */
  readonly kind: 'rdma' | 'net';
  readonly up: boolean;
  /** 'InfiniBand 400 Gb/sec (4X NDR)', '25000 Mb/s' */
  readonly detail: string;
  /** Its folder in the tree of buses; null where that is not known. */
  readonly place: string | null;
}

/** @param root `/sys`; tests have their own. */
export function listNics(root = '/sys'): readonly Nic[] {
  requireText('root', root, 'a folder');
  return [...rdmaDevices(join(root, 'class/infiniband')), ...netDevices(join(root, 'class/net'))];
}

/**
 * By the name of an RDMA device, how many steps in the tree of buses lie between it and a device such as a GPU: few below one switch,
 * more where they hang on different sockets. Without those whose place is not known, and empty where the device's is not. Ordinary
 * interfaces are left out: they may be of different networks, and then all ranks must take the same.
 */
export function distancesFrom(pciBusId: string, root = '/sys'): ReadonlyMap<string, number> {
  requireText('pciBusId', pciBusId, 'a PCI address');
  requireText('root', root, 'a folder');
  const here = placeOf(join(root, 'bus/pci/devices', pciBusId));
  const distances = new Map<string, number>();
  for (const { name, kind, place } of listNics(root)) {
    if (kind === 'rdma' && here !== null && place !== null) distances.set(name, stepsBetween(here, place));
  }
  return distances;
}

/**
 * The system's word on the link of this device of libfabric, an RDMA device or an ordinary interface: null where it knows of none. Linux lists an
 * RDMA device that is being removed in its files for as long as a process has it open, but libibverbs does not: null, where there is none.
 */
export function linkOf(device: string, root = '/sys', verbs = verbsDevices()): 'up' | 'down' | null {
  requireText('device', device, 'the name of a device');
  requireText('root', root, 'a folder');
  const names = [device, systemName(device)];
  const rdma = rdmaDevices(join(root, 'class/infiniband')).find(({ name }) => names.includes(name));
  if (rdma !== undefined) return verbs?.includes(rdma.name) === false ? null : rdma.up ? 'up' : 'down';
  const state = text(join(root, 'class/net', device), 'operstate');
  return ['', 'unknown'].includes(state) ? null : state === 'up' ? 'up' : 'down';
}

/** The system's name of a device that libfabric names with a suffix behind a hyphen, as it does some. */
export const systemName = (device: string): string => device.replace(/-[^-]*$/, '');

function stepsBetween(from: string, to: string): number {
  const [a, b] = [from.split('/'), to.split('/')];
  let common = 0;
  while (common < a.length && a[common] === b[common]) common++;
  return a.length + b.length - 2 * common;
}

const placeOf = (link: string): string | null => valueOr(null, () => realpathSync(link));

function rdmaDevices(folder: string): readonly Nic[] {
  return names(folder).flatMap((device) =>
    names(join(folder, device, 'ports')).map((port): Nic => {
      const at = join(folder, device, 'ports', port);
      // The file reads, for example, '4: ACTIVE'.
      const up = /ACTIVE/.test(text(at, 'state'));
      const under = text(join(folder, device), 'parent');
      const detail = under
        ? `soft-RoCE on ${under}: RDMA in software, no measure of speed; a GPU's memory takes a NIC in hardware, by dma-buf`
        : [text(at, 'link_layer'), text(at, 'rate')].filter(Boolean).join(' ');
      const name = port === '1' ? device : `${device}:${port}`;
      return { name, kind: 'rdma', up, detail, place: placeOf(join(folder, device, 'device')) };
    }),
  );
}

/** Interfaces with hardware behind them; bridges, loopback and the like have no `device`. */
function netDevices(folder: string): readonly Nic[] {
  return names(folder)
    .filter((name) => names(join(folder, name, 'device')).length > 0)
    .map((name) => {
      const speed = Number(text(join(folder, name), 'speed'));
      const detail = speed > 0 ? `${speed} Mb/s` : '';
      const up = text(join(folder, name), 'operstate') === 'up';
      return { name, kind: 'net', up, detail, place: placeOf(join(folder, name, 'device')) };
    });
}

const names = (folder: string): readonly string[] => valueOr([], () => readdirSync(folder).sort());

/** A port that is down has no speed to read. */
const text = (folder: string, name: string): string =>
  valueOr('', () => readFileSync(join(folder, name), 'utf8').trim());
