/**
 * The prelude of a printed program: the few C++ types and helpers that it uses, and no others. Operations bring helpers
 * of their own; the rest are found here by their C++ names.
 */
import { HeddleError } from '../../base/errors.js';
import type { Helpers, NamedHelper } from '../operations/parts.js';
import { pureHelpers } from './pure-helpers.js';
import { threadHelpers } from './thread-helpers.js';

const qualifiers = 'static __device__ __forceinline__';

const scalars = `using i32 = int;
using u32 = unsigned int;
using u64 = unsigned long long;
using f32 = float;`;

export class Prelude implements Helpers {
  /** Keyed texts in the order in which they must be printed. */
  readonly #texts = new Map<string, string>();
  readonly #names = new Set<string>();
  readonly #includes = new Set<string>();

  use(name: string): string {
    if (this.#texts.has(name)) return name;
    const helper = threadHelpers[name] ?? pureHelpers[name];
    if (helper === undefined) throw new HeddleError('HEDDLE_PRINT', `no helper '${name}' is known`);
    return this.add({ name, ...helper });
  }

  add({ name, text, needs = [] }: NamedHelper, key = name): string {
    if (this.#texts.has(key)) return name;
    for (const need of needs) this.use(need);
    this.#texts.set(key, text.replaceAll('DEVICE', qualifiers));
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
