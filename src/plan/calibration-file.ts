/** A machine as a file: what `heddle plan calibrate` writes and `--machine` takes. */
import { ArgumentError } from '../errors/index.js';
import { type Cell, isRecord, parseJson } from './cells.js';
import {
  byOrigin,
  type Calibration,
  calibrate,
  type KnownMachine,
  type Machine,
  nominalOf,
} from './machines.js';
import { type Nominal, parameterNames } from './model.js';

const format = 'heddle-machine/1';

interface MachineFile extends KnownMachine {
  readonly format: typeof format;
}

/** What is known of a machine besides its cells; what is left out comes from the cells. */
interface MachineFacts {
  readonly name: string;
  readonly nvlink?: number;
  readonly nic?: number;
  /** GB/s of plain stores to all peers, where that was measured. */
  readonly stores?: number;
  readonly network?: (nominal: Nominal) => Calibration;
}

/** Fits a machine to cells. They may be of several systems, but of one machine. */
export function machineFrom(cells: readonly Cell[], facts: MachineFacts): MachineFile {
  const { name, nvlink, nic, stores, network } = facts;
  const places = [...new Map(cells.map(({ hw, fabric }) => [`${hw}, ${fabric}`, { hw, fabric }])).values()];
  const usual = nominalOf(cells[0]!);
  const nominal = {
    nvlink: nvlink ?? usual.nvlink,
    nic: nic ?? usual.nic,
    ...(stores === undefined ? {} : { stores }),
  };
  const machine: Machine = {
    name,
    aliases: [],
    title: `${name}: ${places.map(({ hw, fabric }) => `${hw}, ${fabric}`).join('; ')}`,
    perNode: Math.max(...cells.map(({ domain }) => domain)),
    nominal,
    cells: places,
  };
  return {
    format,
    machine,
    calibrations: byOrigin(cells).map((group) => calibrate(group, nominal)),
    ...(network === undefined ? {} : { network: network(nominal) }),
  };
}

/** @throws ArgumentError where the text is no such file. */
export function parseMachine(name: string, text: string): KnownMachine {
  const value = parseJson(name, text);
  if (!isMachineFile(value))
    throw new ArgumentError(name, value, `a file that heddle plan calibrate wrote (format ${format})`);
  return value;
}

function isMachineFile(value: unknown): value is MachineFile {
  if (!isRecord(value) || value.format !== format) return false;
  const { machine, calibrations } = value;
  return (
    isRecord(machine) &&
    isRecord(machine.nominal) &&
    typeof machine.perNode === 'number' &&
    Array.isArray(machine.cells) &&
    Array.isArray(calibrations) &&
    calibrations.every((one) => isRecord(one) && isRecord(one.fits) && Object.values(one.fits).every(isFit))
  );
}

const isFit = (value: unknown): boolean =>
  isRecord(value) &&
  isRecord(value.parameters) &&
  parameterNames.every((name) => isRecord(value.parameters) && Number(value.parameters[name]) > 0) &&
  Array.isArray(value.covariance) &&
  isRecord(value.covered);
