/** The machines that there are cells of, and what `heddle plan calibrate` writes about others. */
import { ArgumentError } from '../../base/errors.js';
import { type Cell, observe, shippedCells } from './cells.js';
import { type Fit, fitCells } from './fit.js';
import type { Nominal } from './model.js';

export interface Machine {
  readonly name: string;
  readonly aliases: readonly string[];
  readonly title: string;
  /** GPUs that share NVLink (or what stands for it). */
  readonly perNode: number;
  /** GB/s of a GPU in each direction, as its data sheets say. */
  readonly nominal: Nominal;
  /** What cells of this machine call it: hardware and fabric. */
  readonly cells: readonly { readonly hw: string; readonly fabric: string }[];
}

export const machines: readonly Machine[] = [
  {
    name: 'h200-nvlink',
    aliases: [],
    title: 'H200, NVLink 4, one node',
    perNode: 8,
    nominal: { nvlink: 450, nic: 0 },
    cells: [{ hw: 'H200', fabric: 'nvlink' }],
  },
  {
    name: 'h100-nvlink',
    aliases: [],
    title: 'H100, NVLink 4, one node',
    perNode: 8,
    nominal: { nvlink: 450, nic: 0 },
    cells: [{ hw: 'H100', fabric: 'nvlink' }],
  },
  {
    name: 'b200-nvlink',
    aliases: [],
    title: 'B200, NVLink 5, one node',
    perNode: 8,
    nominal: { nvlink: 900, nic: 0 },
    cells: [
      { hw: 'B200', fabric: 'nvlink' },
      { hw: 'SM100', fabric: 'nvlink' },
    ],
  },
  {
    name: 'gb200-nvl72',
    aliases: ['gb200'],
    title: 'GB200 NVL72, one NVLink domain',
    perNode: 72,
    nominal: { nvlink: 900, nic: 0 },
    cells: [
      { hw: 'GB200', fabric: 'nvl72' },
      { hw: 'GB200', fabric: 'nvlink' },
    ],
  },
  {
    name: 'h200-cx7',
    aliases: ['h100-cx7'],
    title: 'H100 or H200, NVLink 4, a ConnectX-7 (400 Gb/s) for each GPU',
    perNode: 8,
    nominal: { nvlink: 450, nic: 50 },
    cells: [
      { hw: 'H100/H200+CX7', fabric: 'cx7' },
      { hw: 'H100+CX7', fabric: 'cx7' },
    ],
  },
  {
    name: 'h200-efa',
    aliases: ['p5en'],
    title: 'H200 with EFA (p5en): NVLink 4, 400 Gb/s of EFA for each GPU',
    perNode: 8,
    nominal: { nvlink: 450, nic: 50 },
    cells: [
      { hw: 'H100/H200+EFA', fabric: 'efa' },
      { hw: 'H200 p5en', fabric: 'efa' },
    ],
  },
  {
    name: 'b200-efa',
    aliases: ['p6'],
    title: 'B200 with EFA (p6): NVLink 5, 400 Gb/s of EFA for each GPU',
    perNode: 8,
    nominal: { nvlink: 900, nic: 50 },
    cells: [{ hw: 'B200 p6', fabric: 'efa' }],
  },
  {
    name: 'b200-cx7',
    aliases: [],
    title: 'B200, NVLink 5, a ConnectX-7 (400 Gb/s) for each GPU',
    perNode: 8,
    nominal: { nvlink: 900, nic: 50 },
    cells: [{ hw: 'SM100+CX7', fabric: 'cx7' }],
  },
  {
    name: 'h800-cx7',
    aliases: [],
    title: 'H800 (half of NVLink 4), a ConnectX-7 (400 Gb/s) for each GPU',
    perNode: 8,
    nominal: { nvlink: 200, nic: 50 },
    cells: [
      { hw: 'H800+CX7', fabric: 'cx7' },
      { hw: 'H800/H100+CX7', fabric: 'cx7' },
    ],
  },
  {
    name: 'mi300x-cx7',
    aliases: [],
    title: 'MI300X, Infinity Fabric, a ConnectX-7 (400 Gb/s) for each GPU',
    perNode: 8,
    nominal: { nvlink: 448, nic: 50 },
    cells: [{ hw: 'MI300X+CX7', fabric: 'cx7' }],
  },
];

