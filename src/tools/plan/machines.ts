/** The machines that there are cells of, and what `heddle plan calibrate` writes about others. */
import { ArgumentError } from '../../base/errors.js';
import { type Cell, grouped, observe, once, shippedCells } from './cells.js';
import { type Fit, fitSource } from './fit.js';
import type { Nominal } from './model.js';

export interface Machine {
  readonly name: string;
  readonly aliases: readonly string[];
  readonly title: string;
  /** Its GPU, where it is one of `gpus`. */
  readonly gpu?: string;
  /** GPUs that share NVLink (or what stands for it). */
  readonly perNode: number;
  /** GB of a GPU. */
  readonly memory: number;
  /** GB/s of a GPU in each direction, as its data sheets say. */
  readonly nominal: Nominal;
  /** The names of this machine in its cells: hardware and fabric. */
  readonly cells: readonly { readonly hw: string; readonly fabric: string }[];
}

/** By GPU its memory in GB, and the GB/s at which it sends to the others of its node: half of the sum of both directions that data sheets give. */
const gpus = {
  /** NVIDIA H100 SXM data sheet. */
  h100: { memory: 80, nvlink: 450 },
  /** NVIDIA H200 SXM data sheet. */
  h200: { memory: 141, nvlink: 450 },
  /** As H100, with 400 GB/s of NVLink: DeepEP's README, and NVIDIA's notes for resellers. */
  h800: { memory: 80, nvlink: 200 },
  /** As H100 with 96 GB and its whole NVLink: NVIDIA's notes for resellers. */
  h20: { memory: 96, nvlink: 450 },
  /** NVIDIA DGX B200 data sheet: 1,440 GB of eight. */
  b200: { memory: 180, nvlink: 900 },
  /** NVIDIA GB200 NVL72 data sheet: 13.4 TB of 72. */
  gb200: { memory: 186, nvlink: 900 },
  /** NVIDIA HGX B300 and GB300 NVL72 data sheets. */
  b300: { memory: 288, nvlink: 900 },
  /** AMD Instinct MI300X data sheet: seven links of 128 GB/s. */
  mi300x: { memory: 192, nvlink: 448 },
  /** AMD Instinct MI355X data sheet: seven links of 153.6 GB/s. */
  mi355x: { memory: 288, nvlink: 537 },
} as const;

/** GB/s of a NIC for each GPU: none, 400 Gb/s (ConnectX-7; EFA of p5en and p6; Pollara 400), 800 Gb/s (ConnectX-8). */
const nics = { none: 0, gbit400: 50, gbit800: 100 } as const;

function machine(
  [name, ...aliases]: readonly [string, ...string[]],
  title: string,
  gpu: keyof typeof gpus,
  nic: keyof typeof nics,
  cells: Readonly<Record<string, readonly string[]>> = {},
  perNode = 8,
): Machine {
  const { memory, nvlink } = gpus[gpu];
  return {
    ...{ name, aliases, title, gpu, perNode, memory },
    nominal: { nvlink, nic: nics[nic] },
    cells: Object.entries(cells).flatMap(([fabric, all]) => all.map((hw) => ({ hw, fabric }))),
  };
}

// biome-ignore format: a line for each machine
export const machines: readonly Machine[] = [
  machine(['h200-nvlink'], 'H200, NVLink 4, one node', 'h200', 'none', { nvlink: ['H200'] }),
  machine(['h100-nvlink'], 'H100, NVLink 4, one node', 'h100', 'none', { nvlink: ['H100'] }),
  machine(['b200-nvlink'], 'B200, NVLink 5, one node', 'b200', 'none', { nvlink: ['B200', 'SM100'] }),
  machine(['gb200-nvl72', 'gb200'], 'GB200 NVL72, a ConnectX-7 (400 Gb/s) for each GPU', 'gb200', 'gbit400', { nvl72: ['GB200'], nvlink: ['GB200'] }, 72),
  machine(['gb300-nvl72', 'gb300'], 'GB300 NVL72, a ConnectX-8 (800 Gb/s) for each GPU', 'b300', 'gbit800', {}, 72),
  machine(['h200-cx7', 'h100-cx7'], 'H100 or H200, NVLink 4, a ConnectX-7 (400 Gb/s) for each GPU', 'h200', 'gbit400', { cx7: ['H100/H200+CX7', 'H100+CX7', 'H200+CX7'] }),
  machine(['h200-efa', 'p5en'], 'H200 with EFA (p5en): NVLink 4, 400 Gb/s of EFA for each GPU', 'h200', 'gbit400', { efa: ['H100/H200+EFA', 'H200 p5en', 'H200 p5en+EFA'] }),
  machine(['b200-efa', 'p6'], 'B200 with EFA (p6): NVLink 5, 400 Gb/s of EFA for each GPU', 'b200', 'gbit400', { efa: ['B200 p6'] }),
  machine(['b200-cx7'], 'B200, NVLink 5, a ConnectX-7 (400 Gb/s) for each GPU', 'b200', 'gbit400', { cx7: ['SM100+CX7'] }),
  machine(['b300-cx8', 'b300'], 'B300, NVLink 5, a ConnectX-8 (800 Gb/s) for each GPU', 'b300', 'gbit800'),
  machine(['h800-cx7', 'h800'], 'H800 (less than half of NVLink 4), a ConnectX-7 (400 Gb/s) for each GPU', 'h800', 'gbit400', { cx7: ['H800+CX7', 'H800/H100+CX7'] }),
  machine(['h20-cx7', 'h20'], 'H20, NVLink 4, a ConnectX-7 (400 Gb/s) for each GPU', 'h20', 'gbit400'),
  machine(['mi300x-cx7'], 'MI300X, Infinity Fabric, a ConnectX-7 (400 Gb/s) for each GPU', 'mi300x', 'gbit400', { cx7: ['MI300X+CX7'] }),
  machine(['mi355x'], 'MI355X, Infinity Fabric, 400 Gb/s (Pollara 400) for each GPU', 'mi355x', 'gbit400'),
];

