/** Random programs in IR, well typed and terminating, from a seed: pure expressions, lanes, loops, calls. */
import type { BinaryOp, Expr, IrModule, Stmt, Variable } from '../../../src/lang/ir.js';
import type { ValueName } from '../../../src/lang/types.js';
import * as ir from './ir-builder.js';

type Scalar = 'i32' | 'u32' | 'u64' | 'f32' | 'bool';
const scalars: readonly Scalar[] = ['i32', 'u32', 'u64', 'f32', 'bool'];
const storages = ['bf16', 'f16', 'e4m3'] as const;

/** How many values a program writes. */
export const results = 6;

/** Parameters: i32, u32, u64, f32, bool, a pointer to two v16, a pointer to `results` u64. */
export function randomProgram(name: string, seed: number): IrModule {
  return new Generator(seed).program(name);
}

/** The values of types at whose edges programs go wrong. */
export const edges: Readonly<Record<Scalar, readonly (number | bigint | boolean)[]>> = {
  i32: [0, 1, -1, 2, -2, 7, 31, 32, 33, 255, -256, 65535, 2 ** 31 - 1, -(2 ** 31), -(2 ** 31) + 1, 123456789],
  u32: [
    0,
    1,
    2,
    3,
    31,
    32,
    33,
    63,
    64,
    255,
    256,
    65535,
    65536,
    2 ** 31 - 1,
    2 ** 31,
    2 ** 32 - 1,
    0x3f800000,
  ],
  u64: [
    0n,
    1n,
    2n,
    3n,
    63n,
    64n,
    65n,
    255n,
    2n ** 24n + 1n,
    2n ** 32n,
    2n ** 53n + 1n,
    2n ** 63n,
    2n ** 64n - 1n,
  ],
  f32: [
    0,
    -0,
    1,
    -1,
    0.5,
    -1.5,
    2.5,
    3,
    1e-3,
    0.1,
    240,
    448,
    464,
    465,
    -500,
    65504,
    65520,
    1e9,
    -1e9,
    2147483647,
    4294967295,
    1.8446744e19,
    2 ** 128 - 2 ** 104,
    2 ** -126,
    2 ** -149,
    2 ** -14,
    2 ** -24,
    2 ** -9,
    2 ** -10,
    Infinity,
    -Infinity,
    NaN,
  ].map(Math.fround),
  bool: [false, true],
};

export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed | 0;
  }

  /** An integer from 0 to 2^32 - 1 (a mixed Weyl sequence). */
  word(): number {
    this.#state = (this.#state + 0x9e3779b9) | 0;
    let z = this.#state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return (z ^ (z >>> 15)) >>> 0;
  }

  below(n: number): number {
    return this.word() % n;
  }

  pick<T>(from: readonly T[]): T {
    return from[this.below(from.length)]!;
  }

  value(type: Scalar): number | bigint | boolean {
    if (this.below(3) > 0) return this.pick(edges[type]);
    const word = this.word();
    switch (type) {
      case 'i32':
        return word | 0;
      case 'u32':
        return word;
      case 'u64':
        return (BigInt(word) << 32n) | BigInt(this.word());
      case 'f32':
        return new Float32Array(new Uint32Array([word]).buffer)[0]!;
      case 'bool':
        return word % 2 === 0;
    }
  }
}

/** Any scalar as a u64. The bits of a NaN are nobody's promise, so it counts as 0. */
export function word(expr: Expr): Expr {
  const type = expr.type.kind === 'value' ? expr.type.name : 'u64';
  if (type === 'u64') return expr;
  return ir.convert('u64', type === 'f32' ? floatBits(expr) : expr);
}

function floatBits(float: Expr): Expr {
  return ir.select(ir.binary('==', float, float), ir.bits('u32', float), ir.u32(0));
}

class Generator {
  readonly #random: Random;
  #visible: Variable[] = [];
  #names = 0;

  constructor(seed: number) {
    this.#random = new Random(seed);
  }

