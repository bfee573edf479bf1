/**
 * A shape: a launch plan and its compiled kernels as the one file that player.c plays. It is of 64-bit little-endian words, in
 * tables of structs that player.c names alike, and behind them strings and images.
 */
import { createHash } from 'node:crypto';
import { HeddleError } from '../../base/errors.js';
import { swizzles, tensorTypes } from '../../gpu/cuda/index.js';
import { unitBytes, widestUnit } from '../../moe/families/index.js';
import { outputRowBytes } from '../../moe/layer/index.js';
import type { Architecture } from './architecture.js';
import { inC } from './header.js';
import type { LaunchPlan, PlacedTensor } from './launch-plan.js';
import type { Source } from './recorder.js';
import { type Stage, stages } from './rounds.js';

/** Kernels by name, each as a list of images in the order of the architectures. */
export interface Images {
  readonly architectures: readonly Architecture[];
  readonly images: ReadonlyMap<string, readonly Uint8Array[]>;
}

/** The fields of each struct of player.c, all 64-bit, in their order; `extents[3]` is three. */
export const structs = {
  architecture: ['oldest', 'newest'],
  kernel: ['entry', 'has_tensors'],
  fill: ['window', 'offset', 'bytes', 'value'],
  operation: ['launch', 'launches', 'arguments'],
  launch: [
    ...['kernel', 'grid', 'block', 'dynamic_shared_bytes', 'programmatic', 'parameter_bytes'],
    ...['parameter', 'parameters', 'least_tokens', 'most_tokens'],
  ],
  parameter: ['from', 'index', 'value', 'offset', 'bytes'],
  tensor: [
    ...['from', 'index', 'value', 'type', 'dimensions', 'swizzle'],
    ...['extents[3]', 'strides[2]', 'box[3]'],
  ],
  argument: ['name', 'alignment', 'always'],
} as const;

/** The tables in the order of the shape's head. */
export const tables = [
  ...['architectures', 'kernels', 'images', 'windows', 'buffers', 'fills', 'operations', 'launches'],
  ...['parameters', 'tensors', 'numbers', 'arguments', 'text'],
] as const;

/** Where values come from, in the order of player.c. */
export const froms = [
  'argument',
  'window',
  'memory',
  'limit',
  'rank',
  'constant',
  'numbers',
  'tensor',
  'wire',
] as const;

/** The place of masks where there are none. */
const nowhere = 2n ** 64n - 1n;
const magic = Buffer.from('heddle 4');
const headWords = 12;
const mostWindows = 4;

/** An argument of a run: its name in C, and what an address is a multiple of; null for the number of tokens. */
interface Argument {
  readonly name: string;
  readonly source: Source;
  readonly alignment: number | null;
  /** It is read without tokens, too. */
  readonly always: boolean;
}

const alignmentOf = (rowBytes: number): number => unitBytes[widestUnit(rowBytes)];

/** The arguments of a run in their order: the round's, then the weights. */
export function argumentsOf({ layer, rows, weights = [] }: LaunchPlan): readonly Argument[] {
  const round = (name: string, source: Source, alignment: number | null): Argument => ({
    ...{ name, source, alignment, always: false },
  });
  return [
    round('tokens', { from: 'tokens' }, null),
    round('topk_ids', { from: 'topkIds' }, 4),
    round('topk_weights', { from: 'topkWeights' }, 4),
    round('out', { from: 'out' }, alignmentOf(outputRowBytes(layer))),
    ...rows.map(({ payload, rowBytes }, i) =>
      round(`rows[${i}]`, { from: 'rows', payload }, alignmentOf(rowBytes)),
    ),
    ...(layer.placed === undefined ? [] : (['places', 'routed'] as const)).map((from) => ({
      ...{ name: from, source: { from }, alignment: 4, always: true },
    })),
    ...weights.map(({ name }) => ({
      ...{ name: inC(name), source: { from: 'weights', weights: name } as const },
      ...{ alignment: 16, always: true },
    })),
  ];
}

/** The arguments that an operation needs, by their names in C. */
const needs = (plan: LaunchPlan, stage: Stage): ((name: string) => boolean) => {
  if (stage.startsWith('dispatch'))
    return (name) =>
      name.startsWith('rows') ||
      ['topk_ids', 'places', 'routed'].includes(name) ||
      (plan.layer.weights && name === 'topk_weights');
  if (stage.startsWith('combine')) return (name) => name === 'topk_ids' || name === 'out';
  if (stage === 'experts') return (name) => (plan.weights ?? []).some((of) => inC(of.name) === name);
  return () => false;
};

