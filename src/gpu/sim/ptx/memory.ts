/** Instructions that touch memory. Memory that only the thread itself can see is read and written as it is, all else is asked for. */
import type { Order, Scope } from '../../../lang/index.js';
import { type PtxOperand, type PtxType, ptxBytes } from '../../../lang/ptx/index.js';
import { pause } from '../compiled.js';
import type { FenceKind } from '../detector/detector.js';
import { unsigned } from '../text.js';
import { genericOf, inCluster, mostShared, windows } from './addresses.js';
import { behind, whole } from './assume.js';
import { type Instruction, narrowed, type Pair } from './code.js';
import { isIntegerOperation, ofLongs, ofWords } from './integers.js';

/** A place in memory, in generated code: cheap to repeat. */
export interface Spot {
  readonly buffer: string;
  readonly offset: string;
  /** Others reach it too. */
  readonly isShared: boolean;
}

const hints = /^(L[12]::|ca$|cg$|cs$|lu$|cv$|wb$|wt$|noftz$)/;

export type Handler = (x: Instruction) => void;

export const memory: Readonly<Record<string, Handler>> = {
  ld: load,
  ldu: load,
  st: store,
  atom: (x) => update(x, true),
  red: (x) => update(x, false),
  fence,
  membar: fence,
  cvta: convertAddress,
  isspacep: isSpace,
  prefetch: hint,
  prefetchu: hint,
  applypriority: hint,
  discard: (x) => x.refuse('bytes that are discarded have no value to simulate'),
  createpolicy(x) {
    // A policy is a hint to caches.
    x.ignore(/./);
    x.setPair(x.operand(0), '0', '0');
  },
};

export function spot(
  x: Instruction,
  operand: PtxOperand,
  space: 'global' | 'shared' | 'local' | 'param' | 'const' | null,
): Spot {
  if (operand.kind !== 'address') x.refuse('an address must stand in brackets there');
  const { base, offset } = operand;
  if (base.kind === 'symbol') {
    const place = x.code.layout.places.get(base.name);
    if (place === undefined) x.refuse(`'${base.name}' is defined in no file that was read`);
    const at = (place.space === 'global' ? 0 : place.offset) + base.offset + offset;
    if (place.space !== 'global') return windowSpot(place.space, String(at));
    const buffer = x.simple(
      `(B[args[${3 + place.number}] - base] || t.find(args[${3 + place.number}], 0))`,
      'q',
    );
    return { buffer, offset: String(at), isShared: true };
  }
  if (space === 'shared' || space === 'local' || space === 'param') {
    const low =
      base.kind === 'register' && base.type !== 'pred' && ptxBytes[base.type] < 8
        ? x.word(base)
        : x.pair(base)[0];
    const at = sum(x, low, offset);
    if (!x.of.parts.includes('shared::cluster') || space !== 'shared' || x.code.kernel.cluster === 1)
      return windowSpot(space, at);
    const buffer = x.simple(`t.sharedAt(${at}, ${x.site})`, 'q');
    return { buffer, offset: x.simple(`${at} & ${mostShared}`, 'i'), isShared: true };
  }
  const [low, high] = x.pair(base);
  const slot = `${high} + (${low} >>> 31)`;
  // An address beyond half of the addresses of a buffer lies before the next one.
  const site = x.code.kernel.cluster === 1 ? '' : `, ${x.site}`;
  const buffer = x.simple(`B[${slot} - base] || t.find(${slot}, ${low}${site})`, 'q');
  return { buffer, offset: sum(x, low, offset), isShared: true };
}

/** The place as an argument of a call. */
export const placed = ({ buffer, offset }: Spot): string => `{ buffer: ${buffer}, offset: ${offset} }`;

function windowSpot(space: 'shared' | 'local' | 'param', offset: string): Spot {
  const buffer = { shared: 'shared0', local: 'local0', param: 'params' }[space];
  return { buffer, offset, isShared: space === 'shared' };
}

const sum = (x: Instruction, low: string, offset: number): string =>
  /^\d+$/.test(low) ? String(Number(low) + offset) : x.simple(offset === 0 ? low : `${low} + ${offset}`, 'i');

