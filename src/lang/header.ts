/**
 * The parts of a kernel's header: memory layouts and the types of run-time parameters. These are ordinary
 * host values; the same `layout` is used by the host, the kernels and the checker's reports (law 5).
 */
import { requireArray, requireInteger, requireObject, requireText, requireThat } from '../base/errors.js';
import type * as kernel from './kernel.js';
import type { RegisterName } from './language.js';
import { requireTile } from './tile.js';
import {
  byteSize,
  type Field,
  type Layout,
  type MemoryName,
  sectionAlignment,
  type TensorRank,
  type Tile,
  type TileName,
} from './types.js';

const identifier = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** Is this a name that both TypeScript and CUDA accept? */
export const isIdentifier = (name: unknown): name is string =>
  typeof name === 'string' && identifier.test(name);

export const isMemoryName = (name: unknown): name is MemoryName =>
  typeof name === 'string' && Object.hasOwn(byteSize, name);

/** The types that a register array may be declared to hold. */
export const registerNames = ['u32', 'i32', 'u64', 'f32', 'bool', 'v16', 'u8', 'u16'] as const;

function requireMemoryName(argument: string, type: unknown): void {
  requireThat(isMemoryName(type), argument, type, `one of ${Object.keys(byteSize).join(', ')}`);
}

/** Most elements of a field of several dimensions: its indices are multiplied as u32. */
export const mostIndexed = 2 ** 32 - 1;

type ShapeOf<S> = S extends readonly number[] ? S : readonly [number];

/**
 * Elements of one type, a section of a layout: so many, or in rows, `[ranks, tokens, units]`, which a body reaches by
 * `.at(rank, token, unit)`. `dimensions` names them for findings. A section of none takes no space.
 */
export function field<T extends MemoryName, const S extends number | readonly number[]>(
  type: T,
  shape: S,
  dimensions?: readonly string[],
): kernel.FieldSpec<T, ShapeOf<S>>;
export function field(
  type: MemoryName,
  shape: number | readonly number[],
  dimensions: readonly string[] = [],
): kernel.FieldSpec {
  requireMemoryName('type', type);
  const extents = typeof shape === 'number' ? [shape] : shape;
  requireThat(Array.isArray(extents), 'shape', shape, 'a number, or an array of them');
  requireArray('dimensions', dimensions, 'an array of names');
  requireInteger('the number of dimensions', extents.length, 1, 4);
  for (const [i, extent] of extents.entries()) {
    requireInteger(typeof shape === 'number' ? 'length' : `shape[${i}]`, extent, 0, 2 ** 40);
  }
  const length = extents.reduce((product, extent) => product * extent, 1);
  requireInteger('the number of elements', length, 0, extents.length > 1 ? mostIndexed : 2 ** 40);
  const named = dimensions.length === 0 || dimensions.length === extents.length;
  requireThat(named, 'dimensions', dimensions, `${extents.length} names`);
  return { type, length, shape: extents, dimensions };
}

/**
 * Places sections one after another, each on a cache line of its own. A list of fields becomes `name_0`,
 * `name_1`, …; a body reaches them as `win.at(rank).name[0]`.
 */
export function layout<const S extends kernel.LayoutSpec>(name: string, spec: S): kernel.TypedLayout<S> {
  requireThat(typeof name === 'string' && name !== '', 'name', name, 'a name for people');
  requireObject('spec', spec, "fields by name: { flags: field('u32', 8) }");
  const fields: Field[] = [];
  let offset = 0;
  const place = (fieldName: string, of: kernel.FieldSpec): void => {
    requireObject(`${name}.${fieldName}`, of, "a field: field('u32', 8)");
    const { type, length, shape, dimensions } = of;
    requireMemoryName(`${name}.${fieldName}.type`, type);
    requireInteger(`${name}.${fieldName}.length`, length, 0, 2 ** 40);
    const isNew = fields.every((other) => other.name !== fieldName);
    requireThat(isNew, `${name}.${fieldName}`, 'a second field of that name', 'unique');
    fields.push({ name: fieldName, type, length, shape, dimensions, offset });
    offset = alignUp(offset + length * byteSize[type], sectionAlignment);
  };
  for (const [fieldName, fieldSpec] of Object.entries(spec)) {
    requireThat(isIdentifier(fieldName), 'field name', fieldName, 'an identifier');
    if (isFieldList(fieldSpec)) {
      for (const [i, item] of fieldSpec.entries()) place(`${fieldName}_${i}`, item);
    } else place(fieldName, fieldSpec);
  }
  return { name, fields, bytes: offset, spec };
}

