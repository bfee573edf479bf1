/**
 * Random programs whose expressions are full of effects: loads, atomics, and device functions that do such things, return early or
 * write registers of their caller. A body is JavaScript, so what it means is what it does when it is called.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { openLibrary } from '../../../src/base/native/index.js';
import { Random } from '../../../src/gpu/sim/random.js';
import { device, entryName, kernel, pointer, printCuda, registers } from '../../../src/lang/index.js';
import { hostCompiler, needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';

const relaxed = "{ order: 'relaxed', scope: 'gpu' }";
const p = pointer('u32');
const r = registers('u32', 3);

/** Device functions: what they take and return, and their bodies. */
const functions = {
  sum: [{ x: 'u32', y: 'u32' }, 'u32', '(g, { x, y }) => (x + y) % 97'],
  steps: [
    { x: 'u32', y: 'u32' },
    'u32',
    `(g, { x, y }) => {
      if (x > y) return x % 31;
      let z = y;
      for (let i = 0; i < 3; i++) {
        if (z > 40) return z;
        z = (z + x + 1) % 61;
      }
      return z;
    }`,
  ],
  take: [
    { p, x: 'u32' },
    'u32',
    `(g, { p, x }) => { const was = g.atomicAdd(p.at(x % 16), 1, ${relaxed}); return (was + x + x) % 97; }`,
  ],
  early: [
    { p, x: 'u32' },
    'u32',
    `(g, { p, x }) => {
      if (x % 3 === 0) { g.store(p.at(1), x); return 4; }
      const was = g.load(p.at(2));
      if (was % 2 === 0) return g.atomicAdd(p.at(2), 3, ${relaxed}) % 97;
      return was % 97;
    }`,
  ],
  turn: [
    { r, x: 'u32' },
    'u32',
    '(g, { r, x }) => { const old = r[0]; r[0] = (r[1] + x) % 97; r[1] = old; return r[0]; }',
  ],
  twice: [{ r, x: 'u32' }, 'u32', '(g, { r, x }) => r[2] + x + x'],
  where: [{ p, x: 'u32' }, p, '(g, { p, x }) => { if (x % 2 === 0) return p.at(x % 8); return p.at(5); }'],
  quiet: [
    { p, x: 'u32' },
    'void',
    '(g, { p, x }) => { if (x > 50) return; g.store(p.at(3), (g.load(p.at(3)) + x) % 97); }',
  ],
} as const;
const bodyOf = (text: string) => new Function(`return ${text}`)();
const using = Object.fromEntries(
  Object.entries(functions).map(([name, [params, returns, text]]) => [
    name,
    device({ name, params, returns }, bodyOf(text)),
  ]),
);

/** The names that a statement may use. Values stay far below 2^32, so that numbers of JavaScript are exact. */
interface Names {
  readonly values: readonly string[];
  readonly lets: readonly string[];
  readonly arrays: readonly string[];
  readonly pointers: readonly string[];
}

class Programs {
  readonly #random: Random;
  #count = 0;

  constructor(seed: number) {
    this.#random = Random.from(`${seed}`);
  }

  #pick<T>(from: readonly T[]): T {
    return from[this.#random.below(from.length)]!;
  }

  text(): string {
    const names: Names = { values: ['a', 'b'], lets: [], arrays: [], pointers: [] };
    const all = Object.keys(functions).join(', ');
    return `(g, { out, a, b }, { ${all} }) => {\n${this.#statements(names, 8, 2)}\n}`;
  }

  #value(names: Names, depth: number, effects = true): string {
    if (depth <= 0) {
      if (names.arrays.length > 0 && this.#random.below(4) === 0)
        return `${this.#pick(names.arrays)}[${this.#random.below(3)}]`;
      return this.#random.below(3) === 0 ? String(this.#random.below(20)) : this.#pick(names.values);
    }
    const some = () => this.#value(names, depth - 1 - this.#random.below(2), effects);
    const pure = () => this.#value(names, depth - 2, false);
    const array = names.arrays.length === 0 ? null : this.#pick(names.arrays);
    const kinds = [
      () => `(${some()} + ${some()})`,
      () => `((${some()} % 97) * (${some()} % 97))`,
      () => `(${some()} % ${2 + this.#random.below(40)})`,
      () => `(${some()} > ${some()} ? ${pure()} : ${pure()})`,
      () => `g.select(g.u32(${some()}) > ${some()}, g.u32(${some()}), ${some()})`,
      () => `sum({ x: ${some()}, y: ${some()} })`,
      ...(effects
        ? [
            () => `g.load(${this.#pointer(names, depth - 1)})`,
            () => `g.atomicAdd(${this.#pointer(names, depth - 1)}, ${some()} % 97, ${relaxed})`,
            () => `steps({ x: ${some()}, y: ${some()} })`,
            () => `${this.#pick(['take', 'early'])}({ p: out, x: ${some()} })`,
            () =>
              array === null ? some() : `${this.#pick(['turn', 'twice'])}({ r: ${array}, x: ${some()} })`,
            () => `[${some()}, ${some()}][${this.#random.below(2)}]`,
            () => `({ a: ${some()}, b: ${some()} }).${this.#pick(['a', 'b'])}`,
          ]
        : []),
    ];
    return this.#pick(kinds)();
  }

  #pointer(names: Names, depth: number): string {
    const some = () => this.#value(names, depth - 1);
    const kinds = [
      () => `out.at(${some()} % 16)`,
      () => `out.at(${some()} % 8).at(${some()} % 8)`,
      () => `where({ p: out, x: ${some()} })`,
      () => (names.pointers.length === 0 ? `out.at(${some()} % 16)` : this.#pick(names.pointers)),
    ];
    return this.#pick(kinds)();
  }

