/** Instructions that only compute. */
import { type PtxOperand, type PtxType, ptxBytes } from '../../../lang/ptx/index.js';
import type { HalfOperation, HalfType } from './arithmetic.js';
import { type Instruction, type Pair, unsigned } from './code.js';
import { add64, type Handler, less64 } from './memory.js';

const isFloat = (type: PtxType): boolean => type.startsWith('f') || type.startsWith('bf');
const isSigned = (type: PtxType): boolean => type.startsWith('s');
const isWide = (type: PtxType): boolean => ptxBytes[type] === 8;

const directions = ['rn', 'rz', 'rm', 'rp', 'rna'] as const;

export const values: Readonly<Record<string, Handler>> = {
  mov,
  add: arithmetic,
  sub: arithmetic,
  mul: arithmetic,
  min: arithmetic,
  max: arithmetic,
  neg: arithmetic,
  abs: arithmetic,
  fma: arithmetic,
  mad: arithmetic,
  div: arithmetic,
  rem: arithmetic,
  mul24: (x) => product24(x, false),
  mad24: (x) => product24(x, true),
  sad,
  rcp: (x) => approximate(x, (a) => `1 / ${a}`),
  sqrt: (x) => approximate(x, (a) => `Math.sqrt(${a})`),
  rsqrt: (x) => approximate(x, (a) => `1 / Math.sqrt(${a})`),
  ex2: (x) => approximate(x, (a) => `2 ** ${a}`),
  lg2: (x) => approximate(x, (a) => `Math.log2(${a})`),
  sin: (x) => approximate(x, (a) => `Math.sin(${a})`),
  cos: (x) => approximate(x, (a) => `Math.cos(${a})`),
  tanh: (x) => approximate(x, (a) => `Math.tanh(${a})`),
  copysign(x) {
    const type = x.type();
    const call = (a: string, b: string): string => `copysign(${a}, ${b})`;
    if (type === 'f64') x.setDouble(x.operand(0), call(x.double(x.operand(1)), x.double(x.operand(2))));
    else x.setSingle(x.operand(0), call(x.single(x.operand(1)), x.single(x.operand(2))));
  },
  testp: testNumber,
  and: bitwise,
  or: bitwise,
  xor: bitwise,
  not: bitwise,
  cnot(x) {
    x.type();
    x.setWord(x.operand(0), `${x.word(x.operand(1))} === 0 ? 1 : 0`);
  },
  lop3(x) {
    x.type();
    const [a, b, c] = [1, 2, 3].map((i) => x.word(x.operand(i)));
    x.setWord(x.operand(0), `lop3(${a}, ${b}, ${c}, ${x.word(x.operand(4))})`);
  },
  shl: shift,
  shr: shift,
  shf: funnel,
  setp: compare,
  set: compare,
  selp: select,
  slct(x) {
    const [type, by] = x.types();
    const test = by === 'f32' ? x.single(x.operand(3)) : x.word(x.operand(3), 's32');
    chosen(x, type!, `${test} >= 0`);
  },
  popc: (x) =>
    count(
      x,
      (a) => `popc(${a})`,
      ([a, b]) => `popc(${a}) + popc(${b})`,
    ),
  clz: (x) =>
    count(
      x,
      (a) => `clz32(${a})`,
      ([a, b]) => `${b} === 0 ? 32 + clz32(${a}) : clz32(${b})`,
    ),
  bfind: findBit,
  brev(x) {
    if (isWide(x.type())) {
      const [low, high] = x.pair(x.operand(1));
      x.setPair(x.operand(0), `brev(${high})`, x.simple(`brev(${low})`, 'i'));
    } else x.setWord(x.operand(0), `brev(${x.word(x.operand(1))})`);
  },
  fns: (x) => {
    x.type();
    x.setWord(x.operand(0), `fns(${[1, 2, 3].map((i) => x.word(x.operand(i))).join(', ')})`);
  },
  bfe(x) {
    const type = x.type();
    const [at, length] = [x.word(x.operand(2)), x.word(x.operand(3))];
    if (isWide(type)) {
      const low = x.simple(
        `bfe64(${x.pair(x.operand(1)).join(', ')}, ${at}, ${length}, ${isSigned(type)})`,
        'i',
      );
      x.setPair(x.operand(0), low, 'up[0]');
    } else x.setWord(x.operand(0), `bfe(${x.word(x.operand(1))}, ${at}, ${length}, ${isSigned(type)})`);
  },
  bfi: insert,
  prmt(x) {
    x.type();
    const [a, b, by] = [1, 2, 3].map((i) => x.word(x.operand(i)));
    x.setWord(x.operand(0), `prmt(${a}, ${b}, ${by})`);
  },
  cvt: convert,
};

function mov(x: Instruction): void {
  const [to, from] = [x.operand(0), x.operand(1)];
  if (x.has('pred')) {
    x.setPredicate(to, x.predicate(from));
    return;
  }
  const type = x.type();
  if (to.kind === 'list') {
    unpack(x, to.elements, from, type);
    return;
  }
  if (from.kind === 'list') {
    pack(x, to, from.elements);
    return;
  }
  if (type === 'b128') {
    x.setQuad(to, x.quad(from));
    return;
  }
  const kept = x.alike(to, from);
  if (kept !== null) x.setLocal(to, x.local(from, kept), 'moved');
  else if (isWide(type)) {
    const [low, high] = x.pair(from, 'bits');
    x.setPair(to, low, high, 'bits');
  } else x.setWord(to, x.word(from, type, 'bits'), type, 'bits');
}