export function plus(offset: string, bytes: number): string {
  if (bytes === 0) return offset;
  return /^\d+$/.test(offset) ? String(Number(offset) + bytes) : `(${offset} + ${bytes})`;
}

const index = (offset: string, shift: number): string =>
  /^\d+$/.test(offset) ? String(Number(offset) >>> shift) : shift === 0 ? offset : `${offset} >> ${shift}`;

export const spaceOf = (x: Instruction): 'global' | 'shared' | 'local' | 'param' | 'const' | null => {
  if (x.has('shared::cta') || x.has('shared::cluster')) return 'shared';
  if (x.has('param::entry') || x.has('param::func')) return 'param';
  return x.among('global', 'shared', 'local', 'param', 'const');
};

export const scopeOf = (x: Instruction): Scope | null => {
  const scope = x.among('cta', 'cluster', 'gpu', 'sys');
  if (scope !== 'cluster') return scope;
  // The machine has no scope of its own for clusters of several blocks.
  return x.code.kernel.cluster === 1 ? 'cta' : 'gpu';
};

export interface Ordering {
  readonly order: Order;
  readonly scope: Scope;
}

export function ordering(x: Instruction): Ordering {
  if (x.has('volatile') || x.has('mmio')) {
    x.has('relaxed');
    scopeOf(x);
    return { order: 'relaxed', scope: 'sys' };
  }
  x.has('weak');
  const order = x.among('relaxed', 'acquire', 'release');
  const scope = scopeOf(x);
  if (order === null) return { order: 'weak', scope: 'cta' };
  if (scope === null) x.refuse('it says no scope');
  return { order, scope };
}

export const width = (x: Instruction): number => Number(x.among('v2', 'v4', 'v8')?.slice(1) ?? 1);

export const elements = (operand: PtxOperand): readonly PtxOperand[] =>
  operand.kind === 'list' ? operand.elements : [operand];

function load(x: Instruction): void {
  const form = ordering(x);
  const space = spaceOf(x);
  const count = width(x);
  const isWhole = x.has(whole);
  if (x.has(behind) && x.checked) x.code.line("t.fence('acquire', 'sys');");
  const incoherent = x.has('nc') || x.name === 'ldu';
  x.ignore(hints);
  const type = x.type();
  const bytes = ptxBytes[type];
  const to = elements(x.operand(0));
  if (to.length !== count) x.refuse(`it loads ${count} and has ${to.length} registers`);
  const from = spot(x, x.operand(1), space);
  if (!from.isShared || (!x.checked && form.order === 'weak')) {
    to.forEach((register, i) => {
      read(x, register, type, from.buffer, plus(from.offset, i * bytes));
    });
    return;
  }
  // An element each where it is atomic: a vector of atomics is not one atomic.
  const step = isWhole || form.order === 'weak' ? Math.min(count, Math.max(1, 16 / bytes)) : 1;
  for (let first = 0; first < count; first += step) {
    const at = { ...from, offset: plus(from.offset, first * bytes) };
    const part = to.slice(first, first + step);
    const seen = x.checked && form.order !== 'weak';
    const buffer = seen ? 't.seen' : at.buffer;
    const offset = seen ? `(${at.offset} & 15)` : at.offset;
    const make = (): void => {
      for (const [i, register] of part.entries()) read(x, register, type, buffer, plus(offset, i * bytes));
    };
    const refused = (): void => {
      for (const register of part) clear(x, register);
    };
    const access = { kind: 'read', ...form, bytes: bytes * step, site: x.site, incoherent } as const;
    x.code.accesses.print(access, at, make, { refused });
  }
}

/** The words of an element, or the part of one that it is. */
export function cells(buffer: string, offset: string, bytes: number): readonly string[] {
  if (bytes === 1) return [`${buffer}.u8[${offset}]`];
  if (bytes === 2) return [`${buffer}.u16[${index(offset, 1)}]`];
  const at = index(offset, 2);
  const behind = (i: number): string => (/^\d+$/.test(at) ? String(Number(at) + i) : `(${at}) + ${i}`);
  return Array.from({ length: bytes / 4 }, (_, i) => `${buffer}.i32[${i === 0 ? at : behind(i)}]`);
}

