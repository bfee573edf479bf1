/** Instructions that only compute. */
import { type PtxOperand, type PtxType, ptxBytes } from '../../../lang/ptx/index.js';
import { unsigned } from '../text.js';
import type { HalfOperation, HalfType } from './arithmetic.js';
import { type Instruction, narrowed, type Pair } from './code.js';
import { add64, isIntegerOperation, isSigned, isWide, less64, ofLongs, ofWords } from './integers.js';
import type { Handler } from './memory.js';
import type { Rounding } from './rounding.js';

const isFloat = (type: PtxType): boolean => /^b?f/.test(type);
const isHalf = (type: PtxType): boolean => /^b?f16/.test(type);

const directions = ['rn', 'rz', 'rm', 'rp', 'rna'] as const;

export const values: Readonly<Record<string, Handler>> = {
  mov,
  ...all(arithmetic, ['add', 'sub', 'addc', 'subc', 'madc', 'mul', 'mad', 'fma', 'div', 'rem']),
  ...all(arithmetic, ['min', 'max', 'neg', 'abs']),
  ...all(product24, ['mul24', 'mad24']),
  dp4a: (x) => dotted(x, 24, [24, 24], [16, 16], [8, 8], [0, 0]),
  dp2a: (x) =>
    x.among('lo', 'hi') === 'hi' ? dotted(x, 16, [16, 8], [0, 0]) : dotted(x, 16, [16, 24], [0, 16]),
  sad: (x) => exactly(x, x.type()),
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
    give(x, type, `copysign(${read(x, 1, type)}, ${read(x, 2, type)})`);
  },
  ...all(bitwise, ['and', 'or', 'xor', 'not']),
  lop3(x) {
    const to = x.operand(0);
    const also = x.among('and', 'or');
    x.type();
    const word = x.simple(`lop3(${x.operands.slice(1, 5).map((one) => x.word(one))})`, 'i');
    x.setWord(to.kind === 'pair' ? to.first : to, word);
    if (to.kind === 'pair' && also !== null)
      x.setPredicate(to.second, `${word} !== 0 ${logic[also]} ${x.predicate(x.operand(5))}`);
  },
  ...all(shift, ['shl', 'shr']),
  shf: funnel,
  ...all(compare, ['setp', 'set']),
  selp: (x) => chosen(x, x.type(), x.predicate(x.operand(3))),
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
    } else ofWord(x, (a) => `brev(${a})`);
  },
  bfe: (x) => exactly(x, x.type()),
  bmsk(x) {
    const wraps = x.among('wrap', 'clamp') === 'wrap';
    x.type();
    const [from, bits] = [1, 2].map((i) => x.short(x.word(x.operand(i)), 'i'));
    const ones = wraps ? `~(-1 << ${bits})` : `(${bits} >>> 0 > 31 ? -1 : ~(-1 << ${bits}))`;
    x.setWord(x.operand(0), wraps ? `${ones} << ${from}` : `${from} >>> 0 > 31 ? 0 : ${ones} << ${from}`);
  },
  bfi: insert,
  prmt: (x) => ofWord(x, (...all) => `prmt(${all})`),
  cvt: convert,
};

/** Instructions that have one handler, which looks at their names. */
function all(handler: Handler, names: readonly string[]): Record<string, Handler> {
  return Object.fromEntries(names.map((name) => [name, handler]));
}

/** An operand of at most 32 bits, or a float, as a type has it. */
function read(x: Instruction, index: number, type: PtxType): string {
  const operand = x.operand(index);
  if (type === 'f64') return x.double(operand);
  return type === 'f32' ? x.single(operand) : x.word(operand, type);
}

function give(x: Instruction, type: PtxType, text: string): void {
  if (type === 'f64') x.setDouble(x.operand(0), text);
  else if (type === 'f32') x.setSingle(x.operand(0), text);
  else x.setWord(x.operand(0), text);
}

/** The result of 64 bits of a call, which leaves its upper word aside. */
const setCalled = (x: Instruction, call: string): void =>
  x.setPair(x.operand(0), x.simple(call, 'i'), 'up[0]');

function ofWord(x: Instruction, compute: (...words: readonly string[]) => string): void {
  x.type();
  x.setWord(x.operand(0), compute(...x.operands.slice(1).map((one) => x.word(one))));
}

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
  const kept = type === 'b128' ? null : x.alike(to, from);
  if (kept !== null) x.setLocal(to, x.local(from, kept), 'moved');
  else x.setWords(to, x.words(from, type), type);
}

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

