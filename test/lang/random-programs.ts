/**
 * Random programs in the kernel language, as text, each with what it must compute. The expectation is worked out
 * here in BigInt and Math, from the program as it is written and not from the IR, so that the lowering and every
 * back end can be tested against it.
 */
import { Random } from '../../src/gpu/sim/random.js';
import { type Kernel, kernel, pointer } from '../../src/lang/index.js';
import { edges } from './cuda/edges.js';

export type ScalarName = 'i32' | 'u32' | 'u64' | 'f32' | 'bool';
type Scalar = number | bigint | boolean;
type Environment = Map<string, Scalar>;

export interface RandomProgram {
  readonly seed: number;
  /** The text of `(g, p) => { … }`. */
  readonly text: string;
  /** Arguments for the scalar parameters a, b (u32), c, d (i32), e (u64), f, h (f32), q (bool). */
  readonly inputs: Readonly<Record<string, Scalar>>;
  /** What must be in `out` (u32) afterwards, from its first element. */
  readonly out: readonly number[];
  /** What must be in `floats` (f32). A NaN equals any NaN. */
  readonly floats: readonly number[];
}

const inputTypes = {
  a: 'u32',
  b: 'u32',
  c: 'i32',
  d: 'i32',
  e: 'u64',
  f: 'f32',
  h: 'f32',
  q: 'bool',
} as const;

/** The header of every random program. */
export const programParams = { out: pointer('u32'), floats: pointer('f32'), ...inputTypes } as const;

/** The program as a kernel, as if its text had stood in a source file. */
export function programKernel(program: RandomProgram): Kernel {
  const body = new Function(`return ${program.text}`)();
  return kernel({ name: `random_${program.seed}`, params: programParams }, body);
}

/** What a thread reads that is narrower than its registers, as text, and what that is. */
const narrow: Readonly<Record<string, number>> = {
  'g.load(bytes.at(1))': 0x81,
  'g.load(halves.at(1))': 0x8001,
  'g.load(sharedBytes.at(2))': 0x82,
  'g.load(sharedBytes)': 0x80,
  'g.load(sharedHalves.at(3))': 0x8003,
  'small[1]': 0xff,
  "g.lane(vector, 'u8', 3)": 0x83,
  "g.lane(vector, 'u16', 0)": 0x8180,
  'g.f32(g.load(floats16))': -2.5,
  'g.f32(g.load(sharedFloats8))': -1.75,
};

/** A random program whose operands are such reads as well, as a kernel; and the arguments that it needs besides. */
export function narrowProgram(seed: number, size: number) {
  const program = new Generator(seed, narrow).program(size);
  const prologue = `const sharedBytes = g.shared('u8', 4); const sharedHalves = g.shared('u16', 4); const sharedFloats8 = g.shared('e4m3', 1);
  for (let i = g.u32(0); i < 4; i++) { g.store(sharedBytes.at(i), 0x80 + i); g.store(sharedHalves.at(i), 0x8000 + i); }
  g.store(sharedFloats8, g.e4m3(-1.75));
  const small = g.registers('u16', 2, 0xff); const vector = g.pack('u8', [${Array.from({ length: 16 }, (_, i) => 0x80 + i)}]);`;
  const text = program.text
    .replace('{ out,', '{ bytes, halves, floats16, out,')
    .replace('=> {', `=> { ${prologue}`);
  const body = new Function(`return ${text}`)();
  const params = {
    ...programParams,
    bytes: pointer('u8'),
    halves: pointer('u16'),
    floats16: pointer('bf16'),
  };
  const memory = {
    bytes: Uint8Array.from([0x80, 0x81, 0x82, 0x83]),
    halves: Uint16Array.from([0x8000, 0x8001, 0x8002, 0x8003]),
    floats16: Uint16Array.from([0xc020]),
  };
  return { ...program, module: kernel({ name: `narrow_${seed}`, params }, body).ir(), memory };
}