function machineNamed(name: string): Machine {
  const found = machines.find((one) => one.name === name || one.aliases.includes(name));
  if (found !== undefined) return found;
  const names = machines.flatMap((one) => [one.name, ...one.aliases]);
  throw new ArgumentError('machine', name, `one of ${names.join(', ')}, or a file of heddle plan calibrate`);
}

/** The machine that a cell was measured on, where it is known. */
export const machineOf = (cell: Pick<Cell, 'hw' | 'fabric'>): Machine | undefined =>
  machines.find(({ cells }) => cells.some(({ hw, fabric }) => hw === cell.hw && fabric === cell.fabric));

/** What is believed of a machine that nobody has described. */
const unknownMachine: Nominal = { nvlink: 450, nic: 50 };

/** One source's cells of one system on one machine, fitted phase by phase. */
export interface Calibration {
  readonly set: string;
  readonly lib: string;
  readonly mode: string;
  readonly hw: string;
  readonly fabric: string;
  readonly src: readonly string[];
  readonly fits: Readonly<Partial<Record<Cell['phase'], Fit>>>;
}

type Origin = Pick<Cell, 'set' | 'lib' | 'mode' | 'hw' | 'fabric'>;
const originOf = ({ set, lib, mode, hw, fabric }: Origin): string =>
  JSON.stringify([set, lib, mode, hw, fabric]);

/** Cells of the same source, system and machine, in the order of the first of each. */
export function byOrigin(cells: readonly Cell[]): Cell[][] {
  const groups = new Map<string, Cell[]>();
  for (const cell of cells) groups.set(originOf(cell), [...(groups.get(originOf(cell)) ?? []), cell]);
  return [...groups.values()];
}

/** Fits cells of one origin. */
export function calibrate(cells: readonly Cell[], nominal: Nominal): Calibration {
  const { set, lib, mode, hw, fabric } = cells[0]!;
  const phases = [...new Set(cells.map(({ phase }) => phase))];
  const fits = Object.fromEntries(
    phases.map((phase) => [
      phase,
      fitCells(cells.filter((cell) => cell.phase === phase).map(observe), nominal),
    ]),
  );
  return { set, lib, mode, hw, fabric, src: [...new Set(cells.map(({ src }) => src))], fits };
}

export const nominalOf = (cell: Cell): Nominal => machineOf(cell)?.nominal ?? unknownMachine;

/** What is known about a machine: itself, and its calibrations. */
export interface KnownMachine {
  readonly machine: Machine;
  readonly calibrations: readonly Calibration[];
  /** Its network, where that was measured by itself. */
  readonly network?: Calibration;
}

/** A machine by name, with what the shipped cells say about it. */
export function knownMachine(name: string): KnownMachine {
  const machine = machineNamed(name);
  const mine = shippedCells().filter((cell) => machineOf(cell) === machine);
  return { machine, calibrations: byOrigin(mine).map((cells) => calibrate(cells, machine.nominal)) };
}

/** How Heddle's own kernels do on the machine that they were measured on. */
export function heddleMeasured(): Calibration {
  return calibrate(
    shippedCells().filter(({ lib, phase }) => lib === 'heddle' && phase !== 'both'),
    machineNamed('h200-nvlink').nominal,
  );
}

/**
 * Whose network Heddle's kernels are believed to share: another library that sends bulk messages through a host proxy,
 * on the same kind of NIC.
 */
export function bulkNetwork({ machine, network }: KnownMachine): Calibration {
  if (network !== undefined) return network;
  const fabric = machine.cells[0]?.fabric === 'efa' ? 'efa' : 'cx7';
  return calibrate(
    shippedCells().filter((cell) => cell.lib === 'pplx-garden' && cell.fabric === fabric),
    machineNamed('h200-cx7').nominal,
  );
}
