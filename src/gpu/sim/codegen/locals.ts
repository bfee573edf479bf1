/**
 * Where a kernel's variables live in generated JavaScript: every variable is one or more plain locals, so nothing is
 * allocated while a kernel runs. A v16 is four integers, a pointer a buffer and a byte offset, a register array one
 * local an element.
 *
 * Locals are reused once their block of the kernel has ended: a suspended generator keeps all of its function's
 * locals, and a machine keeps a hundred thousand generators.
 */
import type { Field, IrType, ValueName, Variable } from '../../../lang/index.js';
import { type LocalKind, LocalPool } from '../text.js';

export type Slot =
  | { readonly kind: 'scalar'; readonly name: string }
  | { readonly kind: 'v16'; readonly words: readonly [string, string, string, string] }
  | { readonly kind: 'pointer'; readonly buffer: string; readonly offset: string }
  | { readonly kind: 'peers'; readonly buffers: string; readonly offsets: string }
  | { readonly kind: 'tensorMap'; readonly name: string }
  /** `array`: the typed array that the elements are in, where operations take them all at once. */
  | {
      readonly kind: 'registers';
      readonly elements: readonly (readonly string[])[];
      readonly array: string | null;
    };

/** The field that a pointer is of. */
export interface Bounds {
  /** The offset at which it begins, as something cheap to repeat. */
  readonly start: string;
  readonly field: Field;
  /** Whether the pointer was moved, or widened, behind the index that was held against the field's shape. */
  readonly strays: boolean;
}

function localKind(name: ValueName): LocalKind {
  if (name === 'f32') return 'f';
  if (name === 'u64') return 'n';
  if (name === 'bool') return 'b';
  return 'i';
}

export class Locals {
  readonly #pool = new LocalPool();
  readonly #slots = new Map<number, Slot>();
  readonly #bounds = new Map<number, Bounds>();
  #scopes: string[][] = [[]];
  #temporaries: string[] = [];
  /** Locals that nobody uses any more, while none may be used again. */
  #kept: string[] | null = null;

  constructor(
    /** Register arrays that operations take whole: each is one typed array. */
    readonly arrays: readonly Variable[],
  ) {}

  arrayOf(variable: Variable): string {
    const { array } = this.slot(variable, 'registers');
    if (array === null) throw new Error(`${variable.name} is in no array`);
    return array;
  }

  /** Whether locals keep what they hold from now on. */
  keep(keeps: boolean): void {
    const kept = this.#kept ?? [];
    this.#kept = keeps ? kept : null;
    if (!keeps) this.#give(kept);
  }

  #give(names: readonly string[]): void {
    if (this.#kept !== null) this.#kept.push(...names);
    else this.#pool.give(names);
  }

  #own(kind: LocalKind): string {
    const name = this.#pool.take(kind);
    this.#scopes.at(-1)!.push(name);
    return name;
  }

  enterScope(): void {
    this.#scopes.push([]);
  }

  leaveScope(): void {
    this.#give(this.#scopes.pop()!);
  }

  /** A local until the end of the statement. */
  temporary(kind: LocalKind): string {
    const name = this.#pool.take(kind);
    this.#temporaries.push(name);
    return name;
  }

  endStatement(): void {
    this.#give(this.#temporaries);
    this.#temporaries = [];
  }

  declare(variable: Variable): Slot {
    const slot = this.#make(variable.type, this.arrays.includes(variable));
    this.#slots.set(variable.id, slot);
    return slot;
  }

  #make(type: IrType, inArray: boolean): Slot {
    switch (type.kind) {
      case 'value':
        if (type.name !== 'v16') return { kind: 'scalar', name: this.#own(localKind(type.name)) };
        return { kind: 'v16', words: [this.#own('i'), this.#own('i'), this.#own('i'), this.#own('i')] };
      case 'pointer':
        return { kind: 'pointer', buffer: this.#own('q'), offset: this.#own('i') };
      case 'tensorMap':
        return { kind: 'tensorMap', name: this.#own('q') };
      case 'peers':
        return { kind: 'peers', buffers: this.#own('q'), offsets: this.#own('q') };
      case 'registers': {
        if (inArray) {
          const array = this.#own('q');
          const elements = Array.from({ length: type.length }, (_, i) => [`${array}[${i}]`]);
          return { kind: 'registers', elements, array };
        }
        const of = localKind(type.of);
        const words = type.of === 'v16' ? 4 : 1;
        const element = () => Array.from({ length: words }, () => this.#own(of));
        return { kind: 'registers', elements: Array.from({ length: type.length }, element), array: null };
      }
      case 'void':
        throw new Error('a variable cannot be void');
    }
  }

  bind(variable: Variable, slot: Slot): void {
    this.#slots.set(variable.id, slot);
  }

  /** A pointer that keeps its value is of this field; the local in which to keep where that begins. */
  bindBounds(variable: Variable, { field, strays }: Bounds): string {
    const start = this.#own('i');
    this.#bounds.set(variable.id, { start, field, strays });
    return start;
  }

  boundsOf(variable: Variable): Bounds | null {
    return this.#bounds.get(variable.id) ?? null;
  }

  slot<K extends Slot['kind']>(variable: Variable, kind: K): Extract<Slot, { kind: K }> {
    const slot = this.#slots.get(variable.id);
    if (slot?.kind !== kind) throw new Error(`variable ${variable.name} is not a ${kind} here`);
    return slot as Extract<Slot, { kind: K }>;
  }

  declaration(): string {
    return this.#pool.declaration();
  }
}

/** The locals of a slot in the order in which arguments are passed. */
export function localsOf(slot: Slot): readonly string[] {
  switch (slot.kind) {
    case 'scalar':
    case 'tensorMap':
      return [slot.name];
    case 'v16':
      return slot.words;
    case 'pointer':
      return [slot.buffer, slot.offset];
    case 'peers':
      return [slot.buffers, slot.offsets];
    case 'registers':
      return slot.elements.flat();
  }
}