/** A list of so many, the innermost first. */
const inwards = (all: readonly number[], length: number): number[] =>
  Array.from({ length }, (_, i) => all.at(-1 - i) ?? 0);

/** The sections of a window that do not start as zeros. */
const startsOf = (sections: LaunchPlan['windows'][number]['sections']) =>
  sections
    .filter(({ start }) => start !== 0)
    .map(({ offset, bytes, start: value }) => ({ offset, bytes, value }));

/** Sources that say the same are one. */
const keyOf = (source: Source): string => JSON.stringify(source);

/** The part of a plan that a host of any shape wants to know of it: arguments, stages, and where tensors lie. */
export function describe(plan: LaunchPlan) {
  const { heddle, family, layer, split, rows, received, weights = [], planned = {}, windows, buffers } = plan;
  const { masked, waits, wire } = plan;
  const placed = (views: Readonly<Record<string, PlacedTensor>>) =>
    Object.fromEntries(
      Object.entries(views).map(([name, view]) => [name, { ...view, memory: memoryOf(plan, view) }]),
    );
  return {
    ...{ heddle, family, layer, split, rows, weights, stages },
    arguments: argumentsOf(plan).map(({ name }) => name),
    ...{ received: placed(received), planned: placed(planned) },
    told: placed({ ...(masked && { masked }), ...waits }),
    memory: [...windows, ...buffers, ...(wire ? [wire] : [])].map(({ name, bytes }) => ({ name, bytes })),
    ...(wire && { wire }),
  };
}

