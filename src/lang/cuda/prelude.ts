/**
 * The prelude of a printed program: the few C++ types and helpers that it uses, and no others. Operations bring helpers
 * of their own; the rest are found by their C++ names.
 */
import { HeddleError } from '../../base/errors.js';
import type { Helpers } from '../operations/parts.js';
import { helpers } from './helpers.js';

const qualifiers = 'static __device__ __forceinline__';

const scalars = `using i32 = int;
using u32 = unsigned int;
using u64 = unsigned long long;
using f32 = float;`;

/** Words of C++; not those of PTX, which stand behind a point, nor those of comments. */
const words = /\/\/.*|(?<![.\w])[A-Za-z]\w*/g;
const named = new Map<string, readonly string[]>();

/** The known helpers that a text names, in its order. */
function namedIn(text: string): readonly string[] {
  const found = named.get(text) ?? [...text.match(words)!].filter((word) => Object.hasOwn(helpers, word));
  named.set(text, found);
  return found;
}

export class Prelude implements Helpers {
  /** Texts of helpers, each behind those that it calls. */
  readonly #texts = new Set<string>();
  readonly #names = new Set<string>();
  readonly #includes = new Set<string>();

  use(name: string): string {
    if (!Object.hasOwn(helpers, name)) throw new HeddleError('HEDDLE_PRINT', `no helper '${name}' is known`);
    if (this.#names.has(name)) return name;
    const [text, ...first] = [helpers[name]!].flat();
    for (const other of first) this.use(other);
    return this.#define(name, text!);
  }

  add(text: string): string {
    const [, name = text] = /(?:(?:DEVICE|__device__) [\w*]+|^struct) (\w+)/m.exec(text) ?? [];
    return this.#define(name, text);
  }

  #define(name: string, text: string): string {
    if (this.#texts.has(text)) return name;
    for (const other of namedIn(text)) if (other !== name) this.use(other);
    this.#texts.add(text);
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
    // A text that is one name stands for something that CUDA brings, so there is nothing to print.
    const texts = [...this.#texts].filter((text) => /\W/.test(text));
    return [...this.#includes, scalars, ...texts.map((text) => text.replaceAll('DEVICE', qualifiers))].join(
      '\n\n',
    );
  }
}
