/** A family's plan as a value that any host can carry out: what to allocate, how it starts, and every launch of a round. */
import { UnavailableError } from '../../base/errors.js';
import { evenNodes, topologyOf } from '../../gpu/index.js';
import {
  byteSize,
  dynamicSharedBytes,
  entryName,
  type IrModule,
  parameterAbi,
  printCuda,
  sectionAlignment,
} from '../../lang/index.js';
import {
  type Family,
  operations,
  type Plan,
  type ReceivedPlan,
  type View,
  type WindowPlan,
  type WirePlan,
} from '../../moe/families/index.js';
import { combineWeighs, dtypes, type Layer, sentPayloads } from '../../moe/layer/index.js';
import type { FamilyShape } from '../../verify/kernels/index.js';
import {
  type PlannedExperts,
  type PlannedTensor,
  type PlannedWeights,
  recordRounds,
  type SortedRows,
  type StageLaunch,
} from './rounds.js';

/** The content of `plan.json`. Offsets and sizes are bytes; names are unique. */
export interface LaunchPlan {
  readonly format: typeof planFormat;
  readonly heddle: string;
  readonly family: string;
  readonly layer: Layer;
  /** The rows that a host brings to a round: without scales that dispatch makes, and as bf16 where it rounds them. */
  readonly rows: readonly { readonly payload: string; readonly rowBytes: number }[];
  readonly tuning: FamilyShape['tuning'];
  /** Sends and receives are launches of their own, with other work between them. */
  readonly split: boolean;
  /** The most multiprocessors that a launch takes; null for all. */
  readonly sms: number | null;
  readonly windows: readonly ReturnType<typeof windowOf>[];
  /** Memory of a rank alone. */
  readonly buffers: readonly { readonly name: string; readonly bytes: number }[];
  /** The memory that networks reach, where rows cross one: in the host's memory, which `heddle proxy` maps, too. */
  readonly wire?: PlannedWire;
  /** Kernels, in the order of their first launch. */
  readonly kernels: readonly { readonly name: string; readonly entry: string; readonly maxThreads: number }[];
  /** Launches in the order of the stream. The experts run between the last of dispatchRecv and the first of combineSend. */
  readonly launches: readonly PlannedLaunch[];
  /** The buffers that the experts read, and `output`, where they leave their rows. */
  readonly received: Readonly<Record<string, PlacedTensor>>;
  /** The weights of experts that a host brings, where it brings any. */
  readonly weights?: readonly PlannedWeights[];
  /** What a plan of experts leaves, where there is one: how many rows each has, where they begin, the rows. */
  readonly planned?: Readonly<Record<string, PlannedTensor>>;
  /** Four words; the first is 0, or what a wait was doing that gave up. Then the rank that did not come, the epoch, the block. */
  readonly failure: PlacedTensor & { readonly operations: Readonly<Record<string, number>> };
  /** Four words with a bit for each rank that rounds leave out, where a layer has masks. */
  readonly masked?: PlacedTensor;
  /** [phase][round][peer], 64 bits of nanoseconds, and of each round its number and its layer, where waits are counted. */
  readonly waits?: { readonly waited: PlacedTensor; readonly waiters: PlacedTensor };
  readonly rules: readonly string[];
}

/** Changes whenever a reader of the last one would misread it. */
const planFormat = 'heddle launch plan 1';

export type PlannedWire = ReturnType<typeof wireOf>;

export type PlacedTensor = ReturnType<typeof placeOf>;

export type PlannedLaunch = ReturnType<typeof launchOf>;

export interface Exported {
  readonly plan: LaunchPlan;
  readonly kernels: ReadonlyMap<string, IrModule>;
}

export interface ExportOptions {
  /** The compute capability of the GPUs, by which experts choose their instructions. Default: Hopper's. */
  readonly capability?: readonly [major: number, minor: number];
  /** Experts that run between dispatch and combine, or rows sorted for those of the host. Default: the host's own, on slots. */
  readonly experts?: PlannedExperts | SortedRows | null;
}

/** `version`: that of Heddle. @throws UnavailableError where rows need more than launches to travel. */
export async function exportPlan(
  family: Family,
  { layer, target, tuning }: FamilyShape,
  version: string,
  { capability = [9, 0], experts = null }: ExportOptions = {},
): Promise<Exported> {
  if (combineWeighs(layer) && experts === null)
    throw new UnavailableError(
      'combine takes rows by an experts’ plan here, and there are no experts',
      "Export with weighting 'experts', or with experts",
    );
  if (target.transport !== 'windows') {
    const what = `rows of the family ${family.name} need NVSHMEM here, which a launch plan cannot hold`;
    throw new UnavailableError(what, 'Export a family whose rows travel over NVLink, with transport=windows');
  }
  const { nodes } = target.topology;
  const planOf = (rank: number): Plan => {
    const topology = topologyOf(evenNodes(layer.ranks, nodes), rank);
    return family.plan(layer, { ...target, capability, rank, topology }, tuning);
  };
  const plans = Array.from({ length: nodes === 1 ? 1 : layer.ranks }, (_, rank) => planOf(rank));
  const [plan] = plans as [Plan, ...Plan[]];
  const { launches, buffers, weights, planned } = await recordRounds(
    (rank) => plans[rank] ?? plan,
    layer,
    target,
    capability,
    experts,
  );
  const { kernels, nameOf } = kernelsOf(launches);
  const { split, sms } = target;
  return {
    kernels,
    plan: {
      ...{ format: planFormat, heddle: version, family: family.name, layer },
      rows: sentPayloads(layer).map((p) => {
        const { name, rowBytes, rounded } = layer.payloads[p]!;
        return { payload: name, rowBytes: rounded ? 2 * rowBytes : rowBytes };
      }),
      ...{ tuning, split, sms },
      windows: plan.windows.map(windowOf),
      buffers,
      ...(plan.wire && { wire: wireOf(plan.wire, plans, layer.ranks / nodes) }),
      kernels: Array.from(kernels, ([name, module]) => {
        return { name, entry: entryName(module), maxThreads: module.maxThreads };
      }),
      launches: launches.map((launch) => launchOf(launch, nameOf(launch.module))),
      received: receivedOf(plan.received),
      ...(weights.length > 0 && { weights }),
      ...(experts !== null && { planned }),
      failure: { ...placeOf(plan.failure), operations },
      ...(plan.masks && { masked: placeOf(plan.masks.masked) }),
      ...(plan.waits && {
        waits: { waited: placeOf(plan.waits.waited), waiters: placeOf(plan.waits.waiters) },
      }),
      rules,
    },
  };
}

