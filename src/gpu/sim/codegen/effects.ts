/**
 * Effects as JavaScript statements. `t` is the running thread (thread.ts); what a single thread can do by itself is
 * printed inline, what needs others is handed to the machine with a `yield`.
 *
 * Fast mode touches the views and nothing else. Checked mode asks `t.access` first, which checks bounds, alignment
 * and initialisation and tells the race detector, and offers the scheduler a switch before every synchronising
 * access. Switching at synchronising accesses only loses nothing: two weak accesses that a switch between them could
 * tell apart race, and the detector finds a race whatever their order in the run.
 */
import {
  byteSize,
  type Expr,
  type IrType,
  type OperationEffect,
  type OperationName,
  type Variable,
} from '../../../lang/index.js';
import {
  matrixWords,
  pause,
  type StatementAccess,
  type StatementWait,
  type WarpOp,
  warpOps,
} from '../compiled.js';
import { type Address, type Expressions, valueName } from './expressions.js';
import type { Locals } from './locals.js';

type MemoryType = Exclude<Extract<IrType, { kind: 'pointer' }>['to'], never>;

/** View, and how many times to halve a byte offset to get its index. */
const views: Readonly<Record<MemoryType, readonly [string, number]>> = {
  u8: ['u8', 0],
  u16: ['u16', 1],
  i32: ['i32', 2],
  u32: ['i32', 2],
  u64: ['u64', 3],
  f32: ['f32', 2],
  bf16: ['u16', 1],
  f16: ['u16', 1],
  e4m3: ['u8', 0],
  v16: ['i32', 2],
};

/** What the simulated machine does for an operation. */
interface Simulated<Op extends OperationName> {
  /** The thread gives up control here; whatever orders memory does so in checked mode in any case. */
  readonly pauses?: true;
  /** A loop around it may be waiting for what others do. */
  polls?(effect: OperationEffect<Op>): boolean;
  print(effect: OperationEffect<Op>, to: Effects, result: Variable | null, site: number): void;
}

const ofWarp = {
  pauses: true,
  print(effect: OperationEffect<WarpOp>, to: Effects, result: Variable | null, site: number): void {
    to.warp(effect, result, site);
  },
} as const;

