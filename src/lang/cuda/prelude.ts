/**
 * The prelude of a printed program: the few C++ types and helpers that it uses, and no others. A helper is found
 * by its C++ name; helpers that exist once per order, scope and type (loads, stores, atomics, waits) are made on
 * demand in memory.ts and added here under a key.
 *
 * The same names exist for two targets: CUDA, where a helper is a thin cover over one PTX instruction, and the
 * host's C++ compiler, where it is the plain definition of what that instruction computes. So both print the same
 * body, and a differential test of the host's program is a test of the printed expressions.
 */
import { HeddleError } from '../../base/errors.js';
import type { Helper } from './helper.js';
import { hostHelpers } from './host-helpers.js';
import { pureHelpers } from './pure-helpers.js';
import { threadHelpers } from './thread-helpers.js';

export type Target = 'cuda' | 'host';

const qualifiers: Readonly<Record<Target, string>> = {
  cuda: 'static __device__ __forceinline__',
  host: 'static inline',
};

const scalars = `using i32 = int;
using u32 = unsigned int;
using u64 = unsigned long long;
using f32 = float;`;

export class Prelude {
  readonly #target: Target;
  /** Keyed texts in the order in which they must be printed. */
  readonly #texts = new Map<string, string>();
  readonly #names = new Set<string>();
  readonly #includes = new Set<string>();

  constructor(target: Target) {
    this.#target = target;
  }

  /** Includes a helper of the tables and returns its name. */
  use(name: string): string {
    if (this.#texts.has(name)) return name;
    const helper = (this.#target === 'host' ? hostHelpers : threadHelpers)[name] ?? pureHelpers[name];
    if (helper === undefined) {
      throw new HeddleError('HEDDLE_PRINT', `no helper '${name}' is known for the ${this.#target} compiler`);
    }
    return this.add(name, name, helper);
  }

  /** Includes a helper made on demand: `key` tells overloads of one `name` apart. */
  add(key: string, name: string, helper: Helper): string {
    if (this.#texts.has(key)) return name;
    for (const need of helper.needs ?? []) this.use(need);
    this.#texts.set(key, helper.text.replaceAll('DEVICE', qualifiers[this.#target]));
    this.#names.add(name);
    return name;
  }

  /** Files that declare foreign functions come first, so that nothing here changes what they say. */
  include(file: string): void {
    this.#includes.add(`#include ${file.startsWith('<') ? file : `"${file}"`}`);
  }

  /** Every C++ name that the prelude defines: the author's names must keep clear of them. */
  get names(): ReadonlySet<string> {
    return this.#names;
  }

  print(): string {
    return [...this.#includes, scalars, ...[...this.#texts.values()].filter((text) => text !== '')].join(
      '\n\n',
    );
  }
}