const isSingle = (x: Instruction, operand: PtxOperand, bytes: number): boolean =>
  bytes === 4 && operand.kind === 'register' && x.code.registers.kept(operand) === 'single';

function read(x: Instruction, to: PtxOperand, type: PtxType, buffer: string, offset: string): void {
  if (to.kind === 'sink') return;
  const bytes = ptxBytes[type];
  const [low, ...more] = cells(buffer, offset, bytes);
  if (isSingle(x, to, bytes)) x.setLocal(to, `${buffer}.f32[${index(offset, 2)}]`, 'bits');
  else if (type === 's8' || type === 's16') x.setWord(to, narrowed(low!, type), type, 'bits');
  else x.setWords(to, [low!, ...more], type);
}

function clear(x: Instruction, to: PtxOperand): void {
  if (to.kind === 'register' && to.type !== 'pred')
    x.setWords(
      to,
      cells('', '0', ptxBytes[to.type]).map(() => '0'),
    );
}

function store(x: Instruction): void {
  const form = ordering(x);
  const space = spaceOf(x);
  const count = width(x);
  x.ignore(hints);
  x.has('async');
  const type = x.type();
  const bytes = ptxBytes[type];
  const to = spot(x, x.operand(0), space);
  const from = elements(x.operand(1));
  if (from.length !== count) x.refuse(`it stores ${count} and has ${from.length} registers`);
  const isWhole = x.has(whole) || !to.isShared || form.order === 'weak';
  const step = isWhole ? Math.min(count, Math.max(1, 16 / bytes)) : 1;
  for (let first = 0; first < count; first += step) {
    const at = { ...to, offset: plus(to.offset, first * bytes) };
    const make = (): void => {
      for (const [i, register] of from.slice(first, first + step).entries())
        write(x, register, type, at.buffer, plus(at.offset, i * bytes));
    };
    const access = { kind: 'write', ...form, bytes: bytes * step, site: x.site } as const;
    if (to.isShared) x.code.accesses.print(access, at, make);
    else make();
  }
}

function write(x: Instruction, from: PtxOperand, type: PtxType, buffer: string, offset: string): void {
  const bytes = ptxBytes[type];
  const to = cells(buffer, offset, bytes);
  // Of what is shorter than a word the array takes the lowest bits.
  const words = x.words(from, bytes < 4 ? 'b32' : type);
  if (isSingle(x, from, bytes)) {
    // A NaN has bits of its own on a GPU.
    const local = x.local(from, 'single');
    const as = `${buffer}.f32[${index(offset, 2)}]`;
    x.code.line(`if (${local} === ${local}) ${as} = ${local}; else ${to[0]} = 0x7fffffff;`);
  } else for (const [i, word] of words.entries()) x.code.line(`${to[i]} = ${word};`);
}

const updates = ['add', 'exch', 'cas', 'and', 'or', 'xor', 'min', 'max', 'inc', 'dec'] as const;
export type Update = (typeof updates)[number];

function update(x: Instruction, gives: boolean): void {
  const order = x.among('relaxed', 'acquire', 'release', 'acq_rel') ?? 'relaxed';
  const scope = scopeOf(x) ?? 'gpu';
  x.ignore(hints);
  const space = spaceOf(x);
  if (x.has('async')) x.refuse('asynchronous updates of other blocks are not simulated');
  const op = x.among(...updates);
  if (op === null) x.refuse('it says no operation');
  const count = width(x);
  const type = x.type();
  const bytes = ptxBytes[type];
  if (bytes === 16) x.refuse('128 bits are not updated');
  const result = elements(gives ? x.operand(0) : { kind: 'sink' });
  const at = spot(x, x.operand(gives ? 1 : 0), space);
  const by = elements(x.operand(gives ? 2 : 1));
  if (by.length !== count) x.refuse(`it updates ${count} and has ${by.length} registers`);
  const other = op === 'cas' ? x.operand(3) : null;
  by.forEach((operand, i) => {
    const one = { ...at, offset: plus(at.offset, i * bytes) };
    const to = result[i] ?? { kind: 'sink' };
    const pair = (of: PtxOperand): Pair => (bytes === 8 ? x.pair(of) : [x.word(of, type), '0']);
    const value = pair(operand);
    const swap = other === null ? null : pair(other);
    const old = x.code.temporary('i');
    const oldHigh = bytes === 8 ? x.code.temporary('i') : '0';
    x.code.line(bytes === 8 ? `${old} = 0; ${oldHigh} = 0;` : `${old} = 0;`);
    const make = (): void => change(x, { op, type, at: one, old: [old, oldHigh], value, swap });
    const miss = swap === null ? null : missed(one, bytes, [old, oldHigh], value);
    x.code.accesses.print({ kind: 'update', order, scope, bytes, site: x.site }, one, make, { miss });
    if (to.kind === 'sink') return;
    x.setWords(to, bytes === 8 ? [old, oldHigh] : [old], type);
  });
}

