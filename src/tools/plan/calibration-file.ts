/** A machine as a file, for `--machine`: a few figures that describe one, and cells and its network where they were measured. */
import { ArgumentError, requireInteger, requireOneOf, requireText } from '../../base/errors.js';
import { type Cell, cellFrom, figure, isRecord, parseJson } from './cells.js';
import { fitCells } from './fit.js';
import { type Calibration, calibrate, type KnownMachine, machineOf, nominalOf } from './machines.js';
import { type Nominal, type Parameters, parameterNames } from './model.js';

/** GB of a GPU of which nobody has said more. */
const usualMemory = 80;

/** The result of a fabric benchmark: µs, µs a message, µs a MB; and over what. */
export interface Network extends Pick<Parameters, 'latency' | 'message' | 'nic'> {
  readonly provider: string;
}

export interface MachineFile extends Nominal {
  readonly name?: string;
  readonly perNode: number;
  /** GB of a GPU. */
  readonly memory: number;
  /** The machine whose NICs its own are like. */
  readonly fabric: 'cx7' | 'efa';
  readonly network?: Network;
  /** The cells that were measured on it. */
  readonly cells?: readonly Cell[];
}

/** The facts about a machine besides its cells. A fact that is left out comes from the cells. */
interface MachineFacts extends Partial<Pick<MachineFile, 'nvlink' | 'nic' | 'stores' | 'network'>> {
  readonly name: string;
}

/** A machine on which cells were measured. They may be of several systems, but of one machine. */
export function machineFrom(cells: readonly Cell[], facts: MachineFacts): MachineFile {
  // Some cells may be of one node alone, and know of no network.
  const farthest = cells.reduce((a, b) => (nominalOf(b).nic > nominalOf(a).nic ? b : a));
  return {
    ...nominalOf(farthest),
    perNode: Math.max(...cells.map(({ domain }) => domain)),
    memory: machineOf(farthest)?.memory ?? usualMemory,
    fabric: cells.some(({ fabric }) => fabric === 'efa') ? 'efa' : 'cx7',
    ...facts,
    cells,
  };
}

/** @throws ArgumentError where the text describes no machine. */
export function parseMachine(file: string, text: string): KnownMachine {
  const value = parseJson(file, text);
  if (!isRecord(value) || value.perNode === undefined)
    throw new ArgumentError(
      file,
      value,
      'what heddle plan calibrate wrote, or perNode, nvlink, nic and memory',
    );
  const { fabric = 'cx7', name = file.replace(/\.json$/, ''), cells = [], network, stores } = value;
  if (!Array.isArray(cells)) throw new ArgumentError(`${file}.cells`, cells, 'a list of cells');
  return knownFrom({
    name: requireText(`${file}.name`, name, 'a name'),
    perNode: requireInteger(`${file}.perNode`, value.perNode, 1, 2 ** 22),
    nvlink: figure(`${file}.nvlink`, value.nvlink),
    nic: value.nic === 0 ? 0 : figure(`${file}.nic`, value.nic),
    memory: figure(`${file}.memory`, value.memory),
    fabric: requireOneOf(`${file}.fabric`, fabric, ['cx7', 'efa']),
    ...(stores === undefined ? {} : { stores: figure(`${file}.stores`, stores) }),
    ...(network === undefined ? {} : { network: networkFrom(`${file}.network`, network) }),
    cells: cells.map((cell: unknown, i) => cellFrom(`${file}.cells[${i}]`, cell)),
  });
}

function networkFrom(at: string, value: unknown): Network {
  if (!isRecord(value)) throw new ArgumentError(at, value, 'an object');
  return {
    provider: requireText(`${at}.provider`, value.provider, "a provider's name"),
    latency: figure(`${at}.latency`, value.latency),
    message: figure(`${at}.message`, value.message),
    nic: figure(`${at}.nic`, value.nic),
  };
}

/** Fits what was measured on the machine. */
export function knownFrom({ name = 'mine', cells = [], network, ...facts }: MachineFile): KnownMachine {
  const { perNode, memory, fabric } = facts;
  const places = new Map(cells.map(({ hw, fabric }) => [`${hw}, ${fabric}`, { hw, fabric }]));
  const { nvlink, nic, stores } = facts;
  const nominal: Nominal = { nvlink, nic, ...(stores === undefined ? {} : { stores }) };
  return {
    own: cells.length > 0,
    machine: {
      ...{ name, aliases: [], perNode, memory, nominal },
      title: places.size === 0 ? `${name}, as it is described` : `${name}: ${[...places.keys()].join('; ')}`,
      cells: [...places.values(), { hw: name, fabric }],
    },
    calibrations: calibrate(cells, () => nominal),
    ...(network === undefined ? {} : { network: ofNetwork(network, nominal) }),
  };
}

/** How exact figures of a quiet loop are for rounds. */
const doubt = 0.2;

/** For both phases what is believed of any network, but for the three figures that were measured. */
function ofNetwork({ provider, ...measured }: Network, nominal: Nominal): Calibration {
  const believed = fitCells([], nominal);
  const fit = {
    ...believed,
    parameters: { ...believed.parameters, ...measured },
    covariance: believed.covariance.map((row, i) =>
      parameterNames[i]! in measured ? row.map((_, j) => (i === j ? doubt ** 2 : 0)) : row,
    ),
  };
  return {
    ...{
      set: provider,
      lib: 'heddle fabric bench',
      mode: 'hybrid',
      hw: provider,
      fabric: provider,
      src: [provider],
    },
    ...{ nominal, fits: { dispatch: fit, combine: fit } },
  };
}