/** The words of some registers together, the lowest first. */
function joined(x: Instruction, elements: readonly PtxOperand[], bits: number): string[] {
  if (bits === 64) return elements.flatMap((one) => [...x.pair(one)]);
  const values = elements.map((one) => x.word(one));
  if (bits === 32) return values;
  const each = 32 / bits;
  const words: string[] = [];
  for (let i = 0; i < values.length; i += each)
    words.push(
      values
        .slice(i, i + each)
        .map((value, n) => `(${value} & ${2 ** bits - 1}) << ${bits * n}`)
        .join(' | '),
    );
  return words;
}

function bitsOfRegister(x: Instruction, operand: PtxOperand): number {
  if (operand.kind !== 'register' || operand.type === 'pred') x.refuse('a register must stand there');
  return 8 * ptxBytes[operand.type];
}

function pack(x: Instruction, to: PtxOperand, elements: readonly PtxOperand[]): void {
  const all = bitsOfRegister(x, to);
  const words = joined(x, elements, all / elements.length);
  if (all === 128) {
    x.setQuad(to, words);
    return;
  }
  if (all === 64) x.setPair(to, `${words[0]}`, `${words[1]}`);
  else x.setWord(to, words[0]!);
}

function unpack(x: Instruction, to: readonly PtxOperand[], from: PtxOperand, type: PtxType): void {
  const all = 8 * ptxBytes[type];
  const bits = all / to.length;
  const words =
    from.kind === 'list'
      ? joined(x, from.elements, all / from.elements.length)
      : all === 128
        ? x.quad(from)
        : all === 64
          ? x.pair(from)
          : [x.word(from)];
  const held = words.map((word) => x.simple(word, 'i'));
  to.forEach((register, i) => {
    if (register.kind === 'sink') return;
    if (bits === 64) x.setPair(register, held[2 * i]!, held[2 * i + 1]!);
    else {
      const word = held[Math.floor((i * bits) / 32)]!;
      const at = (i * bits) % 32;
      x.setWord(register, bits === 32 ? word : `${word} >>> ${at} & ${2 ** bits - 1}`);
    }
  });
}

function arithmetic(x: Instruction): void {
  const type = x.name === 'mul' || x.name === 'mad' ? x.types().at(-1)! : x.type();
  if (x.has('cc')) x.refuse('carries are not kept');
  if (type === 'f16' || type === 'bf16' || type === 'f16x2' || type === 'bf16x2') halves(x, type);
  else if (isFloat(type)) floats(x, type === 'f64');
  else if (isWide(type)) longs(x, type);
  else integers(x, type);
}

function halves(x: Instruction, type: 'f16' | 'bf16' | 'f16x2' | 'bf16x2'): void {
  x.has('rn');
  const of = type.replace('x2', '') as HalfType;
  if (x.has('ftz')) x.refuse('16-bit floats are not flushed to zero');
  x.has('noftz');
  const op = x.name === 'mad' ? 'fma' : (x.name as HalfOperation);
  const operands = x.operands.slice(1).map((one) => x.word(one));
  while (operands.length < 3) operands.push('0');
  x.setWord(
    x.operand(0),
    `${type.endsWith('x2') ? 'halfTwo' : 'halfOne'}('${of}', '${op}', ${operands.join(', ')})`,
  );
}

function floats(x: Instruction, isDouble: boolean): void {
  const mode = x.among(...directions) ?? 'rn';
  const flush = x.has('ftz');
  const saturate = x.has('sat');
  // An approximate division is one that is right here.
  if (x.name === 'div' && x.among('approx', 'full') !== null && isDouble) x.refuse('it is not known of f64');
  const keepsNaN = x.has('NaN');
  const read = (index: number): string => {
    const text = isDouble ? x.double(x.operand(index)) : x.single(x.operand(index));
    return flush ? `ftz(${text})` : text;
  };
  const round = (text: string): string => (isDouble ? text : `fround(${text})`);
  let result: string;
  if (mode !== 'rn') {
    if (isDouble) x.refuse(`'.${mode}' is not known of f64`);
    result = rounded(x, mode, read);
  } else {
    switch (x.name) {
      case 'add':
        result = round(`${read(1)} + ${read(2)}`);
        break;
      case 'sub':
        result = round(`${read(1)} - ${read(2)}`);
        break;
      case 'mul':
        result = round(`${read(1)} * ${read(2)}`);
        break;
      case 'div':
        result = round(`${read(1)} / ${read(2)}`);
        break;
      case 'fma':
      case 'mad':
        result = `${isDouble ? 'fma64' : 'fma'}(${read(1)}, ${read(2)}, ${read(3)})`;
        break;
      case 'neg':
        result = `-${read(1)}`;
        break;
      case 'abs':
        result = `Math.abs(${read(1)})`;
        break;
      case 'min':
      case 'max':
        result = `f${x.name}(${read(1)}, ${read(2)})`;
        if (keepsNaN) result = `Math.${x.name}(${read(1)}, ${read(2)})`;
        if (x.operands.length > 3) result = `${keepsNaN ? 'Math.' : 'f'}${x.name}(${result}, ${read(3)})`;
        break;
      default:
        x.refuse('it is not known of floats');
    }
  }
  if (flush) result = `ftz(${result})`;
  if (saturate) result = `sat(${result})`;
  if (isDouble) x.setDouble(x.operand(0), result);
  else x.setSingle(x.operand(0), result);
}