/** One section of a layout, by name; `index` for a list of fields. */
export function section<S extends kernel.LayoutSpec>(
  of: kernel.TypedLayout<S>,
  name: keyof S & string,
  index?: number,
): Field {
  requireLayout('layout', of);
  requireText('field', name);
  if (index !== undefined) requireInteger('index', index, 0, 2 ** 31);
  const found = findField(of, index === undefined ? name : `${name}_${index}`);
  const asked = index === undefined ? name : `${name}[${index}]`;
  requireThat(found !== undefined, 'field', asked, `a field of ${of.name}`);
  return found;
}

export const findField = (of: Layout, name: string): Field | undefined =>
  of.fields.find((candidate) => candidate.name === name);

const isFieldList = (of: kernel.FieldSpec | readonly kernel.FieldSpec[]): of is readonly kernel.FieldSpec[] =>
  Array.isArray(of);

/** A parameter that points to elements of one type in device memory. */
export function pointer<T extends MemoryName>(to: T): kernel.PointerParam<T> {
  requireMemoryName('type', to);
  return { kind: 'pointer', to };
}

/** The windows of all ranks of the node: `win.at(rank).field` is an address. */
export function peers<S extends kernel.LayoutSpec>(of: kernel.TypedLayout<S>): kernel.PeersParam<S> {
  requireLayout('layout', of);
  return { kind: 'peers', layout: of };
}

/**
 * A tensor in global memory of which the copy engine (TMA) moves boxes: tiles. The host gives its address, extents and strides.
 * Of rank 3, it is so many matrices one behind the other, and a box lies in one of them.
 */
export function tensorMap<T extends TileName, const R extends TensorRank = 2>(
  of: Tile<T>,
  rank: R = 2 as R,
): kernel.TensorMapParam<T, R> {
  requireTile(of);
  requireInteger('rank', rank, 2, 3);
  return { kind: 'tensorMap', tile: of, rank };
}

/** `length` parameters of one type, reached by constant index; the host sets `name_0`, `name_1`, … */
export function list<const P extends kernel.DeviceParam>(of: P, length: number): kernel.ListParam<P> {
  return { kind: 'list', of, length: requireInteger('length', length, 0, 256) };
}

/** The names under which a host sets a parameter of a kernel. */
export const parameterNames = (name: string, spec: kernel.ParamSpec): readonly string[] =>
  typeof spec === 'object' && spec.kind === 'list'
    ? Array.from({ length: spec.length }, (_, i) => `${name}_${i}`)
    : [name];

// Types that only device functions take: they are inlined, so anything can be handed to them.

/** One rank's window: what `win.at(rank)` gives. */
export function windowOf<S extends kernel.LayoutSpec>(of: kernel.TypedLayout<S>): kernel.WindowParam<S> {
  requireLayout('layout', of);
  return { kind: 'window', layout: of };
}

/** Tiles in shared memory, one behind the other: what `g.shared(tile, n)` gives. */
export function tiles<T extends TileName>(of: Tile<T>): kernel.TilesParam<T> {
  requireTile(of);
  return { kind: 'tiles', tile: of };
}

/** A register array of the caller, which sees what is written to it. Any length, unless one is given. */
export function registers<T extends RegisterName>(of: T, length?: number): kernel.RegistersParam<T> {
  return {
    kind: 'registers',
    of,
    length: length === undefined ? undefined : requireInteger('length', length, 1, 256),
  };
}

/** Declares a parameter that is a record: several values, each with a name. */
export function record<const P extends kernel.DeviceParams>(of: P): kernel.RecordParam<P> {
  return { kind: 'record', of };
}

/** Another device function, with these parameters and this result. */
export function callable<const P extends kernel.DeviceParams, const R extends kernel.DeviceReturn = 'void'>(
  params: P,
  returns: R = 'void' as R,
): kernel.CallableParam<P, R> {
  return { kind: 'callable', params, returns };
}

/** A number, flag or text that the caller knows when the kernel is made: `constant<'bf16' | 'f32'>()`. */
export function constant(): kernel.ConstantParam<number>;
export function constant<T extends kernel.Constant>(): kernel.ConstantParam<T>;
export function constant(): kernel.ConstantParam {
  return { kind: 'constant' };
}

function requireLayout(argument: string, of: Layout): void {
  requireObject(argument, of, 'what layout() gives');
  const isOne =
    typeof of.name === 'string' &&
    Array.isArray(of.fields) &&
    of.fields.every((field) => typeof field === 'object' && field !== null);
  requireThat(isOne, argument, of, 'what layout() gives');
}

function alignUp(offset: number, alignment: number): number {
  return Math.ceil(offset / alignment) * alignment;
}