const table: { readonly [Op in OperationName]: Simulated<Op> } = {
  load: {
    polls: ({ order }) => order !== 'weak',
    print: (effect, to, result, site) => to.load(effect, result, site),
  },
  store: { print: (effect, to, _, site) => to.store(effect, site) },
  atomicAdd: { print: (effect, to, result, site) => to.atomicAdd(effect, result, site) },
  fence: {
    print({ order, scope }, to) {
      if (!to.checked) return;
      to.emit(`yield ${pause.preempt};`);
      to.emit(`t.fence('${order}', '${scope}');`);
    },
  },
  distance: {
    print: ({ to: end, from }, to, result) => to.bind(result, `t.distance(${to.arguments(end, from)})`),
  },
  prefetch: { print: () => {} },
  awaitEpoch: { pauses: true, print: (effect, to, result, site) => to.awaitWord(effect, result, site) },
  awaitFilled: { pauses: true, print: (effect, to, result, site) => to.awaitWord(effect, result, site) },
  clock: { polls: () => true, print: (_, to, result) => to.bind(result, 't.clock()') },
  sleep: {
    pauses: true,
    print: ({ nanoseconds }, to) => to.emit(`t.sleep(${to.arguments(nanoseconds)}); yield ${pause.sleep};`),
  },
  barrier: { pauses: true, print: (_, to, __, site) => to.emit(`t.site = ${site}; yield ${pause.barrier};`) },
  'group.barrier': {
    pauses: true,
    print: ({ id, threads }, to, _, site) =>
      to.emit(`t.joinGroup(${to.arguments(id, threads)}, ${site}); yield ${pause.group};`),
  },
  'bulk.load': {
    print: ({ to: target, from, bytes, barrier }, to, _, site) =>
      to.emit(`t.bulk.load(${to.arguments(target, from, bytes, barrier)}, ${site});`),
  },
  'bulk.store': {
    print: ({ to: target, from, bytes }, to, _, site) =>
      to.emit(`t.bulk.post(${to.arguments(target, from, bytes)}, ${site});`),
  },
  'bulk.commit': { print: (_, to) => to.emit('t.bulk.commit();') },
  'bulk.wait': { print: ({ pending }, to) => to.emit(`t.bulk.wait(${pending}, false);`) },
  'bulk.waitReads': { print: ({ pending }, to) => to.emit(`t.bulk.wait(${pending}, true);`) },
  'async.load': {
    print: ({ to: target, from }, to, _, site) =>
      to.emit(`t.async.post(${to.arguments(target, from)}, 16, ${site});`),
  },
  'async.commit': { print: (_, to) => to.emit('t.async.commit();') },
  'async.wait': { print: ({ pending }, to) => to.emit(`t.async.wait(${pending}, false);`) },
  'mbarrier.init': {
    print: ({ barrier, count }, to, _, site) => {
      const access = to.access({ kind: 'write', order: 'weak', scope: 'cta', bytes: 8, site });
      to.emit(`t.mbarrierInit(${access}, ${to.arguments(barrier, count)});`);
    },
  },
  'mbarrier.arrive': {
    print: ({ barrier }, to, _, site) =>
      to.emit(`t.mbarrierExpect(${to.arrival(site)}, ${to.arguments(barrier)}, 0);`),
  },
  'mbarrier.expect': {
    print: ({ barrier, bytes }, to, _, site) =>
      to.emit(`t.mbarrierExpect(${to.arrival(site)}, ${to.arguments(barrier, bytes)});`),
  },
  'mbarrier.await': {
    pauses: true,
    print({ barrier, parity, limit }, to, result, site) {
      const access = { kind: 'read', order: 'acquire', scope: 'cta', bytes: 8, site } as const;
      const wait = to.wait({ kind: 'phase', until: '!=', access });
      to.emit(`t.waitForPhase(${wait}, ${to.arguments(barrier, parity, limit)}); yield ${pause.wait};`);
      to.bind(result, 't.satisfied');
    },
  },
  'warp.barrier': ofWarp,
  'warp.shuffle': ofWarp,
  'warp.shuffleXor': ofWarp,
  'warp.shuffleUp': ofWarp,
  'warp.ballot': ofWarp,
  'warp.any': ofWarp,
  'warp.match': ofWarp,
  'warp.ldmatrix': {
    pauses: true,
    print: (effect, to, result, site) => to.matrices(effect, result, site),
  },
  'warp.mma': { pauses: true, print: (effect, to, result, site) => to.multiply(effect, result, site) },
  awaitPrevious: {
    pauses: true,
    print: (_, to, __, site) => to.emit(`t.site = ${site}; yield ${pause.previous};`),
  },
  releaseNext: { print: (_, to) => to.emit('t.releaseNext();') },
  'network.put': {
    print: ({ to: target, from, bytes }, to, _, site) =>
      to.emit(`t.put(${to.arguments(target, from, bytes)}, ${site});`),
  },
  'network.signal': {
    print({ pointer, value, how, order, scope }, to, _, site) {
      const kind = how === 'add' ? 'update' : 'write';
      const access = to.access({ kind, order, scope, bytes: 8, site });
      to.emit(`t.signal(${access}, ${to.arguments(pointer, value)});`);
    },
  },
};

/** Whether a thread may have to give up control at an operation. */
export const pauses = (effect: OperationEffect, checked: boolean): boolean =>
  table[effect.op].pauses === true || (checked && 'order' in effect && effect.order !== 'weak');

/** Whether a loop around an operation may be waiting for what others do. */
export const polls = <Op extends OperationName>(effect: OperationEffect<Op>): boolean =>
  table[effect.op].polls?.(effect) ?? false;

export class Effects {
  /** What the code names: `accesses[0]`, `waits[2]`. */
  readonly accesses: StatementAccess[] = [];
  readonly waits: StatementWait[] = [];
  readonly #expressions: Expressions;
  readonly #locals: Locals;

