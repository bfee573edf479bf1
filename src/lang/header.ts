/**
 * What a kernel's header is made of: memory layouts and the types of run-time parameters. These are ordinary
 * host values; the same `layout` is used by the host, the kernels and the checker's reports (law 5).
 */
import { ArgumentError, requireInteger, requireObject, requireText } from '../errors/index.js';
import type {
  FieldSpec,
  LayoutSpec,
  ListParam,
  PeersParam,
  PointerParam,
  ScalarParam,
  TypedLayout,
} from './kernel.js';
import type { MemoryName } from './language.js';
import { byteSize, type Field, type Layout, sectionAlignment } from './types.js';

const identifier = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** Is this a name that both TypeScript and CUDA accept? */
export const isIdentifier = (name: unknown): name is string =>
  typeof name === 'string' && identifier.test(name);

export const isMemoryName = (name: unknown): name is MemoryName =>
  typeof name === 'string' && Object.hasOwn(byteSize, name);

function requireMemoryName(argument: string, type: unknown): void {
  if (!isMemoryName(type))
    throw new ArgumentError(argument, type, `one of ${Object.keys(byteSize).join(', ')}`);
}

/** `length` elements of one type: a section of a layout. A section of none takes no space. */
export function field<T extends MemoryName>(type: T, length: number): FieldSpec<T> {
  requireMemoryName('type', type);
  return { type, length: requireInteger('length', length, 0, 2 ** 40) };
}

/**
 * Places sections one after another, each on a cache line of its own. A list of fields becomes `name_0`,
 * `name_1`, …; a body reaches them as `win.at(rank).name[0]`.
 */
export function layout<const S extends LayoutSpec>(name: string, spec: S): TypedLayout<S> {
  if (typeof name !== 'string' || name === '') throw new ArgumentError('name', name, 'a name for people');
  requireObject('spec', spec, "fields by name: { flags: field('u32', 8) }");
  const fields: Field[] = [];
  let offset = 0;
  const place = (fieldName: string, of: FieldSpec): void => {
    requireObject(`${name}.${fieldName}`, of, "a field: field('u32', 8)");
    const { type, length } = field(of.type, of.length);
    if (fields.some((other) => other.name === fieldName)) {
      throw new ArgumentError(`${name}.${fieldName}`, 'a second field of that name', 'unique');
    }
    fields.push({ name: fieldName, type, length, offset });
    offset = alignUp(offset + length * byteSize[type], sectionAlignment);
  };
  for (const [fieldName, fieldSpec] of Object.entries(spec)) {
    if (!isIdentifier(fieldName)) throw new ArgumentError('field name', fieldName, 'an identifier');
    if (isFieldList(fieldSpec)) {
      for (const [i, item] of fieldSpec.entries()) place(`${fieldName}_${i}`, item);
    } else place(fieldName, fieldSpec);
  }
  return { name, fields, bytes: offset, spec };
}

/** One section of a layout, by name; `index` for a list of fields. */
export function section<S extends LayoutSpec>(
  of: TypedLayout<S>,
  name: keyof S & string,
  index?: number,
): Field {
  requireLayout('layout', of);
  requireText('field', name);
  if (index !== undefined) requireInteger('index', index, 0, 2 ** 31);
  const found = findField(of, index === undefined ? name : `${name}_${index}`);
  if (found === undefined) {
    throw new ArgumentError(
      'field',
      index === undefined ? name : `${name}[${index}]`,
      `a field of ${of.name}`,
    );
  }
  return found;
}

export const findField = (of: Layout, name: string): Field | undefined =>
  of.fields.find((candidate) => candidate.name === name);

export const isFieldList = (of: FieldSpec | readonly FieldSpec[]): of is readonly FieldSpec[] =>
  Array.isArray(of);

/** A parameter that points to elements of one type in device memory. */
export function pointer<T extends MemoryName>(to: T): PointerParam<T> {
  requireMemoryName('type', to);
  return { kind: 'pointer', to };
}

/** The windows of all ranks of the node: `win.at(rank).field` is an address. */
export function peers<S extends LayoutSpec>(of: TypedLayout<S>): PeersParam<S> {
  requireLayout('layout', of);
  return { kind: 'peers', layout: of };
}

/** `length` parameters of one type, reached by constant index; the host sets `name_0`, `name_1`, … */
export function list<P extends ScalarParam | PointerParam>(of: P, length: number): ListParam<P> {
  return { kind: 'list', of, length: requireInteger('length', length, 0, 256) };
}

function requireLayout(argument: string, of: Layout): void {
  requireObject(argument, of, 'what layout() gives');
  if (!Array.isArray(of.fields)) throw new ArgumentError(argument, of, 'what layout() gives');
}

function alignUp(offset: number, alignment: number): number {
  return Math.ceil(offset / alignment) * alignment;
}