/** f32 towards zero, or up, or down. */
function rounded(x: Instruction, mode: string, read: (index: number) => string): string {
  const [a, b] = [x.short(read(1), 'f'), x.short(read(2), 'f')];
  switch (x.name) {
    case 'add':
    case 'sub': {
      const other = x.name === 'add' ? b : x.simple(`-${b}`, 'f');
      const sum = x.simple(`${a} + ${other}`, 'f');
      return `directed(${sum}, lost(${a}, ${other}, ${sum}), '${mode}')`;
    }
    case 'mul':
      return `directed(${a} * ${b}, 0, '${mode}')`;
    case 'fma': {
      const product = x.simple(`${a} * ${b}`, 'f');
      const c = x.short(read(3), 'f');
      const sum = x.simple(`${product} + ${c}`, 'f');
      return `directed(${sum}, lost(${product}, ${c}, ${sum}), '${mode}')`;
    }
    default:
      x.refuse(`'.${mode}' is not known of it`);
  }
}

function approximate(x: Instruction, of: (a: string) => string): void {
  x.has('approx');
  x.has('rn');
  const flush = x.has('ftz');
  const type = x.type();
  if (type === 'f64') {
    x.setDouble(x.operand(0), of(x.double(x.operand(1))));
    return;
  }
  if (type !== 'f32') {
    if ((x.name !== 'ex2' && x.name !== 'tanh') || !['f16', 'f16x2', 'bf16', 'bf16x2'].includes(type))
      x.refuse(`'.${type}' is not known of it`);
    const call = type.endsWith('x2') ? 'halfTwo' : 'halfOne';
    x.setWord(
      x.operand(0),
      `${call}('${type.replace('x2', '')}', '${x.name}', ${x.word(x.operand(1))}, 0, 0)`,
    );
    return;
  }
  const a = x.single(x.operand(1));
  const result = `fround(${of(flush ? `ftz(${a})` : a)})`;
  x.setSingle(x.operand(0), flush ? `ftz(${result})` : result);
}

/** 16 and 32 bits. */
function integers(x: Instruction, type: PtxType): void {
  const read = (index: number): string => x.word(x.operand(index), type);
  const to = x.operand(0);
  const signed = isSigned(type);
  const isShort = ptxBytes[type] === 2;
  const whole = (text: string): string => (signed ? text : isShort ? text : unsigned(text));
  if (x.has('sat')) {
    if (type !== 's32' || (x.name !== 'add' && x.name !== 'sub')) x.refuse("'.sat' is not known of it");
    const sum = x.simple(`${read(1)} ${x.name === 'add' ? '+' : '-'} ${read(2)}`, 'f');
    x.setWord(to, `${sum} > 2147483647 ? 2147483647 : ${sum} < -2147483648 ? -2147483648 : ${sum}`);
    return;
  }
  switch (x.name) {
    case 'add':
      x.setWord(to, `${read(1)} + ${read(2)} | 0`);
      return;
    case 'sub':
      x.setWord(to, `${read(1)} - ${read(2)} | 0`);
      return;
    case 'neg':
      x.setWord(to, `-${read(1)} | 0`);
      return;
    case 'abs':
      x.setWord(to, `Math.abs(${read(1)}) | 0`);
      return;
    case 'min':
    case 'max': {
      const [a, b] = [x.short(read(1), 'i'), x.short(read(2), 'i')];
      x.setWord(to, `${whole(a)} ${x.name === 'min' ? '<' : '>'} ${whole(b)} ? ${a} : ${b}`);
      return;
    }
    case 'div':
    case 'rem':
      x.setWord(to, `${signed ? 'i' : 'u'}${x.name}(${read(1)}, ${read(2)})`);
      return;
    case 'mul':
    case 'mad':
      products(x, type);
      return;
    default:
      x.refuse('it is not known of integers');
  }
}

function products(x: Instruction, type: PtxType): void {
  const part = x.among('lo', 'hi', 'wide');
  const read = (index: number): string => x.word(x.operand(index), type);
  const signed = isSigned(type);
  const adds = x.name === 'mad';
  const to = x.operand(0);
  if (part === null) x.refuse('it says no part of the product');
  if (ptxBytes[type] === 2) {
    const product = `imul(${read(1)}, ${read(2)})`;
    // The third operand of a wide product has 32 bits.
    const sum = adds ? ` + ${part === 'wide' ? x.word(x.operand(3)) : read(3)}` : '';
    x.setWord(to, part === 'hi' ? `(${product} >> 16)${sum}` : `${product}${sum} | 0`);
    return;
  }
  if (part === 'wide') {
    const wide = wideProduct(x, x.operand(1), x.operand(2), signed);
    const [low, high] = adds ? add64(x, wide, x.pair(x.operand(3))) : wide;
    x.setPair(to, low, high);
    return;
  }
  const product =
    part === 'lo' ? `imul(${read(1)}, ${read(2)})` : `${signed ? 's' : 'u'}mulh(${read(1)}, ${read(2)})`;
  x.setWord(to, adds ? `${product} + ${read(3)} | 0` : product);
}