function missed({ buffer, offset }: Spot, bytes: number, old: Pair, wanted: Pair) {
  const words = cells(buffer, offset, bytes);
  const test = words.map((word, i) => `${word} !== ${wanted[i]}`).join(' || ');
  return { test, read: words.map((word, i) => `${old[i]} = ${word};`).join(' ') };
}

export interface Change {
  readonly op: Update;
  readonly type: PtxType;
  readonly at: Spot;
  readonly old: Pair;
  readonly value: Pair;
  readonly swap: Pair | null;
}

export function change(x: Instruction, { op, type, at, old, value, swap }: Change): void {
  const bytes = ptxBytes[type];
  const line = (text: string): void => x.code.line(text);
  const [low, high] = cells(at.buffer, at.offset, bytes);
  line(`${old[0]} = ${low};`);
  if (high !== undefined) line(`${old[1]} = ${high};`);
  const [newLow, newHigh] = combined(x, op, type, old, value, swap);
  if (high !== undefined) line(`${high} = ${newHigh};`);
  line(`${low} = ${newLow};`);
}

/** The value that an update makes of two, or of three. */
export function combined(
  x: Instruction,
  op: Update,
  type: PtxType,
  a: Pair,
  b: Pair,
  swap: Pair | null = null,
): Pair {
  if (ptxBytes[type] === 8) return changed64(x, op, type, a, b, swap);
  return [changed32(x, op, type, a[0], b[0], swap?.[0] ?? null), '0'];
}

function changed32(
  x: Instruction,
  op: Update,
  type: PtxType,
  a: string,
  b: string,
  swap: string | null,
): string {
  if (op === 'exch') return b;
  if (op === 'cas') return `${a} === ${b} ? ${swap} : ${a}`;
  if (type === 'f32' && op === 'add') return `bitsOf(fround(floatOf(${a}) + floatOf(${b})))`;
  if (type === 'f16x2' || type === 'bf16x2' || type === 'f16' || type === 'bf16') {
    if (op !== 'add' && op !== 'min' && op !== 'max') x.refuse(`'.${op}' is not known of '.${type}'`);
    const [of, call] = [type.replace('x2', ''), type.endsWith('x2') ? 'halfTwo' : 'halfOne'];
    return `${call}('${of}', '${op}', ${a}, ${b}, 0)`;
  }
  if (type.startsWith('f')) x.refuse(`'.${op}' is not known of '.${type}'`);
  if (isIntegerOperation(op)) return ofWords(op, type, a, b);
  const isMore = `${unsigned(a)} ${op === 'inc' ? '>=' : '>'} ${unsigned(b)}`;
  return op === 'inc' ? `${isMore} ? 0 : ${a} + 1` : `${a} === 0 || ${isMore} ? ${b} : ${a} - 1`;
}

function changed64(x: Instruction, op: Update, type: PtxType, a: Pair, b: Pair, swap: Pair | null): Pair {
  if (op === 'exch') return b;
  if (op === 'cas') {
    const equal = x.simple(`${a[0]} === ${b[0]} && ${a[1]} === ${b[1]}`, 'b');
    return [`${equal} ? ${swap![0]} : ${a[0]}`, `${equal} ? ${swap![1]} : ${a[1]}`];
  }
  if (op === 'add' && type === 'f64') {
    const low = x.simple(`bitsOfDouble(doubleOf(${a[0]}, ${a[1]}) + doubleOf(${b[0]}, ${b[1]}))`, 'i');
    return [low, 'up[0]'];
  }
  if (!isIntegerOperation(op)) x.refuse(`'.${op}' is not known of 64 bits`);
  return ofLongs(x, op, type, a, b);
}