function machineNamed(name: string): Machine {
  const found = machines.find(
    ({ name: own, aliases, cells }) =>
      [own, ...aliases].includes(name) || cells.some(({ hw }) => hw === name),
  );
  if (found !== undefined) return found;
  const names = machines.flatMap((one) => [one.name, ...one.aliases]);
  throw new ArgumentError(
    'machine',
    name,
    `one of ${names.join(', ')}, or a file: one of heddle plan calibrate, or what docs/planning.md describes`,
  );
}

const isOn =
  ({ cells }: Machine) =>
  (cell: Pick<Cell, 'hw' | 'fabric'>): boolean =>
    cells.some(({ hw, fabric }) => hw === cell.hw && fabric === cell.fabric);

/** The machine that a cell was measured on, where it is known. */
export const machineOf = (cell: Pick<Cell, 'hw' | 'fabric'>): Machine | undefined =>
  machines.find((one) => isOn(one)(cell));

/** The assumptions about a machine that nobody has described. */
const unknownMachine: Nominal = { nvlink: 450, nic: 50 };

/** What a source measured of a system on one machine, fitted phase by phase. */
export interface Calibration extends Origin {
  readonly src: readonly string[];
  /** Of the machine that its cells were measured on. */
  readonly nominal: Nominal;
  readonly fits: Readonly<Partial<Record<Cell['phase'], Fit>>>;
}

type Origin = Pick<Cell, 'set' | 'lib' | 'mode' | 'hw' | 'fabric'>;
/** A source's figures of a system, whatever the machine. */
export const sourceOf = ({ set, lib, mode }: Pick<Cell, 'set' | 'lib' | 'mode'>): string =>
  `${lib}/${mode} (${set})`;
export const originOf = (of: Origin): string => JSON.stringify([sourceOf(of), of.hw, of.fabric]);

/** Fits cells, the sources and systems apart. */
export function calibrate(
  cells: readonly Cell[],
  nominal: (cell: Cell) => Nominal = nominalOf,
): Calibration[] {
  return grouped(cells, sourceOf).flatMap((source) => {
    const parts = grouped(source, (cell) => `${originOf(cell)} ${cell.phase}`);
    const fits = fitSource(
      parts.map((part) => ({ observations: part.map(observe), nominal: nominal(part[0]!) })),
    );
    return grouped(source, originOf).map((mine): Calibration => {
      const { set, lib, mode, hw, fabric } = mine[0]!;
      return {
        ...{ set, lib, mode, hw, fabric, nominal: nominal(mine[0]!) },
        src: [...new Set(mine.map(({ src }) => src))],
        fits: Object.fromEntries(
          parts.flatMap(([one], i) => (mine.includes(one!) ? [[one!.phase, fits[i]!]] : [])),
        ),
      };
    });
  });
}

export const nominalOf = (cell: Cell): Nominal => machineOf(cell)?.nominal ?? unknownMachine;

/** The knowledge about a machine: itself, and its calibrations. */
export interface KnownMachine {
  readonly machine: Machine;
  readonly calibrations: readonly Calibration[];
  /** A calibration of the network, if the network was measured by itself. */
  readonly network?: Calibration;
  /** The calibrations are of this very machine, not of others like it. */
  readonly own?: boolean;
}

/** A machine by name, with what the shipped cells say about it. */
export function knownMachine(name: string): KnownMachine {
  const machine = machineNamed(name);
  const here = new Set(shippedCells().filter(isOn(machine)).map(sourceOf));
  // A source's figures on other machines say how much it scatters too.
  const all = calibrate(shippedCells().filter((cell) => here.has(sourceOf(cell))));
  return { machine, calibrations: all.filter(isOn(machine)) };
}

/** How Heddle's own kernels do on the machine that they were measured on. */
export const heddleMeasured = once(
  () => calibrate(shippedCells().filter(({ lib, phase }) => lib === 'heddle' && phase !== 'both'))[0]!,
);

/**
 * The network that Heddle's kernels are believed to share: another library that sends bulk messages through a host proxy,
 * on the same kind of NIC.
 */
export const bulkNetwork = ({ machine, network }: KnownMachine): Calibration => {
  const kind = machine.cells.some(({ fabric }) => fabric === 'efa') ? 'efa' : 'cx7';
  return network ?? bulkNetworks().find(({ fabric }) => fabric === kind)!;
};

const bulkNetworks = once(() => calibrate(shippedCells().filter(({ lib }) => lib === 'pplx-garden')));