/** 64 bits of two words. */
function wideProduct(x: Instruction, a: PtxOperand, b: PtxOperand, signed: boolean): Pair {
  const by = x.word(b);
  const power = b.kind === 'integer' ? b.value.toString(2).length - 1 : 0;
  if (b.kind === 'integer' && b.value > 1n && b.value < 1n << 31n && b.value === 1n << BigInt(power)) {
    const left = x.word(a);
    return [`(${left} << ${power})`, `(${left} ${signed ? '>>' : '>>>'} ${32 - power})`];
  }
  if (b.kind === 'integer' && b.value > 0n && b.value < 1n << 20n) {
    // A double is exact.
    const product = x.simple(`${signed ? x.word(a) : unsigned(x.word(a))} * ${by}`, 'f');
    const low = x.simple(`${product} | 0`, 'i');
    return [low, signed ? `Math.floor(${product} / 4294967296) | 0` : `${product} / 4294967296 | 0`];
  }
  const [left, right] = [x.short(x.word(a), 'i'), x.short(by, 'i')];
  const low = x.simple(`imul(${left}, ${right})`, 'i');
  return [low, `${signed ? 's' : 'u'}mulh(${left}, ${right})`];
}

function product24(x: Instruction, adds: boolean): void {
  if (x.among('lo', 'hi') !== 'lo') x.refuse('only its lower half is known');
  const signed = isSigned(x.type());
  const read = (index: number): string => `(${x.word(x.operand(index))} << 8 ${signed ? '>>' : '>>>'} 8)`;
  const product = `imul(${read(1)}, ${read(2)})`;
  x.setWord(x.operand(0), adds ? `${product} + ${x.word(x.operand(3))} | 0` : product);
}

function sad(x: Instruction): void {
  const type = x.type();
  if (isWide(type)) x.refuse('64 bits are not known of it');
  const read = (index: number): string =>
    isSigned(type) ? x.word(x.operand(index), type) : unsigned(x.word(x.operand(index), type));
  x.setWord(x.operand(0), `Math.abs(${read(1)} - ${read(2)}) + ${x.word(x.operand(3), type)} | 0`);
}

function longs(x: Instruction, type: PtxType): void {
  const to = x.operand(0);
  const a = x.pair(x.operand(1));
  const signed = isSigned(type);
  const b = (): Pair => x.pair(x.operand(2));
  const set = ([low, high]: Pair): void => x.setPair(to, low, high);
  switch (x.name) {
    case 'add':
      set(add64(x, a, b()));
      return;
    case 'sub':
      set(sub64(x, a, b()));
      return;
    case 'neg':
      set(sub64(x, ['0', '0'], a));
      return;
    case 'abs': {
      const negated = sub64(x, ['0', '0'], a);
      const high = x.simple(negated[1], 'i');
      const isNegative = x.simple(`${a[1]} < 0`, 'b');
      set([`${isNegative} ? ${negated[0]} : ${a[0]}`, `${isNegative} ? ${high} : ${a[1]}`]);
      return;
    }
    case 'min':
    case 'max': {
      const other = b();
      const isLess = x.simple(less64(a, other, signed), 'b');
      const [first, second] = x.name === 'min' ? [a, other] : [other, a];
      set([`${isLess} ? ${first[0]} : ${second[0]}`, `${isLess} ? ${first[1]} : ${second[1]}`]);
      return;
    }
    case 'div':
    case 'rem': {
      const low = x.simple(`${x.name}64(${[...a, ...b()].join(', ')}, ${signed})`, 'i');
      set([low, 'up[0]']);
      return;
    }
    case 'mul':
    case 'mad': {
      const part = x.among('lo', 'hi');
      if (part === null) x.refuse('it says no part of the product');
      const call = part === 'lo' ? 'mul64' : 'mulHigh64';
      const low = x.simple(`${call}(${[...a, ...b()].join(', ')}${part === 'lo' ? '' : `, ${signed}`})`, 'i');
      const product: Pair = [low, x.simple('up[0]', 'i')];
      set(x.name === 'mul' ? product : add64(x, product, x.pair(x.operand(3))));
      return;
    }
    default:
      x.refuse('it is not known of 64 bits');
  }
}

function sub64(x: Instruction, a: Pair, b: Pair): Pair {
  const low = x.simple(`${a[0]} - ${b[0]} | 0`, 'i');
  return [low, `${a[1]} - ${b[1]} - (${unsigned(a[0])} < ${unsigned(b[0])} | 0) | 0`];
}