  constructor(
    expressions: Expressions,
    locals: Locals,
    readonly checked: boolean,
    readonly emit: (line: string) => void,
  ) {
    this.#expressions = expressions;
    this.#locals = locals;
  }

  effect<Op extends OperationName>(effect: OperationEffect<Op>, result: Variable | null, site: number): void {
    table[effect.op].print(effect, this, result, site);
  }

  /** The name of an access. */
  access(access: StatementAccess): string {
    return `accesses[${this.accesses.push(access) - 1}]`;
  }

  wait(wait: StatementWait): string {
    return `waits[${this.waits.push(wait) - 1}]`;
  }

  /** A thread arrives at an mbarrier. */
  arrival(site: number): string {
    return this.access({ kind: 'update', order: 'release', scope: 'cta', bytes: 8, site });
  }

  /** Operands as the arguments of a call: a pointer is two. */
  arguments(...operands: readonly Expr[]): string {
    const texts = operands.map((operand) => {
      if (operand.type.kind !== 'pointer') return this.#expressions.scalar(operand);
      const { buffer, offset } = this.#expressions.address(operand);
      return `${buffer}, ${offset}`;
    });
    return texts.join(', ');
  }

  /** Declares the result and sets it. */
  bind(result: Variable | null, text: string): void {
    if (result === null) return;
    const slot = this.#locals.declare(result);
    if (slot.kind !== 'scalar') throw new Error(`${result.name} is not a scalar`);
    this.emit(`${slot.name} = ${text};`);
  }