/** The same, with its scalar inputs known to the compiler: almost everything folds. */
export function foldedKernel(program: RandomProgram): Kernel {
  const { out, floats, ...scalars } = programParams;
  const constants = Object.entries(scalars).map(([name, type]) => {
    return `const ${name} = ${constantText(type, program.inputs[name]!)};`;
  });
  const names = Object.keys(scalars).map((name) => `, ${name}`);
  const text = program.text.replace(names.join(''), '').replace('=> {', `=> {\n  ${constants.join(' ')}`);
  const body = new Function(`return ${text}`)();
  return kernel({ name: `folded_${program.seed}`, params: { out, floats } }, body);
}

/** A constant with its width. */
function constantText(type: ScalarName, value: Scalar): string {
  if (type === 'bool') return String(value);
  if (type === 'u64') return `g.u64(${value}n)`;
  if (Number.isNaN(value)) return '(g.f32(0) / g.f32(0))';
  if (!Number.isFinite(value)) return `(g.f32(${Math.sign(Number(value))}) / g.f32(0))`;
  return `g.${type}(${Object.is(value, -0) ? '-0' : value})`;
}

/** Elements that `out` and `floats` must have room for. */
export const programCapacity = 64;

interface Code {
  readonly text: string;
  eval(env: Environment): Scalar;
}
interface Name {
  readonly name: string;
  readonly type: ScalarName;
  readonly mutable: boolean;
}

const types: readonly ScalarName[] = ['u32', 'i32', 'u64', 'f32', 'bool'];

export function randomProgram(seed: number, size = 12): RandomProgram {
  return new Generator(seed).program(size);
}

type Operation<T, R = T> = readonly [op: string, compute: (a: T, b: T) => R];
const comparisons: readonly Operation<Scalar, boolean>[] = [
  ['===', (a, b) => a === b],
  ['!==', (a, b) => a !== b],
  ['<', (a, b) => a < b],
  ['<=', (a, b) => a <= b],
  ['>', (a, b) => a > b],
  ['>=', (a, b) => a >= b],
];
const ofFloats: readonly Operation<number>[] = [
  ['+', (a, b) => a + b],
  ['-', (a, b) => a - b],
  ['*', (a, b) => a * b],
  ['/', (a, b) => a / b],
];
const ofIntegers: readonly Operation<bigint>[] = [
  ['+', (a, b) => a + b],
  ['-', (a, b) => a - b],
  ['*', (a, b) => a * b],
  ['/', (a, b) => (b === 0n ? -1n : a / b)],
  ['%', (a, b) => (b === 0n ? a : a % b)],
  ['&', (a, b) => a & b],
  ['|', (a, b) => a | b],
  ['^', (a, b) => a ^ b],
];

/** What is left of a whole number in so many bits. */
function wrapped(type: 'u32' | 'i32' | 'u64', x: bigint): Scalar {
  if (type === 'u64') return BigInt.asUintN(64, x);
  return Number(type === 'u32' ? BigInt.asUintN(32, x) : BigInt.asIntN(32, x));
}

/** Whether it loads: that never stands on one side of an operator only. */
const reads = ({ text }: Code): boolean => text.includes('g.load');

class Generator {
  readonly #random: Random;
  #names: Name[] = Object.entries(inputTypes).map(([name, type]) => ({ name, type, mutable: false }));
  #count = 0;
  readonly #seed: number;
  readonly #reads: Readonly<Record<string, number>>;

  constructor(seed: number, reads: Readonly<Record<string, number>> = {}) {
    this.#seed = seed;
    this.#random = Random.from(`${seed}`);
    this.#reads = reads;
    for (const name of Object.keys(reads))
      this.#names.push({ name, type: name.startsWith('g.f32') ? 'f32' : 'u32', mutable: false });
  }