const operators = { and: '&', or: '|', xor: '^' } as const;

function bitwise(x: Instruction): void {
  const to = x.operand(0);
  if (x.has('pred')) {
    const a = x.predicate(x.operand(1));
    if (x.name === 'not') x.setPredicate(to, `!${a}`);
    else {
      const b = x.predicate(x.operand(2));
      x.setPredicate(to, `${a} ${{ and: '&&', or: '||', xor: '!==' }[x.name]!} ${b}`);
    }
    return;
  }
  const type = x.type();
  if (x.name === 'not') {
    if (isWide(type)) {
      const [low, high] = x.pair(x.operand(1));
      x.setPair(to, `~${low}`, `~${high}`);
    } else x.setWord(to, `~${x.word(x.operand(1))}`);
    return;
  }
  const operator = operators[x.name as keyof typeof operators];
  if (isWide(type)) {
    const [a, b] = [x.pair(x.operand(1)), x.pair(x.operand(2))];
    x.setPair(to, `${a[0]} ${operator} ${b[0]}`, `${a[1]} ${operator} ${b[1]}`);
  } else x.setWord(to, `${x.word(x.operand(1))} ${operator} ${x.word(x.operand(2))}`);
}

function shift(x: Instruction): void {
  const type = x.type();
  const by = x.operand(2);
  const left = x.name === 'shl';
  const signed = isSigned(type);
  const to = x.operand(0);
  if (isWide(type)) {
    const [low, high] = x.pair(x.operand(1));
    if (by.kind === 'integer' && by.value > 0n && by.value < 64n) {
      const [lower, upper] = shifted(low, high, Number(by.value), left, signed);
      x.setPair(to, lower, upper);
      return;
    }
    const call = left
      ? `shl64(${low}, ${high}, ${x.word(by)})`
      : `shr64(${low}, ${high}, ${x.word(by)}, ${signed})`;
    const lower = x.simple(call, 'i');
    x.setPair(to, lower, 'up[0]');
    return;
  }
  const a = x.word(x.operand(1), type);
  const bits = 8 * ptxBytes[type];
  const operator = left ? '<<' : signed ? '>>' : '>>>';
  const most = signed && !left ? `${a} >> 31` : '0';
  if (by.kind === 'integer') {
    const n = Number(BigInt.asUintN(32, by.value));
    x.setWord(
      to,
      n >= bits && !(signed && !left)
        ? '0'
        : n > 31
          ? most
          : `${a} ${operator} ${n}${operator === '>>>' ? ' | 0' : ''}`,
    );
    return;
  }
  const n = x.short(x.word(by), 'i');
  x.setWord(to, `${unsigned(n)} > 31 ? ${most} : ${a} ${operator} ${n}${operator === '>>>' ? ' | 0' : ''}`);
}

function shifted(low: string, high: string, n: number, left: boolean, signed: boolean): Pair {
  const right = signed ? '>>' : '>>>';
  if (left) {
    if (n === 32) return ['0', low];
    return n > 32
      ? ['0', `${low} << ${n - 32}`]
      : [`${low} << ${n}`, `${high} << ${n} | ${low} >>> ${32 - n}`];
  }
  const fill = signed ? `${high} >> 31` : '0';
  if (n === 32) return [high, fill];
  return n > 32
    ? [`${high} ${right} ${n - 32} | 0`, fill]
    : [`${low} >>> ${n} | ${high} << ${32 - n}`, `${high} ${right} ${n} | 0`];
}

function funnel(x: Instruction): void {
  const left = x.among('l', 'r') === 'l';
  const clamps = x.among('clamp', 'wrap') === 'clamp';
  x.type();
  const [a, b] = [x.word(x.operand(1)), x.word(x.operand(2))];
  const by = x.short(x.word(x.operand(3)), 'i');
  const n = x.simple(clamps ? `${unsigned(by)} > 32 ? 32 : ${by}` : `${by} & 31`, 'i');
  x.setWord(x.operand(0), left ? `funnel(${a}, ${b}, 32 - ${n})` : `funnel(${a}, ${b}, ${n})`);
}

const comparisons = [
  'eq',
  'ne',
  'lt',
  'le',
  'gt',
  'ge',
  'lo',
  'ls',
  'hi',
  'hs',
  'equ',
  'neu',
  'ltu',
  'leu',
  'gtu',
  'geu',
  'num',
  'nan',
] as const;
type Comparison = (typeof comparisons)[number];

const signs: Readonly<Record<string, string>> = {
  ...{ eq: '===', ne: '!==', lt: '<', le: '<=', gt: '>', ge: '>=' },
  ...{ lo: '<', ls: '<=', hi: '>', hs: '>=' },
};