  /** A pointer as two plain locals, and its element's view and index. */
  #place(pointer: Expr) {
    if (pointer.type.kind !== 'pointer') throw new Error('an access needs a pointer');
    const { to, space } = pointer.type;
    const address: Address = this.#expressions.address(pointer);
    const buffer = this.#expressions.simple(address.buffer, 'q');
    const offset = this.#expressions.simple(address.offset, 'i');
    const [view, shift] = views[to];
    const index = /^\d+$/.test(offset) ? String(Number(offset) >>> shift) : `${offset} >>> ${shift}`;
    return { to, space, buffer, offset, view: `${buffer}.${view}`, index, bytes: byteSize[to] };
  }

  /** Counts bytes that move between ranks: `traffic` is [stored, loaded]. */
  #count(place: { space: string; buffer: string; bytes: number }, direction: 0 | 1): void {
    if (place.space === 'shared') return;
    this.emit(`if (${place.buffer}.rank !== home) traffic[${direction}] += ${place.bytes};`);
  }

  /** The call that asks for a checked access, with a switch offered before it where it is atomic. */
  #ask(access: StatementAccess, { buffer, offset }: { buffer: string; offset: string }): string {
    const atomic = access.order !== 'weak';
    const operands = `${this.access(access)}, ${buffer}, ${offset}`;
    if (atomic) this.emit(`t.about(${operands}); yield ${pause.preempt};`);
    const method = !atomic ? 'access' : access.kind === 'read' ? 'look' : 'change';
    return `t.${method}(${operands})`;
  }

  load(effect: OperationEffect<'load'>, result: Variable | null, site: number): void {
    const place = this.#place(effect.pointer);
    const { order, scope } = effect;
    const atomic = this.checked && order !== 'weak';
    const guard = this.checked
      ? this.#ask({ kind: 'read', order, scope, bytes: place.bytes, site }, place)
      : null;
    const targets = result === null ? [] : this.#targets(result);
    if (result === null && guard !== null) {
      this.emit(`${guard};`);
      return;
    }
    const zero = place.to === 'u64' ? '0n' : '0';
    if (guard !== null) this.emit(`if (${guard}) {`);
    const from = atomic ? this.#seen(place) : place;
    if (place.to === 'v16') {
      const view = this.#expressions.simple(from.view, 'q');
      const index = this.#locals.temporary('i');
      this.emit(`${index} = ${from.index};`);
      targets.forEach((target, i) => {
        this.emit(`${target} = ${view}[${i === 0 ? index : `${index} + ${i}`}];`);
      });
    } else {
      for (const target of targets) this.emit(`${target} = ${from.view}[${from.index}];`);
    }
    this.#count(place, 1);
    if (guard !== null) this.emit(`} else { ${targets.map((target) => `${target} = ${zero};`).join(' ')} }`);
  }

  /** Where checked mode leaves what an atomic load reads. */
  #seen({ to, offset }: { to: MemoryType; offset: string }): { view: string; index: string } {
    const [view, shift] = views[to];
    return { view: `t.seen.${view}`, index: `(${offset} & 15) >>> ${shift}` };
  }

  #targets(result: Variable): readonly string[] {
    const slot = this.#locals.declare(result);
    if (slot.kind === 'v16') return slot.words;
    if (slot.kind === 'scalar') return [slot.name];
    throw new Error(`${result.name} cannot be loaded`);
  }

  store(effect: OperationEffect<'store'>, site: number): void {
    const place = this.#place(effect.pointer);
    const values =
      place.to === 'v16'
        ? this.#expressions.words(effect.value)
        : [
            this.#expressions.convertText(
              this.#expressions.scalar(effect.value),
              valueName(effect.value),
              place.to,
            ),
          ];
    if (this.checked) {
      const { order, scope } = effect;
      this.emit(`if (${this.#ask({ kind: 'write', order, scope, bytes: place.bytes, site }, place)}) {`);
    }
    if (place.to === 'v16') {
      const view = this.#expressions.simple(`${place.view}`, 'q');
      const index = this.#locals.temporary('i');
      this.emit(`${index} = ${place.index};`);
      values.forEach((value, i) => {
        this.emit(`${view}[${i === 0 ? index : `${index} + ${i}`}] = ${value};`);
      });
    } else {
      this.emit(`${place.view}[${place.index}] = ${values[0]};`);
    }
    this.#count(place, 0);
    this.#wrote(place);
    if (this.checked) this.emit('}');
  }

  /** Fast mode looks at parked threads only once nothing else can run; checked mode wakes them at the store. */
  #wrote(place: { buffer: string; offset: string; bytes: number }): void {
    if (!this.checked) return;
    this.emit(
      `if (${place.buffer}.waiters !== 0) t.wrote(${place.buffer}, ${place.offset}, ${place.bytes});`,
    );
  }

  atomicAdd(effect: OperationEffect<'atomicAdd'>, result: Variable | null, site: number): void {
    const place = this.#place(effect.pointer);
    const kind = place.to === 'u64' ? 'n' : 'i';
    const value = this.#expressions.simple(this.#expressions.scalar(effect.value), kind);
    const old = this.#locals.temporary(kind);
    const at = `${place.view}[${place.index}]`;
    if (this.checked) {
      const { order, scope } = effect;
      const may = this.#ask({ kind: 'update', order, scope, bytes: place.bytes, site }, place);
      this.emit(`${old} = ${kind === 'n' ? '0n' : '0'};`);
      this.emit(`if (${may}) {`);
    }
    this.emit(`${old} = ${at};`);
    this.emit(`${at} = ${old} + ${value};`);
    this.#count(place, 0);
    this.#wrote(place);
    if (this.checked) this.emit('}');
    this.bind(result, old);
  }

  awaitWord(
    effect: OperationEffect<'awaitEpoch' | 'awaitFilled'>,
    result: Variable | null,
    site: number,
  ): void {
    const filled = effect.op === 'awaitFilled';
    const place = this.#place(effect.pointer);
    const word = (e: Expr): string => this.#expressions.simple(this.#expressions.scalar(e), 'i');
    const [until, order, wanted] = filled
      ? (['!=', 'relaxed', word(effect.empty)] as const)
      : ([effect.until, effect.order, word(effect.epoch)] as const);
    const mask = filled ? '-1' : word(effect.mask).replace(/^\((.*)\)$/, '$1');
    const limit = word(effect.limit);
    const kind = filled ? 'filled' : place.to === 'u64' ? 'long' : 'word';
    const access = { kind: 'read', order, scope: effect.scope, bytes: place.bytes, site } as const;
    const at = `${this.wait({ kind, until, access })}, ${place.buffer}, ${place.offset}`;
    const wait = `t.waitFor(${at}, { mask: ${mask}, wanted: ${wanted}, limit: ${limit} }); yield ${pause.wait};`;
    if (this.checked) {
      this.emit(wait);
      if (!filled) this.bind(result, 't.satisfied');
    } else {
      const looked = filled
        ? `${place.view}[(${place.index}) + 3]`
        : `${place.buffer}.i32[${place.offset} >>> 2]`;
      const is = mask === '-1' ? looked : `(${looked} & ${mask})`;
      const done = this.#locals.temporary('b');
      this.emit(
        `${done} = ${until === '>=' ? `(${is} - ${wanted} | 0) >= 0` : `${is} ${until}= ${wanted}`};`,
      );
      this.emit(`if (!${done} && ${limit} !== 0) { ${wait} ${done} = t.satisfied; }`);
      if (!filled) this.bind(result, done);
    }
    if (filled && result !== null) {
      const from = this.checked ? this.#seen(place) : place;
      this.#targets(result).forEach((target, i) => {
        this.emit(`${target} = ${from.view}[(${from.index}) + ${i}] | 0;`);
      });
      this.#count(place, 1);
    }
  }

  /** Each lane brings the row that it names; they are dealt out when the warp has met. */
  matrices({ op, row }: OperationEffect<'warp.ldmatrix'>, result: Variable | null, site: number): void {
    const place = this.#place(row);
    const from = this.#locals.temporary('i');
    this.emit(`${from} = ${place.index};`);
    const words = [0, 1, 2, 3].map((i) => `${place.view}[${from} + ${i}]`);
    if (this.checked) {
      const may = this.#ask({ kind: 'read', order: 'weak', scope: 'cta', bytes: place.bytes, site }, place);
      this.emit(`if (${may}) { ${this.#bring(words)} } else { ${this.#bring(['0', '0', '0', '0'])} }`);
    } else this.emit(this.#bring(words));
    this.#meet(op, site);
    this.#takeParts(result);
  }

  multiply(
    { op, a, b, half, sum }: OperationEffect<'warp.mma'>,
    result: Variable | null,
    site: number,
  ): void {
    const expressions = this.#expressions;
    const ofB = expressions.words(b).slice(2 * half, 2 * half + 2);
    this.emit(this.#bring([...expressions.words(a), ...ofB, ...expressions.words(sum)]));
    this.#meet(op, site);
    this.#takeParts(result);
  }

  #bring(words: readonly string[]): string {
    return words.map((word, i) => `parts[${matrixWords} * threadIdx + ${i}] = ${word};`).join(' ');
  }

  #takeParts(result: Variable | null): void {
    if (result === null) return;
    for (const [i, target] of this.#targets(result).entries())
      this.emit(`${target} = parts[${matrixWords} * threadIdx + ${i}];`);
  }

  #meet(op: WarpOp, site: number): void {
    this.emit(`t.site = ${site}; t.warpOp = ${warpOps.indexOf(op)}; yield ${pause.warp};`);
  }

  warp(effect: OperationEffect<WarpOp>, result: Variable | null, site: number): void {
    const value = 'value' in effect ? effect.value : 'test' in effect ? effect.test : null;
    if (value !== null) {
      const text = this.#expressions.scalar(value);
      this.emit(`values[threadIdx] = ${valueName(value) === 'bool' ? `${text} ? 1 : 0` : text};`);
    }
    if ('lane' in effect) this.emit(`lanes[threadIdx] = ${this.#expressions.scalar(effect.lane)};`);
    this.#meet(effect.op, site);
    if (result === null) return;
    const type = result.type.kind === 'value' ? result.type.name : 'v16';
    const text = 'values[threadIdx]';
    this.bind(result, type === 'bool' ? `${text} !== 0` : type === 'f32' ? text : `${text} | 0`);
  }
}