  program(size: number): RandomProgram {
    const inputs = Object.fromEntries(
      Object.entries(inputTypes).map(([name, type]) => [name, this.#value(type)]),
    );
    const statements = Array.from({ length: size }, () => this.#statement(2));
    const results = this.#names.filter((name) => !(name.name in inputs) && !(name.name in this.#reads));
    const stores = { out: 0, floats: 0 };
    const tail = results.map(({ name, type }) => {
      if (type === 'f32') return `g.store(floats.at(${stores.floats++}), ${name});`;
      const words = type === 'u64' ? [`g.u32(${name})`, `g.u32(${name} >> 32n)`] : [`g.u32(${name})`];
      return words.map((word) => `g.store(out.at(${stores.out++}), ${word});`).join('\n  ');
    });
    const text = `(g, { out, floats, ${Object.keys(inputTypes).join(', ')} }) => {\n  ${[
      ...statements.map((statement) => statement.text),
      ...tail,
    ].join('\n  ')}\n}`;
    const env: Environment = new Map(Object.entries({ ...inputs, ...this.#reads }));
    for (const statement of statements) statement.run(env);
    const out: number[] = [];
    const floats: number[] = [];
    for (const { name, type } of results) {
      const value = env.get(name)!;
      if (type === 'f32') floats.push(Number(value));
      else if (type === 'u64') out.push(Number(BigInt(value) & 0xffffffffn), Number(BigInt(value) >> 32n));
      else out.push(Number(BigInt.asUintN(32, BigInt(value))));
    }
    return { seed: this.#seed, text, inputs, out, floats };
  }

  // Choices

  #below(n: number): number {
    return this.#random.below(n);
  }
  #pick<T>(from: readonly T[]): T {
    return from[this.#below(from.length)]!;
  }

  /** Edge cases half the time. */
  #value(type: ScalarName): Scalar {
    const word = this.#random.bits();
    if (type === 'bool') return word % 2 === 1;
    if (this.#below(2) === 0) return this.#pick<number | bigint>(edges[type]);
    if (type === 'u64') return (BigInt(word) << 32n) | BigInt(this.#random.bits());
    if (type === 'f32') return Math.fround(this.#pick([(word | 0) / 1024, word / 7]));
    return this.#pick(type === 'u32' ? [word, word >>> 20] : [word | 0, (word | 0) >> 20]);
  }

  #literal(type: ScalarName): Code {
    const value = this.#value(type);
    return { text: constantText(type, value), eval: () => value };
  }

  // Expressions

  #expression(type: ScalarName, depth: number): Code {
    const known = this.#names.filter((name) => name.type === type);
    if (depth <= 0 || this.#below(6) === 0) {
      if (known.length === 0 || this.#below(4) === 0) return this.#literal(type);
      const { name } = this.#pick(known);
      return { text: name, eval: (env) => env.get(name)! };
    }
    const sub = (of: ScalarName): Code => this.#expression(of, depth - 1);
    if (this.#below(8) === 0) {
      const [test, then, otherwise] = [sub('bool'), sub(type), sub(type)];
      const select = this.#below(2) === 0 || reads(then) || reads(otherwise);
      return {
        text: select
          ? `g.select(${test.text}, ${then.text}, ${otherwise.text})`
          : `(${test.text} ? ${then.text} : ${otherwise.text})`,
        eval: (env) => (test.eval(env) ? then.eval(env) : otherwise.eval(env)),
      };
    }
    if (type === 'bool') return this.#boolean(depth);
    if (type === 'f32') return this.#float(depth);
    return this.#integer(type, depth);
  }

  #binary(op: string, left: Code, right: Code, compute: (a: Scalar, b: Scalar) => Scalar): Code {
    return {
      text: `(${left.text} ${op} ${right.text})`,
      eval: (env) => compute(left.eval(env), right.eval(env)),
    };
  }
  #call(name: string, args: readonly Code[], compute: (...values: Scalar[]) => Scalar): Code {
    return {
      text: `g.${name}(${args.map((arg) => arg.text).join(', ')})`,
      eval: (env) => compute(...args.map((arg) => arg.eval(env))),
    };
  }

  #boolean(depth: number): Code {
    const sub = (of: ScalarName): Code => this.#expression(of, depth - 1);
    const kind = this.#below(4);
    switch (kind) {
      case 0: {
        const arg = sub('bool');
        return { text: `!${arg.text}`, eval: (env) => !arg.eval(env) };
      }
      case 1:
      case 2: {
        const [a, b] = [sub('bool'), sub('bool')];
        if (reads(b)) return this.#binary('===', a, b, (x, y) => x === y);
        return kind === 1
          ? this.#binary('&&', a, b, (x, y) => Boolean(x) && Boolean(y))
          : this.#binary('||', a, b, (x, y) => Boolean(x) || Boolean(y));
      }
      default: {
        const type = this.#pick(types.filter((one) => one !== 'bool'));
        const [op, compare] = this.#pick(comparisons);
        return this.#binary(op, sub(type), sub(type), compare);
      }
    }
  }

  #float(depth: number): Code {
    const sub = (of: ScalarName): Code => this.#expression(of, depth - 1);
    const round = (x: number): number => Math.fround(x);
    switch (this.#below(8)) {
      case 0:
        return this.#call('f32', [sub('u32')], (x) => round(Number(x)));
      case 1:
        return this.#call('f32', [sub('i32')], (x) => round(Number(x)));
      case 2:
        return this.#call('max', [sub('f32'), sub('f32')], (x, y) => greater(Number(x), Number(y)));
      case 3:
        return this.#call('rcp', [sub('f32')], (x) => round(1 / Number(x)));
      case 4: {
        const arg = sub('f32');
        return {
          text: `(-${arg.text.startsWith('-') ? `(${arg.text})` : arg.text})`,
          eval: (env) => -Number(arg.eval(env)),
        };
      }
      default: {
        const [op, compute] = this.#pick(ofFloats);
        return this.#binary(op, sub('f32'), sub('f32'), (a, b) => round(compute(Number(a), Number(b))));
      }
    }
  }

  #integer(type: 'u32' | 'i32' | 'u64', depth: number): Code {
    const sub = (of: ScalarName): Code => this.#expression(of, depth - 1);
    const wrap = (x: bigint): Scalar => wrapped(type, x);
    switch (this.#below(9)) {
      case 0:
        return this.#conversion(type, depth);
      case 1: {
        const bits = type === 'u64' ? 63n : 31n;
        const op = this.#pick(type === 'u32' ? (['<<', '>>', '>>>'] as const) : (['<<', '>>'] as const));
        return this.#binary(op, sub(type), sub(type), (a, b) => {
          const by = BigInt(b) & bits;
          return wrap(op === '<<' ? BigInt(a) << by : BigInt(a) >> by);
        });
      }
      case 2: {
        const name = this.#pick(['min', 'max'] as const);
        return this.#call(name, [sub(type), sub(type)], (a, b) => (a! < b! === (name === 'min') ? a! : b!));
      }
      case 3: {
        const op = this.#pick(['-', '~'] as const);
        const arg = sub(type);
        return {
          text: `(${op}${arg.text.startsWith('-') ? `(${arg.text})` : arg.text})`,
          eval: (env) => wrap(op === '-' ? -BigInt(arg.eval(env)) : ~BigInt(arg.eval(env))),
        };
      }
      case 4:
        if (type === 'u32') {
          const name = this.#pick(['popc', 'ffs'] as const);
          return this.#call(name, [sub('u32')], (x) => bitCount(name, Number(x)));
        }
        return this.#conversion(type, depth);
      default: {
        const [op, compute] = this.#pick(ofIntegers);
        return this.#binary(op, sub(type), sub(type), (a, b) => wrap(compute(BigInt(a), BigInt(b))));
      }
    }
  }