function pack(x: Instruction, to: PtxOperand, elements: readonly PtxOperand[]): void {
  if (to.kind !== 'register' || to.type === 'pred') x.refuse('a register must stand there');
  const words = joined(x, elements, (8 * ptxBytes[to.type]) / elements.length);
  if (words.length === 2) x.setPair(to, words[0]!, words[1]!);
  else if (words.length === 4) x.setQuad(to, words);
  else x.setWord(to, words[0]!);
}

function unpack(x: Instruction, to: readonly PtxOperand[], from: PtxOperand, type: PtxType): void {
  const all = 8 * ptxBytes[type];
  const bits = all / to.length;
  const words =
    from.kind === 'list'
      ? joined(x, from.elements, all / from.elements.length)
      : x.words(from, all < 32 ? 'b32' : type, 'integer');
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
  const isProduct = x.name === 'mul' || x.name.startsWith('mad');
  const type = isProduct ? x.types().at(-1)! : x.type();
  if (x.has('cc') || x.name.endsWith('c')) carried(x, type);
  else if (isHalf(type)) halves(x, type);
  else if (isFloat(type)) floats(x, type);
  else if (isProduct) products(x, type);
  else integers(x, type);
}

/** With the carry of the one before, and for the one behind. */
function carried(x: Instruction, type: PtxType): void {
  const isProduct = x.name.startsWith('mad');
  const part = x.among('lo', 'hi') ?? '';
  if (isProduct && isWide(type)) x.refuse('of 64 bits, sums alone carry');
  const name = `${x.name.slice(0, 3)}${part}`;
  exactly(x, type, name, x.name.endsWith('c') ? 'cc' : '0');
  if (x.has('cc')) x.code.line('cc = carry[0];');
}

/** An operation on integers of any size that nothing hot asks for, by its name there. */
function exactly(x: Instruction, type: PtxType, name = x.name, carry = '0'): void {
  const operands = x.operands.slice(1).flatMap((one) => x.pair(one));
  const call = `exactly('${name}', ${8 * ptxBytes[type]}, ${isSigned(type)}, ${carry}, ${operands.join(', ')})`;
  if (isWide(type)) setCalled(x, call);
  else x.setWord(x.operand(0), call, type);
}

function halves(x: Instruction, type: PtxType): void {
  x.has('rn');
  x.has('noftz');
  setHalves(x, type, x.name === 'mad' ? 'fma' : (x.name as HalfOperation));
}

function added(x: Instruction): string {
  const how = (['ftz', 'sat', 'relu', 'NaN'] as const).filter((part) => x.has(part));
  return how.map((part) => `'${part}'`).join(', ');
}

function setHalves(x: Instruction, type: PtxType, op: HalfOperation): void {
  const operands = x.operands.slice(1).map((one) => x.word(one));
  while (operands.length < 3) operands.push('0');
  const call = type.endsWith('x2') ? 'halfTwo' : 'halfOne';
  const how = added(x);
  if (how !== '') operands.push(`[${how}]`);
  x.setWord(
    x.operand(0),
    `${call}('${type.replace('x2', '') as HalfType}', '${op}', ${operands.join(', ')})`,
  );
}

const floatOperators: Readonly<Record<string, string>> = { add: '+', sub: '-', mul: '*', div: '/' };

function floats(x: Instruction, type: PtxType): void {
  const isDouble = type === 'f64';
  const mode = x.among(...directions) ?? 'rn';
  const flush = x.has('ftz');
  const saturate = x.has('sat');
  // An approximate division is one that is right here.
  if (x.name === 'div' && x.among('approx', 'full') !== null && isDouble) x.refuse('it is not known of f64');
  const take = (index: number): string => {
    const text = read(x, index, type);
    return flush ? `ftz(${text})` : text;
  };
  const operator = floatOperators[x.name];
  const fused = x.name === 'fma' || x.name === 'mad';
  let result: string;
  if (x.name === 'neg') result = `-${take(1)}`;
  else if (x.name === 'abs') result = `Math.abs(${take(1)})`;
  else if (x.name === 'min' || x.name === 'max') result = limited(x, x.name, take);
  else if (operator === undefined && !fused) x.refuse('it is not known of floats');
  else if (mode !== 'rn' || (fused && isDouble))
    result = operated(fused ? 'fma' : (x.name as Rounding), type, mode, x.operands.slice(1), take);
  else if (operator === undefined) result = `fma(${take(1)}, ${take(2)}, ${take(3)})`;
  else {
    const exact = `${take(1)} ${operator} ${take(2)}`;
    result = isDouble ? exact : `fround(${exact})`;
  }
  if (flush) result = `ftz(${result})`;
  give(x, type, saturate ? `sat(${result})` : result);
}