/** The bytes of a shape. `text`: the plan in words, for hosts that want to know names and types. */
export function packShape(plan: LaunchPlan, { architectures, images }: Images, text = ''): Buffer {
  const { windows, buffers, kernels, launches, failure, wire, masked } = plan;
  if (windows.length > mostWindows)
    throw new HeddleError('HEDDLE_EXPORT', `${plan.family} has more than ${mostWindows} windows`);
  const given = argumentsOf(plan);
  const indices = new Map(given.map(({ source }, i) => [keyOf(source), i]));
  const memories = [...windows, ...buffers].map(({ name }) => name);
  const tensors: number[][] = [];
  const numbers: number[] = [];
  const place = (from: (typeof froms)[number], index = 0, value = 0) => ({
    from: froms.indexOf(from),
    index,
    value,
  });
  const placeOf = (source: Source): ReturnType<typeof place> => {
    switch (source.from) {
      case 'window':
        return place('window', memories.indexOf(source.window));
      case 'own':
        return place('memory', memories.indexOf(source.window), source.offset);
      case 'buffer':
        return place('memory', memories.indexOf(source.buffer), source.offset);
      case 'limit':
      case 'rank':
      case 'wire':
        return place(source.from);
      case 'constant':
        return place('constant', 0, source.value);
      case 'constants':
        return place('numbers', numbers.push(...source.values) - source.values.length);
      case 'tensor': {
        const { from, index, value } = placeOf(source.address);
        const { element, swizzle, extents, strides, box } = source;
        const how = [tensorTypes[element], extents.length, swizzles[swizzle]];
        const lists = [...inwards(extents, 3), ...inwards(strides, 2), ...inwards(box, 3)];
        return place('tensor', tensors.push([from, index, value, ...how, ...lists]) - 1);
      }
      default:
        return place('argument', indices.get(keyOf(source))!);
    }
  };
  const parameters = launches.flatMap((launch) =>
    launch.parameters.map((of) => {
      const { from, index, value } = placeOf(of.value);
      return [from, index, bitsOf(value, of.type), of.offset, of.bytes];
    }),
  );
  let next = 0;
  const launchRows = launches.map((of) => {
    next += of.parameters.length;
    return [
      ...[kernels.findIndex(({ name }) => name === of.kernel), of.grid, of.block, of.dynamicSharedBytes],
      ...[of.programmatic ? 1 : 0, of.parameterBytes, next - of.parameters.length, of.parameters.length],
      ...(of.tokens ?? [0, plan.layer.maxTokens]),
    ];
  });
  const operationRows = stages.map((stage, s) => {
    const before = launches.filter(({ phase }) => stages.indexOf(phase) < s).length;
    const mine = launches.filter(({ phase }) => phase === stage).length;
    const needed = needs(plan, stage);
    const bits = given.map(({ name }, i) => (name === 'tokens' || needed(name) ? 2 ** i : 0));
    return [before, mine, bits.reduce((sum, bit) => sum + bit, 0)];
  });
  const tail = new Tail();
  const named = architectures.map(({ name }) => name).join(', ') || 'none';
  const rowsOf: Record<(typeof tables)[number], readonly (readonly (number | bigint | Late)[])[]> = {
    architectures: architectures.map(({ gpus }) => gpus),
    kernels: kernels.map(({ name, entry }) => [
      tail.string(entry),
      launches.some(
        ({ kernel, parameters }) =>
          kernel === name && parameters.some(({ value }) => value.from === 'tensor'),
      )
        ? 1
        : 0,
    ]),
    images: kernels.flatMap(({ name }) => (images.get(name) ?? []).map((image) => [tail.bytes(image)])),
    windows: windows.map(({ bytes }) => [bytes]),
    buffers: buffers.map(({ bytes }) => [bytes]),
    // Those of the wire come behind those of all windows.
    fills: [
      ...windows.map(({ sections }) => startsOf(sections)),
      (wire?.allOnes ?? []).map((of) => ({ ...of, value: 255 })),
    ].flatMap((starts, window) => starts.map(({ offset, bytes, value }) => [window, offset, bytes, value])),
    operations: operationRows,
    launches: launchRows,
    parameters,
    tensors,
    numbers: numbers.map((number) => [number]),
    arguments: given.map(({ name, alignment, always }) => [
      tail.string(name),
      alignment ?? 0,
      always ? 1 : 0,
    ]),
    text: [],
  };
  const digest = createHash('sha256').update(JSON.stringify(plan)).digest().readBigUInt64LE();
  const words = tail.string(named);
  const json = tail.string(text);
  const head = headWords + 2 * tables.length;
  let at = head;
  const places = tables.flatMap((name) => {
    const rows = rowsOf[name];
    if (name === 'text') return [json, Buffer.byteLength(text)];
    const begin = 8 * at;
    at += rows.reduce((sum, row) => sum + row.length, 0);
    return [begin, rows.length];
  });
  const body = tables.flatMap((name) => rowsOf[name].flat());
  const total = 8 * at + tail.length;
  const first = [
    ...[magic.readBigUInt64LE(), total, digest, plan.layer.ranks, plan.layer.maxTokens],
    ...[memories.indexOf(failure.in), failure.offset, words],
    ...[wire?.localRanks ?? plan.layer.ranks, wire?.bytes ?? 0],
    ...(masked ? [memories.indexOf(masked.in), masked.offset] : [nowhere, 0]),
  ];
  const all = new BigUint64Array([...first, ...places, ...body].map((word) => numberOf(word, 8 * at)));
  return Buffer.concat([Buffer.from(all.buffer), tail.take()]);
}

/** The place of something in the part behind the tables, which is known when those are. */
interface Late {
  readonly behind: number;
}

const numberOf = (word: number | bigint | Late, tail: number): bigint =>
  typeof word === 'object' ? BigInt(tail + word.behind) : BigInt(word);

/** Strings and images. Each begins at a multiple of 16 of them, and ends in a zero. */
class Tail {
  readonly #parts: Uint8Array[] = [];
  length = 0;

  bytes(of: Uint8Array): Late {
    const padded = new Uint8Array(16 * Math.floor(of.length / 16 + 1));
    padded.set(of);
    this.#parts.push(padded);
    this.length += padded.length;
    return { behind: this.length - padded.length };
  }

  string(text: string): Late {
    return this.bytes(Buffer.from(text));
  }

  take(): Buffer {
    return Buffer.concat(this.#parts);
  }
}

/** The bits of a constant of that type, as a parameter has them. */
function bitsOf(value: number, type: string): bigint {
  const view = new DataView(new ArrayBuffer(8));
  if (type === 'f32') view.setFloat32(0, value, true);
  else if (type === 'i32') view.setInt32(0, value, true);
  else view.setBigUint64(0, BigInt(value), true);
  return view.getBigUint64(0, true);
}

/** The number of a memory in the words of `heddle_player_address`: windows come first. */
export const memoryOf = ({ windows, buffers }: LaunchPlan, { in: name }: PlacedTensor): number =>
  [...windows, ...buffers].findIndex((one) => one.name === name);