  program(name: string): IrModule {
    const random = this.#random;
    const params: Variable[] = scalars.map((type) => ir.param(`p_${type}`, ir.value(type)));
    const input = ir.param('input', ir.pointer('v16'));
    const output = ir.param('output', ir.pointer('u64'));
    this.#visible = [...params];
    const body: Stmt[] = [];
    for (const i of [0, 1]) {
      const v = ir.variable(`v${i}`, ir.value('v16'));
      body.push(ir.effect(ir.load(ir.offset(ir.read(input), ir.u32(i))), v));
      this.#visible.push(v);
    }
    for (const type of scalars) {
      const mutable = ir.variable(`m_${type}`, ir.value(type), true);
      body.push(ir.define(mutable, this.#expr(type, 2)));
      this.#visible.push(mutable);
    }
    body.push(...this.#statements(3, false));
    for (let i = 0; i < results; i++) {
      const to = ir.offset(ir.read(output), ir.u32(i));
      body.push(ir.effect(ir.store(to, word(this.#expr(random.pick(scalars), 3)))));
    }
    return ir.module(name, [...params, input, output], body);
  }

  #statements(depth: number, inLoop: boolean): Stmt[] {
    const outer = this.#visible;
    const statements = Array.from({ length: 1 + this.#random.below(4) }, () =>
      this.#random.below(12) === 0 ? this.#call(depth) : [this.#statement(depth, inLoop)],
    ).flat();
    this.#visible = outer;
    return statements;
  }

  #statement(depth: number, inLoop: boolean): Stmt {
    const random = this.#random;
    const choice = random.below(depth > 0 ? 10 : 5);
    if (choice < 2) {
      const assignable = this.#visible.filter((v) => v.mutable);
      const target = random.pick(assignable);
      return ir.assign(target, this.#expr(typeName(target), 3));
    }
    if (choice < 4) {
      const type = random.pick(scalars);
      const init = this.#expr(type, 3);
      // Few names, so that scopes shadow each other.
      const variable = ir.variable(
        random.pick(['x', 'y', 'int', 'load']),
        ir.value(type),
        random.below(2) === 0,
      );
      this.#visible = [...this.#visible, variable];
      return ir.define(variable, init);
    }
    if (choice === 4 && inLoop) {
      return ir.when(this.#expr('bool', 2), [ir.stop(random.pick(['break', 'continue'] as const))]);
    }
    if (choice === 4 || choice === 5) return ir.block();
    if (choice < 8) {
      const test = this.#expr('bool', 3);
      const then = this.#statements(depth - 1, inLoop);
      return ir.when(test, then, random.below(2) === 0 ? this.#statements(depth - 1, inLoop) : []);
    }
    if (choice === 8) {
      const i = ir.variable('i', ir.value('u32'), true);
      this.#visible = [...this.#visible, { ...i, mutable: false }];
      const body = this.#statements(depth - 1, true);
      this.#visible = this.#visible.filter((v) => v.id !== i.id);
      const step = ir.binary('+', ir.read(i), ir.u32(1 + random.below(2)));
      return ir.loop(
        [ir.define(i, ir.u32(0))],
        ir.binary('<', ir.read(i), ir.u32(random.below(5))),
        [ir.assign(i, step)],
        body,
      );
    }
    return ir.block(...this.#statements(depth - 1, inLoop));
  }

  /** An inlined function: it may leave early, also from inside a loop. */
  #call(depth: number): Stmt[] {
    const random = this.#random;
    const outer = this.#visible;
    const type = random.pick(scalars);
    const result = ir.variable(`r${this.#names++}`, ir.value(type));
    const call = ir.call(random.pick(['helper', 'int']), (leave) => {
      const early = (): Stmt =>
        ir.when(this.#expr('bool', 2), [ir.assign(result, this.#expr(type, 2)), leave]);
      const argument = ir.variable('a', ir.value(random.pick(scalars)));
      const before = [ir.define(argument, this.#expr(typeName(argument), 2))];
      this.#visible = [...this.#visible, argument];
      if (depth > 0) before.push(ir.count(ir.u32(random.below(4)), () => [early()]));
      if (depth > 0) before.push(...this.#statements(depth - 1, false));
      return [...before, early(), ir.assign(result, this.#expr(type, 3))];
    });
    this.#visible = [...outer, result];
    return [ir.result(result), call];
  }

  #expr(type: Scalar, depth: number): Expr {
    const random = this.#random;
    if (depth === 0 || random.below(6) === 0) return this.#leaf(type);
    const of = (name: Scalar): Expr => this.#expr(name, depth - 1);
    if (random.below(8) === 0) return ir.select(of('bool'), of(type), of(type));
    switch (type) {
      case 'i32':
      case 'u32':
      case 'u64':
        return this.#integer(type, of, depth);
      case 'f32':
        return this.#float(of, depth);
      case 'bool':
        return this.#bool(of);
    }
  }

  #integer(type: 'i32' | 'u32' | 'u64', of: (name: Scalar) => Expr, depth: number): Expr {
    const random = this.#random;
    switch (random.below(type === 'u32' ? 8 : type === 'i32' ? 7 : 6)) {
      case 0:
      case 1: {
        const op = random.pick<BinaryOp>(['+', '-', '*', '/', '%', '&', '|', '^']);
        return ir.binary(op, of(type), of(type));
      }
      case 2:
        return ir.binary(random.pick<BinaryOp>(['<<', '>>']), of(type), of('u32'));
      case 3:
        return ir.unary(random.pick(['-', '~']), of(type));
      case 4:
        return ir.pure(random.pick(['min', 'max']), of(type), of(type));
      case 5:
        return ir.convert(type, of(random.pick(scalars.filter((name) => name !== type))));
      case 6:
        if (type === 'i32') return ir.bits('i32', of('u32'));
        return ir.pure(random.pick(['popc', 'ffs']), of('u32'));
      default:
        return random.below(2) === 0
          ? floatBits(of('f32'))
          : ir.convert(
              'u32',
              ir.lane(random.pick(['u8', 'u16'] as const), this.#vector(depth - 1), random.below(8)),
            );
    }
  }

  #float(of: (name: Scalar) => Expr, depth: number): Expr {
    const random = this.#random;
    switch (random.below(7)) {
      case 0:
      case 1:
        return ir.binary(random.pick<BinaryOp>(['+', '-', '*', '/']), of('f32'), of('f32'));
      case 2:
        return ir.unary('-', of('f32'));
      case 3:
        return ir.pure(random.pick(['min', 'max']), of('f32'), of('f32'));
      case 4:
        return random.below(3) === 0
          ? ir.pure('rcp', of('f32'))
          : ir.pure('fma', of('f32'), of('f32'), of('f32'));
      case 5: {
        if (random.below(2) === 0) return ir.convert('f32', of(random.pick(['i32', 'u32', 'u64', 'bool'])));
        return ir.bits('f32', of(random.pick(['i32', 'u32'])));
      }
      default: {
        const storage = random.pick(storages);
        if (random.below(2) === 0) return ir.convert('f32', ir.convert(storage, of('f32')));
        return ir.convert('f32', ir.lane(storage, this.#vector(depth - 1), random.below(8)));
      }
    }
  }

  #bool(of: (name: Scalar) => Expr): Expr {
    const random = this.#random;
    switch (random.below(4)) {
      case 0:
        return ir.binary(random.pick<BinaryOp>(['&&', '||', '==', '!=']), of('bool'), of('bool'));
      case 1:
        return ir.unary('!', of('bool'));
      default: {
        const type = random.pick(['i32', 'u32', 'u64', 'f32'] as const);
        return ir.binary(random.pick<BinaryOp>(['<', '<=', '>', '>=', '==', '!=']), of(type), of(type));
      }
    }
  }

  #vector(depth: number): Expr {
    const random = this.#random;
    const known = this.#visible.filter((v) => typeName(v) === ('v16' as ValueName));
    if (known.length > 0 && (depth <= 0 || random.below(2) === 0)) return ir.read(random.pick(known));
    const type = random.pick(['u32', 'i32', 'u64', 'u16', 'u8', ...storages] as const);
    const size = { u32: 4, i32: 4, u64: 8, u16: 2, u8: 1, bf16: 2, f16: 2, e4m3: 1 }[type];
    const mixed = random.below(2) === 0;
    const lanes = Array.from({ length: 16 / size }, () => {
      if (type === 'u32' || type === 'i32' || type === 'u64') return this.#leaf(type);
      if (type === 'u8' || type === 'u16') return this.#leaf('u32');
      return mixed && random.below(2) === 0 ? ir.convert(type, this.#leaf('f32')) : this.#leaf('f32');
    });
    return ir.pack(type, lanes);
  }

  #leaf(type: Scalar): Expr {
    const random = this.#random;
    const known = this.#visible.filter((v) => typeName(v) === type);
    if (known.length > 0 && random.below(4) > 0) return ir.read(random.pick(known));
    return ir.constant(type, random.value(type));
  }
}

function typeName(variable: Variable): Scalar {
  return variable.type.kind === 'value' ? (variable.type.name as Scalar) : 'u64';
}
