/** The machines that rounds can be planned for: what their data sheets say. */
import { ArgumentError } from '../../base/errors.js';

export interface DataSheet {
  readonly name: string;
  readonly aliases: readonly string[];
  readonly title: string;
  /** GPUs that share NVLink. */
  readonly perNode: number;
  /** GB of a GPU. */
  readonly memory: number;
  /** GB/s at which a GPU sends to the others of its node: half of the sum of both directions that data sheets give. */
  readonly nvlink: number;
  readonly fabric: keyof typeof fabrics;
}

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
};

/** GB/s of a NIC for each GPU: none; 400 Gb/s of ConnectX-7, or EFA of p5en and p6; 800 Gb/s of ConnectX-8. */
export const fabrics = { none: 0, cx7: 50, efa: 50, cx8: 100 };

const machine = (
  [name, ...aliases]: readonly [string, ...string[]],
  title: string,
  gpu: keyof typeof gpus,
  fabric: DataSheet['fabric'],
  perNode = 8,
): DataSheet => ({ name, aliases, title, ...gpus[gpu], fabric, perNode });

// biome-ignore format: a line for each machine
export const machines: readonly DataSheet[] = [
  machine(['h200-nvlink'], 'H200, NVLink 4, one node', 'h200', 'none'),
  machine(['h100-nvlink'], 'H100, NVLink 4, one node', 'h100', 'none'),
  machine(['b200-nvlink'], 'B200, NVLink 5, one node', 'b200', 'none'),
  machine(['gb200-nvl72', 'gb200'], 'GB200 NVL72, a ConnectX-7 (400 Gb/s) for each GPU', 'gb200', 'cx7', 72),
  machine(['gb300-nvl72', 'gb300'], 'GB300 NVL72, a ConnectX-8 (800 Gb/s) for each GPU', 'b300', 'cx8', 72),
  machine(['h200-cx7', 'h100-cx7'], 'H100 or H200, NVLink 4, a ConnectX-7 (400 Gb/s) for each GPU', 'h200', 'cx7'),
  machine(['h200-efa', 'p5en'], 'H200 with EFA (p5en): NVLink 4, 400 Gb/s of EFA for each GPU', 'h200', 'efa'),
  machine(['b200-efa', 'p6'], 'B200 with EFA (p6): NVLink 5, 400 Gb/s of EFA for each GPU', 'b200', 'efa'),
  machine(['b200-cx7'], 'B200, NVLink 5, a ConnectX-7 (400 Gb/s) for each GPU', 'b200', 'cx7'),
  machine(['b300-cx8', 'b300'], 'B300, NVLink 5, a ConnectX-8 (800 Gb/s) for each GPU', 'b300', 'cx8'),
  machine(['h800-cx7', 'h800'], 'H800 (less than half of NVLink 4), a ConnectX-7 (400 Gb/s) for each GPU', 'h800', 'cx7'),
  machine(['h20-cx7', 'h20'], 'H20, NVLink 4, a ConnectX-7 (400 Gb/s) for each GPU', 'h20', 'cx7'),
];

export function machineNamed(name: string): DataSheet {
  const found = machines.find((one) => [one.name, ...one.aliases].includes(name));
  if (found !== undefined) return found;
  const names = machines.flatMap((one) => [one.name, ...one.aliases]);
  throw new ArgumentError('machine', name, `one of ${names.join(', ')}`);
}