const levels = { cta: 'cta', gl: 'gpu', sys: 'sys' } as const;

function fence(x: Instruction): void {
  if (x.has('proxy')) {
    // Memory of the machine has no second addresses.
    if (x.has('alias')) return;
    if (x.has('tensormap::generic')) {
      const order = x.among('acquire', 'release');
      const scope = scopeOf(x);
      if (order === null || scope === null) x.refuse('it says no order, or no scope');
      if (x.checked)
        x.code.line(`t.fence('${order}', '${scope}');${order === 'acquire' ? " t.proxyFence('map');" : ''}`);
      return;
    }
    if (!x.has('async'))
      x.refuse('of the other proxies, those of asynchronous copies and of tensor maps are simulated');
    const space = spaceOf(x);
    if (space !== null && space !== 'global' && space !== 'shared')
      x.refuse('it says no space that is known');
    if (x.checked)
      for (const one of space === null ? ['global', 'shared'] : [space])
        x.code.line(`t.proxyFence('${one}');`);
    return;
  }
  if (x.has('mbarrier_init')) {
    // The copy engine learns of mbarriers by it. Other threads do at a barrier, also of a cluster to which this thread comes relaxed.
    x.ignore(/^(release|cluster)$/);
    if (x.checked) x.code.line("t.showMBarriers(); t.fence('release', 'gpu');");
    return;
  }
  let order: FenceKind = 'acq_rel';
  let scope: Scope;
  if (x.name === 'membar') {
    const level = x.among('cta', 'gl', 'sys');
    if (level === null) x.refuse('it says no level');
    scope = levels[level];
    order = 'seq_cst';
  } else {
    const said = x.among('sc', 'acq_rel', 'acquire', 'release');
    if (said === null || said === 'sc') order = 'seq_cst';
    else order = said;
    const named = scopeOf(x);
    if (named === null) x.refuse('it says no scope');
    scope = named;
  }
  if (!x.checked) return;
  x.code.accesses.fence();
  x.code.line(`t.site = ${x.site}; yield ${pause.preempt};`);
  const passed = `t.fence('${order}', '${scope}');`;
  if (order === 'seq_cst')
    x.code.line(`if (t.stays(1)) yield t.lingers(); ${passed} if (t.stays(2)) yield t.lingers(2048);`);
  else x.code.line(passed);
}

function convertAddress(x: Instruction): void {
  const isTo = x.has('to');
  const space = spaceOf(x);
  x.type();
  const [low, high] = x.pair(x.operand(1));
  if (space === 'global' || space === 'const') x.setPair(x.operand(0), low, high);
  else if (space === null) x.refuse('it says no space');
  else if (space === 'shared' && x.code.kernel.cluster > 1) {
    if (isTo) x.setPair(x.operand(0), inCluster(low, high), '0');
    else x.setPair(x.operand(0), `(${low} & ${mostShared})`, x.simple(genericOf(low), 'i'));
  } else x.setPair(x.operand(0), low, isTo ? '0' : String(windows[space]));
}

function isSpace(x: Instruction): void {
  const isOfCluster = x.of.parts.includes('shared::cluster');
  const space = spaceOf(x);
  const [, high] = x.pair(x.operand(1));
  if (space === null || space === 'const') x.refuse('it says no space that is known');
  const isOne = `${high} === ${space === 'global' ? windows.grid : windows[space]}`;
  if (space === 'global') x.setPredicate(x.operand(0), `${high} < ${windows.shared} || ${isOne}`);
  else x.setPredicate(x.operand(0), isOfCluster ? `${isOne} || ${high} >= ${windows.cluster}` : isOne);
}

/** It brings lines to caches, and is no access. */
function hint(x: Instruction): void {
  x.ignore(/./);
}