function compare(x: Instruction): void {
  const how = x.among(...comparisons);
  if (how === null) x.refuse('it compares in no way that is known');
  const also = x.among('and', 'or', 'xor');
  const flush = x.has('ftz');
  const types = x.types();
  const type = types.at(-1)!;
  const [a, b] = [x.operand(1), x.operand(2)];
  const test = tested(x, how, type, a, b, flush);
  const third = also === null ? null : x.predicate(x.operand(3));
  const operator = { and: '&&', or: '||', xor: '!==' };
  const join = (one: string): string => (third === null ? one : `(${one}) ${operator[also!]} ${third}`);
  const to = x.operand(0);
  if (x.name === 'set') {
    const result = join(test);
    if (types[0] === 'f32') x.setSingle(to, `${result} ? 1 : 0`);
    else if (types.length > 1 && ptxBytes[types[0]!] <= 4 && type !== 'f16x2')
      x.setWord(to, `${result} ? -1 : 0`);
    else x.refuse('such a result is not known of it');
    return;
  }
  if (to.kind !== 'pair') {
    x.setPredicate(to, join(test));
    return;
  }
  const held = x.simple(test, 'b');
  const [first, second] = [x.simple(join(held), 'b'), x.simple(join(`!${held}`), 'b')];
  x.setPredicate(to.first, first);
  x.setPredicate(to.second, second);
}

function tested(
  x: Instruction,
  how: Comparison,
  type: PtxType,
  a: PtxOperand,
  b: PtxOperand,
  flush: boolean,
): string {
  if (type === 'f16' || type === 'bf16') {
    const read = (one: PtxOperand): string => x.simple(`${type}ToF32(${x.word(one)})`, 'f');
    return ordered(how, read(a), read(b));
  }
  if (isFloat(type)) {
    if (type === 'f16x2' || type === 'bf16x2') x.refuse('pairs are not compared');
    const read = (one: PtxOperand): string => {
      const text = type === 'f64' ? x.double(one) : x.single(one);
      return x.short(flush ? `ftz(${text})` : text, 'f');
    };
    return ordered(how, read(a), read(b));
  }
  const sign = signs[how];
  if (sign === undefined) x.refuse(`'.${how}' is not known of integers`);
  if (!isWide(type)) {
    const [left, right] = [x.word(a, type), x.word(b, type)];
    const compares = isSigned(type) || how === 'eq' || how === 'ne' || ptxBytes[type] < 4;
    return compares ? `${left} ${sign} ${right}` : `${unsigned(left)} ${sign} ${unsigned(right)}`;
  }
  const [left, right] = [x.pair(a), x.pair(b)];
  if (sign === '===') return `${left[0]} === ${right[0]} && ${left[1]} === ${right[1]}`;
  if (sign === '!==') return `${left[0]} !== ${right[0]} || ${left[1]} !== ${right[1]}`;
  const signed = isSigned(type);
  if (sign === '<') return less64(left, right, signed);
  if (sign === '>') return less64(right, left, signed);
  return sign === '<=' ? `!(${less64(right, left, signed)})` : `!(${less64(left, right, signed)})`;
}

/** Floats: false where one is no number, or true where the comparison ends in u. */
function ordered(how: Comparison, a: string, b: string): string {
  switch (how) {
    case 'num':
      return `${a} === ${a} && ${b} === ${b}`;
    case 'nan':
      return `${a} !== ${a} || ${b} !== ${b}`;
    case 'ne':
      return `${a} < ${b} || ${a} > ${b}`;
    case 'neu':
      return `${a} !== ${b}`;
    case 'equ':
      return `!(${a} < ${b} || ${a} > ${b})`;
    case 'ltu':
      return `!(${a} >= ${b})`;
    case 'leu':
      return `!(${a} > ${b})`;
    case 'gtu':
      return `!(${a} <= ${b})`;
    case 'geu':
      return `!(${a} < ${b})`;
    default:
      return `${a} ${signs[how]!} ${b}`;
  }
}

function testNumber(x: Instruction): void {
  const how = x.among('finite', 'infinite', 'number', 'notanumber', 'normal', 'subnormal');
  const type = x.type();
  const a = x.short(type === 'f64' ? x.double(x.operand(1)) : x.single(x.operand(1)), 'f');
  const least = type === 'f64' ? '2.2250738585072014e-308' : '1.1754943508222875e-38';
  const tests = {
    finite: `Number.isFinite(${a})`,
    infinite: `Math.abs(${a}) === Infinity`,
    number: `${a} === ${a}`,
    notanumber: `${a} !== ${a}`,
    normal: `Number.isFinite(${a}) && Math.abs(${a}) >= ${least}`,
    subnormal: `${a} !== 0 && Math.abs(${a}) < ${least}`,
  };
  if (how === null) x.refuse('it tests nothing that is known');
  x.setPredicate(x.operand(0), tests[how]);
}

function select(x: Instruction): void {
  const type = x.type();
  chosen(x, type, x.predicate(x.operand(3)));
}

function chosen(x: Instruction, type: PtxType, test: string): void {
  const [to, a, b] = [x.operand(0), x.operand(1), x.operand(2)];
  const kept = x.alike(to, a, b);
  if (kept !== null) x.setLocal(to, `${test} ? ${x.local(a, kept)} : ${x.local(b, kept)}`, 'moved');
  else if (isWide(type)) {
    const [yes, no] = [x.pair(a, 'bits'), x.pair(b, 'bits')];
    x.setPair(to, `${test} ? ${yes[0]} : ${no[0]}`, `${test} ? ${yes[1]} : ${no[1]}`, 'bits');
  } else x.setWord(to, `${test} ? ${x.word(a, type, 'bits')} : ${x.word(b, type, 'bits')}`, type, 'bits');
}