function limited(x: Instruction, name: 'min' | 'max', take: (index: number) => string): string {
  const call = x.has('NaN') ? `Math.${name}` : `f${name}`;
  const two = `${call}(${take(1)}, ${take(2)})`;
  return x.operands.length > 3 ? `${call}(${two}, ${take(3)})` : two;
}

const operated = (
  op: Rounding,
  type: PtxType,
  mode: string,
  operands: readonly PtxOperand[],
  take: (index: number) => string,
): string => `operate('${op}', '${type}', '${mode}', ${operands.map((_, i) => take(i + 1)).join(', ')})`;

function approximate(x: Instruction, of: (a: string) => string): void {
  x.has('approx');
  const mode = x.among(...directions) ?? 'rn';
  const flush = x.has('ftz');
  const type = x.type();
  if (isHalf(type) && (x.name === 'ex2' || x.name === 'tanh')) {
    // Hints of bf16 only: its subnormals are those of f32.
    setHalves(x, type, x.name);
    return;
  }
  if (type !== 'f64' && type !== 'f32') x.refuse(`'.${type}' is not known of it`);
  const flushed = (text: string): string =>
    flush ? `${type === 'f64' ? 'ftzDouble' : 'ftz'}(${text})` : text;
  const a = flushed(read(x, 1, type));
  let result: string;
  if (mode === 'rn') result = type === 'f64' ? of(a) : `fround(${of(a)})`;
  else if (x.name === 'sqrt') result = operated('sqrt', type, mode, [x.operand(1)], () => a);
  else if (x.name === 'rcp') result = `operate('div', '${type}', '${mode}', 1, ${a})`;
  else x.refuse(`'.${mode}' is not known of it`);
  give(x, type, flushed(result));
}

function integers(x: Instruction, type: PtxType): void {
  const { name } = x;
  const sign = isSigned(type) ? 'i' : 'u';
  if (type === 'u16x2' || type === 's16x2') {
    if (name !== 'add' && name !== 'min' && name !== 'max') x.refuse(`'${name}' is not known of '.${type}'`);
    const [a, b] = [1, 2].map((i) => x.short(x.word(x.operand(i)), 'i'));
    const upper = type === 'u16x2' ? '>>>' : '>>';
    const lower = (word: string) => (type === 'u16x2' ? `(${word} & 65535)` : `(${word} << 16 >> 16)`);
    const low = `(${ofWords(name, type, lower(a!), lower(b!))}) & 65535`;
    const high = ofWords(name, type, `(${a} ${upper} 16)`, `(${b} ${upper} 16)`);
    x.setWord(x.operand(0), `${low} | (${high}) << 16`);
    return;
  }
  if (x.has('sat')) {
    if (type !== 's32' || (name !== 'add' && name !== 'sub')) x.refuse("'.sat' is not known of it");
    exactly(x, type, `${name}sat`);
    return;
  }
  if (isWide(type)) {
    const pair = (index: number): Pair => x.pair(x.operand(index));
    const a = pair(1);
    if (name === 'div' || name === 'rem') {
      exactly(x, type);
      return;
    }
    let result: Pair;
    if (name === 'neg') result = ofLongs(x, 'sub', type, ['0', '0'], a);
    else if (name === 'abs') {
      const negated = ofLongs(x, 'sub', type, ['0', '0'], a);
      const high = x.simple(negated[1], 'i');
      const isNegative = x.simple(`${a[1]} < 0`, 'b');
      result = [`${isNegative} ? ${negated[0]} : ${a[0]}`, `${isNegative} ? ${high} : ${a[1]}`];
    } else if (isIntegerOperation(name)) result = ofLongs(x, name, type, a, pair(2));
    else x.refuse('it is not known of 64 bits');
    x.setPair(x.operand(0), ...result);
    return;
  }
  const word = (index: number): string => x.short(read(x, index, type), 'i');
  if (x.has('relu')) {
    const found = x.simple(ofWords(name as 'min', type, word(1), word(2)), 'i');
    give(x, type, `${found} < 0 ? 0 : ${found}`);
  } else if (name === 'neg') give(x, type, ofWords('sub', type, '0', word(1)));
  else if (name === 'abs') give(x, type, `Math.abs(${word(1)}) | 0`);
  else if (name === 'div' || name === 'rem') give(x, type, `${sign}${name}(${word(1)}, ${word(2)})`);
  else if (isIntegerOperation(name)) give(x, type, ofWords(name, type, word(1), word(2)));
  else x.refuse('it is not known of integers');
}