  #statements(given: Names, count: number, depth: number): string {
    let names = given;
    const lines: string[] = [];
    const declare = (kind: keyof Names, letter: string): string => {
      const name = `${letter}${this.#count++}`;
      names = { ...names, [kind]: [...names[kind], name] };
      return name;
    };
    const inner = (more: readonly string[] = []) =>
      this.#statements(
        { ...names, values: [...names.values, ...more] },
        1 + this.#random.below(3),
        depth - 1,
      );
    for (let i = 0; i < count; i++) {
      const value = this.#value(names, 1 + this.#random.below(4));
      const place = this.#pointer(names, 2);
      const effect = this.#pick([
        `g.load(${place})`,
        `g.atomicAdd(${place}, 2, ${relaxed})`,
        `early({ p: out, x: ${value} })`,
        `steps({ x: ${value}, y: 7 })`,
      ]);
      const target = this.#pick([
        ...names.lets,
        ...names.arrays.map((array) => `${array}[${this.#random.below(3)}]`),
        '',
      ]);
      const kind = this.#random.below(11);
      if (kind === 0) lines.push(`const ${declare('values', 'c')} = ${value} % 1009;`);
      else if (kind === 1) lines.push(`const ${declare('values', 'e')} = ${effect};`);
      else if (kind === 2) {
        const name = declare('lets', 'v');
        names = { ...names, values: [...names.values, name] };
        lines.push(`let ${name} = g.u32(${value} % 1009);`);
      } else if (kind === 3)
        lines.push(`const ${declare('arrays', 'r')} = g.registers('u32', 3, ${effect});`);
      else if (kind === 4) lines.push(`const ${declare('pointers', 'p')} = ${place};`);
      else if (kind === 5) lines.push(`g.store(${place}, ${value} % 1009);`);
      else if (kind === 6) lines.push(`quiet({ p: out, x: ${value} });`);
      else if (kind === 7 && target !== '')
        lines.push(`${target} ${this.#pick(['=', '+='])} ${value} % 97;`, `${target} = ${target} % 1009;`);
      else if (kind === 8 && target !== '')
        lines.push(`${target} = ${effect};`, `${target} = ${target} % 1009;`);
      else if (kind === 9 && depth > 0)
        lines.push(`if (${value} % 5 > ${effect} % 3) {`, inner(), '} else {', inner(), '}');
      else if (depth > 0) {
        const name = `i${this.#count++}`;
        const loops = [`let ${name} = ${effect} % 2; ${name} < 3; ${name}++`, `const ${name} of g.unroll(2)`];
        lines.push(`for (${this.#pick(loops)}) {`, inner([name]), '}');
      }
    }
    return lines.join('\n');
  }
}

class Place {
  constructor(
    readonly words: Uint32Array,
    readonly index: number,
  ) {}
  at(by: number): Place {
    return new Place(this.words, this.index + by);
  }
}

/** What the functions of `g` do where one thread runs. */
const g = {
  u32: (x: number) => x,
  select: (test: boolean, then: number, otherwise: number) => (test ? then : otherwise),
  load: ({ words, index }: Place) => words[index]!,
  store({ words, index }: Place, value: number) {
    words[index] = value;
  },
  atomicAdd({ words, index }: Place, value: number) {
    const before = words[index]!;
    words[index] = before + value;
    return before;
  },
  registers: (_: string, length: number, fill: number) => Array<number>(length).fill(fill),
  unroll: (count: number) => Array(count).keys(),
};
const called = Object.fromEntries(
  Object.entries(functions).map(([name, [, , text]]) => [name, (args: object) => bodyOf(text)(g, args)]),
);

const start = () => Uint32Array.from({ length: 16 }, (_, i) => 3 * i);
const inputs = [5, 11] as const;
const folder = temporaryFolder();

test('printed programs do what their bodies do when they are called', needing('c++'), () => {
  const programs = Array.from({ length: 60 }, (_, seed) => {
    const text = new Programs(seed).text();
    const body = bodyOf(text);
    const words = start();
    body(g, { out: new Place(words, 0), a: inputs[0], b: inputs[1] }, called);
    const header = { name: `effects_${seed}`, params: { out: p, a: 'u32', b: 'u32' }, using } as const;
    return { text, words, module: kernel(header, body).ir() };
  });
  const printed = printCuda(
    programs.map(({ module }) => module),
    { lineDirectives: false },
  );
  const own = printed.split('\n\n').filter((part) => !part.includes('asm'));
  const atomic =
    'static inline u32 atomic_add_relaxed_gpu(u32* p, u32 v) { const u32 before = *p; *p += v; return before; }';
  const host = readFileSync(new URL('host.h', import.meta.url), 'utf8');
  const [source, made] = [join(folder, 'effects.cpp'), join(folder, 'effects.so')];
  writeFileSync(source, [host, atomic, ...own].join('\n\n'));
  execFileSync(hostCompiler()!, ['-std=c++17', '-O1', '-w', '-shared', '-fPIC', source, '-o', made]);
  const library = openLibrary([made], 'it was just compiled');
  for (const { text, words, module } of programs) {
    const name = entryName(module);
    const run = library.functions({ [name]: ['void', 'buffer', 'u32', 'u32', 'u32'] })[name]!;
    const out = start();
    run(out, ...inputs, 0);
    expect([...out], `${text}\n${printCuda(module, { lineDirectives: false })}`).toEqual([...words]);
  }
});