function count(x: Instruction, word: (a: string) => string, pair: (a: Pair) => string): void {
  const text = isWide(x.type()) ? pair(x.pair(x.operand(1))) : word(x.word(x.operand(1)));
  x.setWord(x.operand(0), text);
}

function insert(x: Instruction): void {
  const type = x.type();
  const [at, length] = [x.operand(3), x.operand(4)];
  const rest = `${x.word(at)}, ${x.word(length)}`;
  const to = x.operand(0);
  if (!isWide(type)) {
    x.setWord(to, `bfi(${x.word(x.operand(1))}, ${x.word(x.operand(2))}, ${rest})`);
    return;
  }
  const [from, into] = [x.pair(x.operand(1)), x.pair(x.operand(2))];
  if (at.kind === 'integer' && length.kind === 'integer' && at.value < 64n && length.value <= 64n) {
    const mask = BigInt.asUintN(64, BigInt.asUintN(Number(length.value), -1n) << at.value);
    const moved = at.value === 0n ? from : shifted(from[0], from[1], Number(at.value), true, false);
    const merged = (i: 0 | 1): string => {
      const bits = Number(BigInt.asIntN(32, mask >> BigInt(32 * i)));
      if (bits === 0) return into[i];
      return bits === -1 ? moved[i] : `${into[i]} & ${~bits} | (${moved[i]}) & ${bits}`;
    };
    x.setPair(to, merged(0), merged(1));
    return;
  }
  const low = x.simple(`bfi64(${[...from, ...into].join(', ')}, ${rest})`, 'i');
  x.setPair(to, low, 'up[0]');
}

function findBit(x: Instruction): void {
  const shiftAmount = x.has('shiftamt');
  const type = x.type();
  const to = x.operand(0);
  if (isWide(type)) {
    const [low, high] = x.pair(x.operand(1));
    const [a, b] = isSigned(type)
      ? [x.simple(`${low} ^ ${high} >> 31`, 'i'), x.simple(`${high} ^ ${high} >> 31`, 'i')]
      : [low, high];
    const at = `${b} !== 0 ? 63 - clz32(${b}) : ${a} !== 0 ? 31 - clz32(${a}) : -1`;
    const held = x.simple(at, 'i');
    x.setWord(to, shiftAmount ? `${held} < 0 ? -1 : 63 - ${held}` : held);
    return;
  }
  const a = x.short(x.word(x.operand(1)), 'i');
  const bits = isSigned(type) ? x.simple(`${a} ^ ${a} >> 31`, 'i') : a;
  x.setWord(to, shiftAmount ? `${bits} === 0 ? -1 : clz32(${bits})` : `31 - clz32(${bits})`);
}

const limits: Readonly<Record<string, readonly [number, number]>> = {
  u8: [0, 255],
  s8: [-128, 127],
  u16: [0, 65535],
  s16: [-32768, 32767],
  u32: [0, 4294967295],
  s32: [-2147483648, 2147483647],
};

function convert(x: Instruction): void {
  if (x.has('e4m3x2')) {
    small(x);
    return;
  }
  const [to, from] = x.types();
  if (to === undefined || from === undefined) x.refuse('it names no two types that are known');
  if (isFloat(from)) {
    if (isFloat(to)) floatToFloat(x, to, from);
    else floatToInteger(x, to, from);
  } else if (isFloat(to)) integerToFloat(x, to, from);
  else integerToInteger(x, to, from);
}

function small(x: Instruction): void {
  const [other] = x.types();
  x.has('rn');
  const saturates = x.has('satfinite');
  const [to, a] = [x.operand(0), x.operand(1)];
  if (other === 'f32' && saturates) {
    x.setWord(to, `f32ToE4m3(${x.single(a)}) << 8 | f32ToE4m3(${x.single(x.operand(2))})`);
  } else if (other === 'f16x2' && of(x, 1) === 'f16x2') {
    const pair = x.short(x.word(a), 'i');
    x.setWord(to, `e4m3ToF16(${pair} & 255) | e4m3ToF16(${pair} >>> 8 & 255) << 16`);
  } else if (other === 'f16x2' && saturates) {
    const pair = x.short(x.word(a), 'i');
    x.setWord(to, `f32ToE4m3(f16ToF32(${pair} & 65535)) | f32ToE4m3(f16ToF32(${pair} >>> 16)) << 8`);
  } else x.refuse('that conversion of e4m3 is not simulated');
}

/** The type that stands first: what it converts to. */
const of = (x: Instruction, nth: number): string =>
  x.of.parts.filter((part) => part.endsWith('x2') || /^[fbsu]+\d+$/.test(part))[nth - 1] ?? '';

