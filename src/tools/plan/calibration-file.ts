/** A machine as a file, for `--machine`: what `heddle plan calibrate` writes, or a few figures that describe one. */
import { ArgumentError, requireInteger } from '../../base/errors.js';
import { type Cell, isPhase, isRecord, parseJson, systems } from './cells.js';
import {
  byOrigin,
  type Calibration,
  calibrate,
  type KnownMachine,
  type Machine,
  machineOf,
  nominalOf,
} from './machines.js';
import { type Nominal, parameterNames } from './model.js';

const format = 'heddle-machine/2';

/** GB of a GPU of which nobody has said more. */
const usualMemory = 80;

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
    memory: machineOf(cells[0]!)?.memory ?? usualMemory,
    nominal,
    cells: places,
  };
  return {
    format,
    own: true,
    machine,
    calibrations: byOrigin(cells).map((group) => calibrate(group, nominal)),
    ...(network === undefined ? {} : { network: network(nominal) }),
  };
}

/** @throws ArgumentError where the text is no such file. */
export function parseMachine(name: string, text: string): KnownMachine {
  const value = parseJson(name, text);
  if (isRecord(value) && value.format === undefined && value.perNode !== undefined)
    return { machine: described(name, value), calibrations: [] };
  if (!isMachineFile(value))
    throw new ArgumentError(
      name,
      value,
      `a file that heddle plan calibrate wrote (format ${format}), or one with perNode, nvlink, nic and memory`,
    );
  return value;
}

/** A machine that nothing was measured on. */
function described(name: string, value: Record<string, unknown>): Machine {
  const number = (field: 'memory' | 'nvlink' | 'nic'): number => {
    const found = value[field];
    if (typeof found === 'number' && found > 0 && Number.isFinite(found)) return found;
    if (field === 'nic' && found === 0) return 0;
    throw new ArgumentError(`${name}.${field}`, found, 'a number above 0; nic may be 0, for none');
  };
  const fabric = value.fabric ?? 'cx7';
  if (fabric !== 'cx7' && fabric !== 'efa')
    throw new ArgumentError(`${name}.fabric`, fabric, 'cx7 or efa: whose NICs its own are like');
  return {
    name: name.replace(/\.json$/, ''),
    aliases: [],
    title: `${name}, as it is described there`,
    perNode: requireInteger(`${name}.perNode`, value.perNode, 1, 1024),
    memory: number('memory'),
    nominal: { nvlink: number('nvlink'), nic: number('nic') },
    cells: [{ hw: name, fabric }],
  };
}

function isMachineFile(value: unknown): value is MachineFile {
  if (!isRecord(value) || value.format !== format) return false;
  const { machine, calibrations, network } = value;
  return (
    isRecord(machine) &&
    [machine.name, machine.title].every(isText) &&
    isListOf(machine.aliases, isText) &&
    Number.isInteger(machine.perNode) &&
    isPositive(machine.perNode) &&
    isPositive(machine.memory) &&
    isNominal(machine.nominal) &&
    isListOf(machine.cells, (cell) => isRecord(cell) && isText(cell.hw) && isText(cell.fabric)) &&
    isListOf(calibrations, isCalibration) &&
    (network === undefined || (isCalibration(network) && isWhole(network as Calibration)))
  );
}

const isText = (value: unknown): value is string => typeof value === 'string';
const isNumber = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value);
const isPositive = (value: unknown): value is number => isNumber(value) && value > 0;
const isListOf = (value: unknown, isOne: (one: unknown) => boolean): boolean =>
  Array.isArray(value) && value.every(isOne);

const isNominal = (value: unknown): boolean =>
  isRecord(value) &&
  isPositive(value.nvlink) &&
  (value.nic === 0 || isPositive(value.nic)) &&
  (value.stores === undefined || isPositive(value.stores));

const isCalibration = (value: unknown): boolean =>
  isRecord(value) &&
  [value.set, value.lib, value.hw, value.fabric].every(isText) &&
  systems.some(({ mode }) => mode === value.mode) &&
  isListOf(value.src, isText) &&
  isNominal(value.nominal) &&
  isRecord(value.fits) &&
  Object.entries(value.fits).every(([phase, fit]) => isPhase(phase) && isFit(fit));

/** What serves as a network serves both phases. */
const isWhole = ({ fits: { dispatch, combine } }: Calibration): boolean => Boolean(dispatch && combine);

const isFit = (value: unknown): boolean => {
  if (!isRecord(value)) return false;
  const { parameters, covariance, scatter, seen, continued } = value;
  return (
    isRecord(parameters) &&
    parameterNames.every((name) => isPositive(parameters[name])) &&
    isSquare(covariance, isNumber) &&
    isPositive(scatter) &&
    isListOf(seen, isSeen) &&
    isListOf(continued, isSeen)
  );
};

const isSeen = (value: unknown): boolean => {
  if (!isRecord(value) || !isPositive(value.tokens) || !isNumber(value.over) || !isRecord(value.work))
    return false;
  const { ranks, nodes, nvlinkBytes, networkBytes, messages } = value.work;
  return (
    [ranks, nodes].every(isPositive) &&
    [nvlinkBytes, networkBytes, messages].every((one) => isNumber(one) && one >= 0)
  );
};

/** A row and a column for each parameter. */
const isSquare = (value: unknown, isOne: (one: unknown) => boolean): boolean => {
  const isFull = (list: unknown): boolean => (list as unknown[]).length === parameterNames.length;
  return isListOf(value, (row) => isListOf(row, isOne) && isFull(row)) && isFull(value);
};
