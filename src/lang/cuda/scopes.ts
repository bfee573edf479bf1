/**
 * Names in one printed function. The author's names are kept; a name that C++, the prelude or an enclosing scope
 * has already taken gets a number: `x_2`. (C++ could shadow, but `const u32 x = x + 1` would read itself.)
 */
import { HeddleError } from '../../base/errors.js';
import { getOrMake } from '../../base/maps.js';
import type { InlinedCall, Variable } from '../ir.js';
import type { Field, Layout } from '../types.js';

const keywords = `alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class
compl const const_cast constexpr continue decltype default delete do double dynamic_cast else enum explicit export
extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or
or_eq private protected public register reinterpret_cast return short signed sizeof static static_assert static_cast
struct switch template this thread_local throw true try typedef typeid typename union unsigned using virtual void
volatile wchar_t while xor xor_eq
char8_t concept consteval constinit co_await co_return co_yield requires typeof`;
const taken = `i32 u32 u64 f32 HeddlePeers HeddleTensorMap HeddleIndex shared_memory rank threadIdx blockIdx blockDim gridDim warpSize linux unix stdin stdout
stderr math_errhandling alloca assert offsetof min max`;

/**
 * Names that mean something else in every translation unit: words of the language, what the printed text itself uses,
 * and macros. Other names of the headers may be hidden by a variable.
 */
export const reservedNames: ReadonlySet<string> = new Set(`${keywords} ${taken}`.split(/\s+/));

/**
 * Names that may stand as a C++ identifier: JavaScript's `$` and letters beyond ASCII become underscores. None begins with
 * one or has two in a row, for those names belong to compilers.
 */
export function identifier(name: string): string {
  const plain = name
    .replace(/[^A-Za-z0-9_]/g, '_')
    .replace(/^_+/, '')
    .replace(/__+/g, '_');
  if (plain === '') return 'value';
  return /^[0-9]/.test(plain) ? `n${plain}` : plain;
}

/** Macros of the headers that compilers include unasked look like this: NAN, INT_MAX, M_PIf, cudaStreamDefault. */
const macro = /^([A-Z][A-Z0-9]+$|[A-Z][A-Z0-9]*_|cuda[A-Z])/;

/** An identifier for a variable, which no macro replaces. */
function variableName(name: string): string {
  const plain = identifier(name);
  return macro.test(plain) ? plain.toLowerCase() : plain;
}

/** `wanted`, or the first of wanted_2, wanted_3 … that nothing has taken. */
function uniqueName(wanted: string, isTaken: (name: string) => boolean): string {
  const base = variableName(wanted);
  let name = base;
  for (let n = 2; isTaken(name); n++) name = `${base}_${n}`;
  return name;
}

/** The offset constants of the layouts that a program uses: `Window_offset::arrived`. */
export class Offsets {
  readonly #isReserved: (name: string) => boolean;
  readonly #layouts = new Map<Layout, { name: string; fields: Map<Field, string> }>();

  constructor(isReserved: (name: string) => boolean) {
    this.#isReserved = isReserved;
  }

  use(layout: Layout, field: Field): string {
    const newName = (wanted: string, taken: readonly string[]): string =>
      uniqueName(wanted, (n) => this.#isReserved(n) || taken.includes(n));
    const { name, fields } = getOrMake(this.#layouts, layout, () => {
      return { name: newName(`${layout.name}_offset`, this.names), fields: new Map() };
    });
    const ofField = getOrMake(fields, field, () => newName(field.name, [...fields.values()]));
    return `${name}::${ofField}`;
  }

  get names(): readonly string[] {
    return [...this.#layouts.values()].map(({ name }) => name);
  }

  print(): string[] {
    return [...this.#layouts.values()].map(({ name, fields }) => {
      const lines = [...fields].map(([field, text]) => `constexpr u64 ${text} = ${field.offset};`);
      return `namespace ${name} {\n${lines.join('\n')}\n}`;
    });
  }
}

export class Scopes {
  readonly #isReserved: (name: string) => boolean;
  readonly #offsets: Offsets;
  readonly #names = new Map<number, string>();
  readonly #visible = new Set<string>();
  /** The values that each scope adds to them, the innermost last, and for which variable. */
  readonly #scopes: { readonly name: string; readonly id: number }[][] = [[]];
  readonly #labels = new Map<InlinedCall, string>();

  constructor(isReserved: (name: string) => boolean, offsets: Offsets) {
    this.#isReserved = isReserved;
    this.#offsets = offsets;
  }

  enter(): void {
    this.#scopes.push([]);
  }

  leave(): void {
    for (const { name } of this.#scopes.pop() ?? []) this.#visible.delete(name);
  }

  /** A name for a variable that starts to live in the innermost scope. */
  declare(variable: Variable): string {
    const name = uniqueName(
      variable.name,
      (candidate) => this.#isReserved(candidate) || this.#visible.has(candidate),
    );
    this.#visible.add(name);
    this.#scopes.at(-1)!.push({ name, id: variable.id });
    this.#names.set(variable.id, name);
    return name;
  }

  /** The names of the given variables that are in scope here. */
  namesOf(ids: ReadonlySet<number>): readonly string[] {
    const visible = this.#scopes.flat().filter(({ id }) => ids.has(id));
    return visible.map(({ name }) => name);
  }

  replace(variable: Variable, text: string): void {
    this.#names.set(variable.id, text);
  }

  nameOf(variable: Variable): string {
    const name = this.#names.get(variable.id);
    if (name === undefined) {
      throw new HeddleError('HEDDLE_PRINT', `the IR uses '${variable.name}' where it is not declared`);
    }
    return name;
  }

  offsetOf(layout: Layout, field: Field): string {
    return this.#offsets.use(layout, field);
  }

  /** The label behind the block of a call; labels are names of the whole function. */
  labelOf(call: InlinedCall): string {
    return getOrMake(this.#labels, call, () => {
      const others = [...this.#labels.values()];
      return uniqueName(`after_${call.name}`, (name) => this.#isReserved(name) || others.includes(name));
    });
  }
}