function products(x: Instruction, type: PtxType): void {
  const part = x.among('lo', 'hi', 'wide');
  const word = (index: number): string => read(x, index, type);
  const signed = isSigned(type);
  const adds = x.name === 'mad';
  const [to, first, second] = [x.operand(0), x.operand(1), x.operand(2)];
  if (part === null || (part === 'wide' && isWide(type))) x.refuse('it says no part of the product');
  if (isWide(type) || (part === 'wide' && ptxBytes[type] === 4)) {
    let product: Pair;
    const factors = [...x.pair(first), ...x.pair(second)].join(', ');
    if (part === 'wide') product = wideProduct(x, first, second, signed);
    else {
      const call = part === 'lo' ? `mul64(${factors})` : `exactly('mulhi', 64, ${signed}, 0, ${factors})`;
      product = [x.simple(call, 'i'), x.simple('up[0]', 'i')];
    }
    x.setPair(to, ...(adds ? add64(x, product, x.pair(x.operand(3))) : product));
    return;
  }
  const low = `imul(${word(1)}, ${word(2)})`;
  let product = part === 'hi' ? `${signed ? 's' : 'u'}mulh(${word(1)}, ${word(2)})` : low;
  if (ptxBytes[type] === 2 && part === 'hi') product = `(${low} >> 16)`;
  // The third operand of a wide product has 32 bits.
  const added = adds ? ` + ${part === 'wide' ? x.word(x.operand(3)) : word(3)}` : '';
  x.setWord(to, ptxBytes[type] === 2 || adds ? `${product}${added} | 0` : product);
}

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

function product24(x: Instruction): void {
  if (x.among('lo', 'hi') !== 'lo') x.refuse('only its lower half is known');
  exactly(x, x.type());
}

/** Adds up products of parts of two words, each of which lies so many bits below the top; those of the second are bytes. */
function dotted(x: Instruction, bits: number, ...lefts: readonly (readonly [number, number])[]): void {
  const [right, rightB] = x.types().map((type) => (isSigned(type) ? '>>' : '>>>'));
  const [a, b, c] = [1, 2, 3].map((i) => x.short(x.word(x.operand(i)), 'i'));
  const products = lefts.map(
    ([at, atB]) => `(${a} << ${at} ${right} ${bits}) * (${b} << ${atB} ${rightB} 24)`,
  );
  x.setWord(x.operand(0), `${products.join(' + ')} + ${c} | 0`);
}

function bitwise(x: Instruction): void {
  const to = x.operand(0);
  if (x.has('pred')) {
    const a = x.predicate(x.operand(1));
    x.setPredicate(to, x.name === 'not' ? `!${a}` : `${a} ${logic[x.name]} ${x.predicate(x.operand(2))}`);
    return;
  }
  const type = x.type();
  if (x.name !== 'not') integers(x, type);
  else if (isWide(type)) {
    const [low, high] = x.pair(x.operand(1));
    x.setPair(to, `~${low}`, `~${high}`);
  } else x.setWord(to, `~${x.word(x.operand(1))}`);
}

const logic: Readonly<Record<string, string>> = { and: '&&', or: '||', xor: '!==' };

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
    const operands = `${low}, ${high}, ${x.word(by)}`;
    setCalled(x, left ? `shl64(${operands})` : `shr64(${operands}, ${signed})`);
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

const signs: Readonly<Record<string, string>> = {
  ...{ eq: '===', ne: '!==', lt: '<', le: '<=', gt: '>', ge: '>=' },
  ...{ lo: '<', ls: '<=', hi: '>', hs: '>=' },
};
/** Comparisons of floats that are true where one is no number: they are that this one is false. */
const opposites: Readonly<Record<string, string>> = { ltu: '>=', leu: '>', gtu: '<=', geu: '<' };
const comparisons = [...Object.keys({ ...signs, ...opposites }), 'equ', 'neu', 'num', 'nan'];