  #conversion(type: 'u32' | 'i32' | 'u64', depth: number): Code {
    const from = this.#pick(types.filter((one) => one !== type && !(type === 'u64' && one === 'bool')));
    const limit = {
      u32: [0n, 2n ** 32n - 1n],
      i32: [-(2n ** 31n), 2n ** 31n - 1n],
      u64: [0n, 2n ** 64n - 1n],
    }[type];
    const wrap = (x: bigint): Scalar => wrapped(type, x);
    return this.#call(type, [this.#expression(from, depth - 1)], (value) => {
      if (from !== 'f32') return wrap(BigInt(value!));
      const number = Number(value);
      if (Number.isNaN(number)) return wrap(0n);
      const [low, high] = limit as [bigint, bigint];
      if (number <= Number(low)) return wrap(low);
      return wrap(number >= Number(high) ? high : BigInt(Math.trunc(number)));
    });
  }

  // Statements

  #statement(depth: number): { readonly text: string; run(env: Environment): void } {
    const kind = this.#below(10);
    const mutables = this.#names.filter((name) => name.mutable);
    if (depth > 0 && kind === 0 && mutables.length > 0) return this.#conditional(depth);
    if (depth > 0 && kind === 1 && mutables.length > 0) return this.#loop(depth);
    if (kind <= 4 && mutables.length > 0) return this.#assignment(this.#pick(mutables));
    return this.#declaration();
  }

  #declaration() {
    const type = this.#pick(types);
    const mutable = this.#below(3) > 0;
    const init = this.#expression(type, 3);
    const name = `v${this.#count++}`;
    this.#names.push({ name, type, mutable });
    return {
      text: `${mutable ? 'let' : 'const'} ${name} = ${init.text};`,
      run: (env: Environment) => void env.set(name, init.eval(env)),
    };
  }

  #assignment({ name, type }: Name) {
    const value = this.#expression(type, 3);
    if (type === 'bool' || this.#below(2) === 0) {
      return {
        text: `${name} = ${value.text};`,
        run: (env: Environment) => void env.set(name, value.eval(env)),
      };
    }
    const self: Code = { text: name, eval: (env) => env.get(name)! };
    const sum = this.#binary('+', self, value, (a, b) => {
      if (type === 'f32') return Math.fround(Number(a) + Number(b));
      return wrapped(type, BigInt(a) + BigInt(b));
    });
    return {
      text: `${name} += ${value.text};`,
      run: (env: Environment) => void env.set(name, sum.eval(env)),
    };
  }

  /** Statements of an inner scope: what they declare is not known outside. */
  #block(depth: number) {
    const outer = this.#names;
    this.#names = [...outer];
    const statements = Array.from({ length: 1 + this.#below(3) }, () => this.#statement(depth - 1));
    this.#names = outer;
    return {
      text: `{ ${statements.map((statement) => statement.text).join(' ')} }`,
      run(env: Environment) {
        for (const statement of statements) statement.run(env);
      },
    };
  }

  #conditional(depth: number) {
    const test = this.#expression('bool', 2);
    const then = this.#block(depth);
    const otherwise = this.#block(depth);
    return {
      text: `if (${test.text}) ${then.text} else ${otherwise.text}`,
      run: (env: Environment) => (test.eval(env) ? then : otherwise).run(env),
    };
  }

  #loop(depth: number) {
    const name = `i${this.#count++}`;
    const times = 1 + this.#below(4);
    const outer = this.#names;
    const unroll = this.#below(2) === 0;
    this.#names = unroll ? outer : [...outer, { name, type: 'u32', mutable: false }];
    const body = this.#block(depth);
    this.#names = outer;
    return {
      text: unroll
        ? `for (const ${name} of g.unroll(${times})) ${body.text}`
        : `for (let ${name} = 0; ${name} < ${times}; ${name}++) ${body.text}`,
      run(env: Environment) {
        for (let i = 0; i < times; i++) {
          env.set(name, i);
          body.run(env);
        }
      },
    };
  }
}

/** A NaN loses against a number. */
function greater(x: number, y: number): number {
  if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) ? y : x;
  return Math.max(x, y);
}

function bitCount(name: 'popc' | 'ffs', x: number): number {
  const bits = x.toString(2).padStart(32, '0');
  if (name === 'popc') return bits.replaceAll('0', '').length;
  return bits.includes('1') ? 32 - bits.lastIndexOf('1') : 0;
}