function floatToFloat(x: Instruction, to: PtxType, from: PtxType): void {
  const whole = x.among('rni', 'rzi', 'rmi', 'rpi');
  const mode = x.among(...directions);
  const flush = x.has('ftz');
  const saturate = x.has('sat');
  const relu = x.has('relu');
  const operand = x.operand(1);
  if (to === 'f16x2' || to === 'bf16x2') {
    if (from !== 'f32') x.refuse('that conversion is not simulated');
    const half = (one: PtxOperand): string =>
      narrowFloat(x, to.slice(0, -2), mode, relu ? `relu(${x.single(one)})` : x.single(one));
    // The first operand is the upper half.
    x.setWord(x.operand(0), `${half(operand)} << 16 | ${half(x.operand(2))}`);
    return;
  }
  let value =
    from === 'f32'
      ? x.single(operand)
      : from === 'f64'
        ? x.double(operand)
        : `${from}ToF32(${x.word(operand)})`;
  if (flush) value = `ftz(${value})`;
  if (whole !== null) value = `whole(${value}, '${whole}')`;
  if (relu) value = `relu(${value})`;
  if (to === 'f64') {
    x.setDouble(x.operand(0), saturate ? `sat(${value})` : value);
  } else if (to === 'f32') {
    if (from === 'f64') {
      if (mode !== null && mode !== 'rn') value = `directed(${value}, 0, '${mode}')`;
      else value = `fround(${value})`;
    }
    if (flush) value = `ftz(${value})`;
    x.setSingle(x.operand(0), saturate ? `sat(${value})` : value);
  } else {
    if (saturate) value = `sat(${value})`;
    const text =
      from === 'f64' ? `doubleTo${to === 'f16' ? 'F16' : 'Bf16'}(${value})` : narrowFloat(x, to, mode, value);
    x.setWord(x.operand(0), text);
  }
}

function narrowFloat(x: Instruction, to: string, mode: string | null, value: string): string {
  if (mode === null || mode === 'rn') return `f32To${to === 'f16' ? 'F16' : 'Bf16'}(${value})`;
  if (mode === 'rz' && to === 'bf16') return `truncateToBf16(${value})`;
  x.refuse(`'.${mode}' is not known of it`);
}

function floatToInteger(x: Instruction, to: PtxType, from: PtxType): void {
  const mode = x.among('rni', 'rzi', 'rmi', 'rpi');
  if (mode === null) x.refuse('it says no rounding');
  const flush = x.has('ftz');
  x.has('sat');
  const operand = x.operand(1);
  let value =
    from === 'f32'
      ? x.single(operand)
      : from === 'f64'
        ? x.double(operand)
        : `${from}ToF32(${x.word(operand)})`;
  if (flush) value = `ftz(${value})`;
  if (isWide(to)) {
    const low = x.simple(`toLong(${value}, '${mode}', ${isSigned(to)})`, 'i');
    x.setPair(x.operand(0), low, 'up[0]');
    return;
  }
  const [low, high] = limits[to]!;
  x.setWord(x.operand(0), `toInt(${value}, '${mode}', ${low}, ${high})`, to);
}

function integerToFloat(x: Instruction, to: PtxType, from: PtxType): void {
  const mode = x.among(...directions) ?? 'rn';
  if (mode !== 'rn') x.refuse(`'.${mode}' is not known of it`);
  x.has('sat');
  const operand = x.operand(1);
  const signed = isSigned(from);
  const value = isWide(from)
    ? `${to === 'f64' ? 'doubleFromLong' : 'fromLong'}(${x.pair(operand).join(', ')}, ${signed})`
    : signed || ptxBytes[from] < 4
      ? x.word(operand, from)
      : unsigned(x.word(operand, from));
  if (to === 'f64') x.setDouble(x.operand(0), value);
  else if (to === 'f32') x.setSingle(x.operand(0), isWide(from) ? value : `fround(${value})`);
  else if (isWide(from)) x.refuse('64 bits are not rounded to 16');
  else x.setWord(x.operand(0), `doubleTo${to === 'f16' ? 'F16' : 'Bf16'}(${value})`);
}

function integerToInteger(x: Instruction, to: PtxType, from: PtxType): void {
  const saturate = x.has('sat');
  const operand = x.operand(1);
  const target = x.operand(0);
  if (isWide(to)) {
    if (isWide(from)) {
      if (saturate) x.refuse('64 bits are not saturated');
      const [low, high] = x.pair(operand);
      x.setPair(target, low, high);
      return;
    }
    const low = x.simple(x.word(operand, from), 'i');
    x.setPair(target, low, isSigned(from) ? `${low} >> 31` : '0');
    return;
  }
  if (saturate) {
    if (isWide(from)) x.refuse('64 bits are not saturated');
    const [least, most] = limits[to]!;
    const value = x.simple(
      isSigned(from) || ptxBytes[from] < 4 ? x.word(operand, from) : unsigned(x.word(operand, from)),
      'f',
    );
    x.setWord(target, `(${value} < ${least} ? ${least} : ${value} > ${most} ? ${most} : ${value}) | 0`, to);
    return;
  }
  const word = isWide(from) ? x.pair(operand)[0] : x.word(operand, from);
  const bits = 8 * ptxBytes[to];
  const kept =
    bits === 32
      ? word
      : isSigned(to)
        ? `(${word} << ${32 - bits} >> ${32 - bits})`
        : `(${word} & ${bits === 16 ? 65535 : 255})`;
  x.setWord(target, kept, to);
}