function compare(x: Instruction): void {
  const how = x.among(...comparisons);
  if (how === null) x.refuse('it compares in no way that is known');
  const also = x.among('and', 'or', 'xor');
  const flush = x.has('ftz');
  const types = x.types();
  const type = types.at(-1)!;
  if (flush && isHalf(type)) x.refuse("'.ftz' is not known of comparisons of 16 bits");
  const third = also === null ? null : x.predicate(x.operand(3));
  const join = (one: string): string => (third === null ? one : `(${one}) ${logic[also!]} ${third}`);
  const to = x.operand(0);
  if (type === 'f16x2' || type === 'bf16x2') {
    const half = type === 'f16x2' ? 'f16' : 'bf16';
    const [low, high] = ['& 65535', '>>> 16'].map((part) => {
      const [a, b] = [1, 2].map((i) => x.short(`${half}ToF32(${x.word(x.operand(i))} ${part})`, 'f'));
      return x.simple(join(ordered(how, a!, b!)), 'b');
    });
    if (x.name === 'set' && types[0] === type)
      x.setWord(to, `(${low} ? ${ones[half]} : 0) | (${high} ? ${ones[half]} : 0) << 16`);
    else if (to.kind === 'pair') {
      x.setPredicate(to.first, low!);
      x.setPredicate(to.second, high!);
    } else x.refuse('such a result is not known of it');
    return;
  }
  const test = tested(x, how, type, flush);
  if (x.name === 'set') {
    const as = types[0]!;
    if (types.length === 1 || as === 'f64') x.refuse('such a result is not known of it');
    give(x, as, `${join(test)} ? ${as === 'f32' ? 1 : as === 'f16' || as === 'bf16' ? ones[as] : -1} : 0`);
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

const ones = { f16: 0x3c00, bf16: 0x3f80 } as const;

function tested(x: Instruction, how: string, type: PtxType, flush: boolean): string {
  if (isFloat(type)) {
    const [a, b] = [1, 2].map((i) => {
      const text = number(x, i, type);
      return x.short(flush ? `ftz(${text})` : text, 'f');
    });
    return ordered(how, a!, b!);
  }
  const sign = signs[how];
  if (sign === undefined) x.refuse(`'.${how}' is not known of integers`);
  const signed = isSigned(type);
  if (!isWide(type)) {
    const isPlain = signed || how === 'eq' || how === 'ne';
    return [1, 2].map((i) => (isPlain ? read(x, i, type) : unsigned(read(x, i, type)))).join(` ${sign} `);
  }
  const [a, b] = [x.pair(x.operand(1)), x.pair(x.operand(2))];
  if (sign === '===') return `${a[0]} === ${b[0]} && ${a[1]} === ${b[1]}`;
  if (sign === '!==') return `${a[0]} !== ${b[0]} || ${a[1]} !== ${b[1]}`;
  // Not more is less or equal.
  const less = sign[0] === (sign.length === 1 ? '<' : '>') ? less64(a, b, signed) : less64(b, a, signed);
  return sign.length === 1 ? less : `!(${less})`;
}

/** Floats: false where one is no number, or true where the comparison ends in u. */
function ordered(how: string, a: string, b: string): string {
  if (how === 'num') return `${a} === ${a} && ${b} === ${b}`;
  if (how === 'nan') return `${a} !== ${a} || ${b} !== ${b}`;
  if (how === 'neu') return `${a} !== ${b}`;
  const differ = `${a} < ${b} || ${a} > ${b}`;
  if (how === 'ne') return differ;
  if (how === 'equ') return `!(${differ})`;
  const opposite = opposites[how];
  return opposite === undefined ? `${a} ${signs[how]} ${b}` : `!(${a} ${opposite} ${b})`;
}

const number = (x: Instruction, index: number, type: PtxType): string =>
  isHalf(type) ? `${type}ToF32(${x.word(x.operand(index))})` : read(x, index, type);

function chosen(x: Instruction, type: PtxType, test: string): void {
  const [to, a, b] = [x.operand(0), x.operand(1), x.operand(2)];
  const kept = x.alike(to, a, b);
  if (kept !== null) x.setLocal(to, `${test} ? ${x.local(a, kept)} : ${x.local(b, kept)}`, 'moved');
  else {
    const no = x.words(b, type);
    x.setWords(
      to,
      x.words(a, type).map((yes, i) => `${test} ? ${yes} : ${no[i]}`),
      type,
    );
  }
}

function count(x: Instruction, word: (a: string) => string, pair: (a: Pair) => string): void {
  const text = isWide(x.type()) ? pair(x.pair(x.operand(1))) : word(x.word(x.operand(1)));
  x.setWord(x.operand(0), text);
}

function insert(x: Instruction): void {
  const type = x.type();
  if (isWide(type)) exactly(x, type);
  else x.setWord(x.operand(0), `bfi(${x.operands.slice(1).map((one) => x.word(one))})`);
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

const limits: Readonly<Record<string, readonly [bigint, bigint]>> = Object.fromEntries(
  [2, 4, 8, 16, 32, 64].flatMap((bits) => [
    [`u${bits}`, [0n, (1n << BigInt(bits)) - 1n]],
    [`s${bits}`, [-(1n << BigInt(bits - 1)), (1n << BigInt(bits - 1)) - 1n]],
  ]),
);

const limitsOf = (x: Instruction, type: string): readonly [bigint, bigint] =>
  limits[type] ?? x.refuse(`'.${type}' has no limits`);

function convert(x: Instruction): void {
  const small = x.among('e4m3x2', 'e5m2x2');
  if (small !== null) toSmall(x, small);
  else if (x.has('pack')) packed(x);
  else {
    const [to, from] = x.types();
    if (to === undefined || from === undefined) x.refuse('it names no two types that are known');
    if (isFloat(from)) {
      if (isFloat(to)) floatToFloat(x, to, from);
      else floatToInteger(x, to, from);
    } else if (isFloat(to)) integerToFloat(x, to, from);
    else integerToInteger(x, to, from);
  }
}

/** Two floats of 8 bits; the first operand is the upper one. */
function toSmall(x: Instruction, small: 'e4m3x2' | 'e5m2x2'): void {
  const [other] = x.types();
  x.has('rn');
  const saturates = x.has('satfinite');
  const relu = x.has('relu');
  const [to, a] = [x.operand(0), x.operand(1)];
  const write = (text: string): string => {
    const value = relu ? `relu(${text})` : text;
    return small === 'e4m3x2' ? `f32ToE4m3(${value})` : `f32ToE5m2(${value})`;
  };
  if (x.of.parts.indexOf(small) > x.of.parts.indexOf('f16x2') && other === 'f16x2') {
    const pair = x.short(x.word(a), 'i');
    const half = (text: string): string => {
      const bits = small === 'e4m3x2' ? `e4m3ToF16(${text})` : `(${text}) << 8`;
      return relu ? `f32ToF16(relu(f16ToF32(${bits})))` : bits;
    };
    x.setWord(to, `${half(`${pair} & 255`)} | ${half(`(${pair} >>> 8 & 255)`)} << 16`);
  } else if (!saturates) x.refuse("what becomes so small is '.satfinite'");
  else if (other === 'f32') x.setWord(to, `${write(x.single(a))} << 8 | ${write(x.single(x.operand(2)))}`);
  else if (other === 'f16x2') {
    const pair = x.short(x.word(a), 'i');
    x.setWord(to, `${write(`f16ToF32(${pair} & 65535)`)} | ${write(`f16ToF32(${pair} >>> 16)`)} << 8`);
  } else x.refuse('that conversion is not simulated');
}

/** Two integers beside each other, in front of what was there, if they are small. */
function packed(x: Instruction): void {
  x.has('sat');
  x.types();
  const to = x.of.parts.find((part) => Object.hasOwn(limits, part))!;
  x.ignore(/^[us][24]$/);
  const bits = Number(to.slice(1));
  const [least, most] = limitsOf(x, to);
  const part = (index: number): string => {
    const value = x.short(x.word(x.operand(index)), 'i');
    return `((${value} < ${least} ? ${least} : ${value} > ${most} ? ${most} : ${value}) & ${2 ** bits - 1})`;
  };
  const two = `${part(1)} << ${bits} | ${part(2)}`;
  x.setWord(x.operand(0), bits === 16 ? two : `${x.word(x.operand(3))} << ${2 * bits} | ${two}`);
}

function floatToFloat(x: Instruction, to: PtxType, from: PtxType): void {
  const whole = x.among('rni', 'rzi', 'rmi', 'rpi');
  const flush = x.has('ftz');
  const saturate = x.has('sat');
  const relu = x.has('relu');
  const operand = x.operand(1);
  const from32 = (text: string): string => {
    const value = flush ? `ftz(${text})` : text;
    return relu ? `relu(${value})` : value;
  };
  if (to === 'f16x2' || to === 'bf16x2') {
    if (from !== 'f32') x.refuse('that conversion is not simulated');
    const half = (one: PtxOperand): string => narrowFloat(x, to.slice(0, -2), from32(x.single(one)));
    // The first operand is the upper half.
    x.setWord(x.operand(0), `${half(operand)} << 16 | ${half(x.operand(2))}`);
    return;
  }
  // What becomes wider is exact, whatever it says.
  const mode = x.among(...directions) ?? 'rn';
  let value = from32(number(x, 1, from));
  if (whole !== null) value = `whole(${value}, '${whole}')`;
  if (to === 'f32' && from === 'f64') value = narrowFloat(x, 'f32', value);
  if (to === 'f32' && flush) value = `ftz(${value})`;
  if (saturate) value = `sat(${value})`;
  if (!isHalf(to)) give(x, to, value);
  else if (from === 'f64' && mode === 'rn') give(x, to, `doubleTo${to === 'f16' ? 'F16' : 'Bf16'}(${value})`);
  else give(x, to, narrowFloat(x, to, value));
}

/** A float of fewer bits: f32 as a number, others as their bits. */
function narrowFloat(x: Instruction, to: string, value: string): string {
  const mode = x.among(...directions) ?? 'rn';
  const saturates = x.has('satfinite');
  const plain = mode === 'rn' && !saturates;
  const number = plain ? value : `rounded(${value}, '${to}', '${mode}', ${saturates})`;
  if (to === 'f32') return plain ? `fround(${value})` : number;
  return `f32To${to === 'f16' ? 'F16' : 'Bf16'}(${number})`;
}

function floatToInteger(x: Instruction, to: PtxType, from: PtxType): void {
  const mode = x.among('rni', 'rzi', 'rmi', 'rpi');
  if (mode === null) x.refuse('it says no rounding');
  const flush = x.has('ftz');
  // It saturates in any case.
  x.has('sat');
  let value = number(x, 1, from);
  if (flush) value = `ftz(${value})`;
  if (isWide(to)) {
    setCalled(x, `toLong(${value}, '${mode}', ${isSigned(to)})`);
    return;
  }
  const [low, high] = limitsOf(x, to);
  x.setWord(x.operand(0), `toInt(${value}, '${mode}', ${low}, ${high})`, to);
}

function integerToFloat(x: Instruction, to: PtxType, from: PtxType): void {
  const mode = x.among(...directions) ?? 'rn';
  const saturate = x.has('sat');
  const operand = x.operand(1);
  const signed = isSigned(from);
  let value: string;
  if (isWide(from)) value = `fromLong(${x.pair(operand).join(', ')}, ${signed}, '${to}', '${mode}')`;
  else {
    value = signed || ptxBytes[from] < 4 ? x.word(operand, from) : unsigned(x.word(operand, from));
    if (to === 'f32' && mode === 'rn') value = `fround(${value})`;
    else if (to !== 'f64') value = `rounded(${value}, '${to}', '${mode}')`;
  }
  if (saturate) value = `sat(${value})`;
  give(x, to, isHalf(to) ? `f32To${to === 'f16' ? 'F16' : 'Bf16'}(${value})` : value);
}

function integerToInteger(x: Instruction, to: PtxType, from: PtxType): void {
  const operand = x.operand(1);
  const target = x.operand(0);
  const wide = (): Pair => {
    if (isWide(from)) return x.pair(operand);
    const low = x.simple(x.word(operand, from), 'i');
    return [low, isSigned(from) ? `${low} >> 31` : '0'];
  };
  if (x.has('sat')) {
    const call = `saturated(${wide()}, ${isSigned(from)}, ${limitsOf(x, to).map((one) => `${one}n`)})`;
    if (isWide(to)) setCalled(x, call);
    else x.setWord(target, call, to);
    return;
  }
  if (isWide(to)) {
    x.setPair(target, ...wide());
    return;
  }
  const word = isWide(from) ? x.pair(operand)[0] : x.word(operand, from);
  x.setWord(target, narrowed(word, to), to);
}