/** The kernels of launches, in their order. Two that differ and have one name get a number. */
function kernelsOf(launches: readonly StageLaunch[]) {
  const names = new Map<IrModule, string>();
  for (const { module } of launches) {
    if (names.has(module)) continue;
    const alike = [...names].find(
      ([other]) => other.name === module.name && printCuda(other) === printCuda(module),
    );
    const others = [...new Set(names.values())].filter((name) => name.replace(/_\d+$/, '') === module.name);
    names.set(
      module,
      alike?.[1] ?? (others.length === 0 ? module.name : `${module.name}_${others.length + 1}`),
    );
  }
  return {
    kernels: new Map(Array.from(names, ([module, name]) => [name, module])),
    nameOf: (module: IrModule) => names.get(module)!,
  };
}

function launchOf({ phase, module, shape, sources, tokens }: StageLaunch, kernel: string) {
  const parameters = parameterAbi(module).map(({ name, kind, type, offset, bytes }) => ({
    name,
    type: type.kind === 'value' ? type.name : kind,
    offset,
    bytes,
    // The source of the value, in the words of docs/export.md.
    value: sources.get(name)!,
  }));
  const last = parameters.at(-1)!;
  return {
    phase,
    kernel,
    ...(tokens !== undefined && { tokens }),
    grid: shape.grid,
    block: shape.block,
    dynamicSharedBytes: dynamicSharedBytes(module.shared),
    // May be launched with programmatic stream serialization: it waits by itself for the launch before.
    programmatic: shape.programmatic ?? false,
    // The size of the block of memory that holds all parameters.
    parameterBytes: last.offset + last.bytes,
    parameters,
  };
}

function receivedOf({ payloads, ...views }: ReceivedPlan): Record<string, PlacedTensor> {
  const named = Object.entries(payloads).map(([name, view]) => [`payloads.${name}`, view] as const);
  const all: (readonly [string, View | null])[] = [...Object.entries(views), ...named];
  return Object.fromEntries(all.flatMap(([name, view]) => (view === null ? [] : [[name, placeOf(view)]])));
}

const windowOf = ({ purpose, layout, allOnes }: WindowPlan) => ({
  name: purpose,
  bytes: layout.bytes,
  alignment: sectionAlignment,
  sections: layout.fields
    .filter(({ length }) => length > 0)
    .map((field) => ({
      name: field.name,
      offset: field.offset,
      bytes: byteSize[field.type] * field.length,
      type: field.type,
      shape: field.shape,
      // The value of every byte of it before the first launch.
      start: allOnes.includes(field) ? 255 : 0,
    })),
});

const wireOf = (
  { purpose, layout, front, allOnes = [] }: WirePlan,
  plans: readonly Plan[],
  localRanks: number,
) => ({
  name: purpose,
  bytes: layout.bytes,
  // Networks reach what lies from here on.
  front,
  // A node's ranks follow each other.
  localRanks,
  // All bits of these are set before the first launch, all others are not.
  allOnes: allOnes
    .filter(({ length }) => length > 0)
    .map(({ offset, type, length }) => ({ offset, bytes: byteSize[type] * length })),
  // What the proxy of each rank is told.
  proxies: plans.map(({ wire }) => ({ data: wire!.program.data, reach: wire!.program.reach })),
});

const placeOf = ({ in: memory, offset, dtype, shape }: View) => ({
  in: memory.purpose,
  offset,
  bytes: shape.reduce((product, extent) => product * extent, dtypes[dtype].size),
  dtype,
  shape,
});

/** The state that every host of a launch plan keeps, whatever the family (docs/export.md). */
export const rules: readonly string[] = [
  'Before the first launch every rank allocates its windows at multiples of their alignment, sets them to their start ' +
    'values, maps the windows of all other ranks, and waits until all ranks have come so far.',
  'Kernels are loaded before the first launch (cuFuncLoad, or CUDA_MODULE_LOADING=EAGER): one that is loaded while another ' +
    'waits for a peer may wait for that one to end.',
  'A round is the launches in their order on one stream; the experts run before the first of combineSend. All ranks make ' +
    'the same rounds, those without tokens too. Rounds follow each other without waiting, and may be captured as a graph.',
  'Nothing is reset between rounds: kernels count them in the window, and flags carry these epochs. The host writes ' +
    "nothing into a window, except the experts' rows into received.output.",
  'topkIds stay as they are until the round has ended; rows and weights may be written again behind the last launch of ' +
    'dispatchSend, and received.output is read until the round has ended.',
  'What was received stays until the first launch of the next round. Slots without a local expert are not written.',
  'A wait ends after `limit` microseconds. Then the first word of failure is not 0, no later launch waits, and results mean ' +
    'nothing: all ranks allocate their windows anew.',
  'Windows are freed when the last round of every rank has ended.',
];
