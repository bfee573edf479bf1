/**
 * The requests of operations to the simulated machine, as JavaScript statements. `t` is the running thread (thread.ts); what a
 * single thread can do by itself is printed inline, what needs others is handed to the machine with a `yield`.
 */
import {
  type AccessForm,
  type Argument,
  type Await,
  byteSize,
  type Expr,
  type FenceOrder,
  type IrType,
  type OperationEffect,
  type OperationName,
  type Order,
  operations,
  type Pause,
  type Scope,
  type SimRequests,
  type Space,
  type Stmt,
  type Variable,
} from '../../../lang/index.js';
import { pause, type StatementAccess } from '../compiled.js';
import { bringing, word } from '../lanes.js';
import type { Accesses } from '../late.js';
import {
  type Address,
  bitsOf,
  type Expressions,
  floatFrom,
  type Printing,
  valueName,
} from './expressions.js';

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

export class Effects implements SimRequests {
  site = 0;
  /** The effect that is printed, and where its result goes. */
  #op: OperationName = 'barrier';
  #result: Variable | null = null;
  /** Accesses are to `each`, one of the places that a pointer stands for. */
  #isElsewhere = false;
  readonly #in: Printing;
  readonly #expressions: Expressions;
  readonly #accesses: Accesses<Stmt>;

  constructor(printing: Printing, expressions: Expressions, accesses: Accesses<Stmt>) {
    this.#in = printing;
    this.#expressions = expressions;
    this.#accesses = accesses;
  }

  polls(): void {
    this.#in.polls();
  }

  effect<Op extends OperationName>(effect: OperationEffect<Op>, result: Variable | null, site: number): void {
    this.#op = effect.op;
    this.#result = result;
    this.site = site;
    operations[effect.op].simulate(effect, this);
  }

  call(method: string, ...args: readonly Argument[]): void {
    this.#in.emit(`${this.#calling(method, args)};`);
  }

  check(method: string, ...args: readonly Argument[]): void {
    if (this.#in.checked) this.call(method, ...args);
  }

  give(method: string, ...args: readonly Argument[]): void {
    this.#bind(this.#calling(method, args));
  }

  stop(): void {
    this.#in.emit('debugger;');
  }

  print(words: readonly (string | Expr)[]): void {
    const texts = words.map((word) => {
      if (typeof word === 'string') return JSON.stringify(word);
      const text = this.#expressions.scalar(word);
      const type = valueName(word);
      return type === 'u32' ? `${text} >>> 0` : type === 'f32' ? `Number(${text}.toPrecision(6))` : text;
    });
    this.#in.emit(`t.say([${texts.join(', ')}].join(' '));`);
  }

  pause(reason: Pause, method?: string, ...args: readonly Argument[]): void {
    const before = method === undefined ? `t.site = ${this.site}` : this.#calling(method, args);
    this.#in.emit(`${before}; yield ${pause[reason]};`);
  }

  #calling(method: string, args: readonly Argument[]): string {
    return `t.${method}(${this.#arguments(args)})`;
  }

  #arguments(args: readonly Argument[]): string {
    const texts = args.map((arg) => {
      if (typeof arg !== 'object') return String(arg);
      if (isList(arg)) return `[${arg.map((one) => this.#expressions.scalar(one)).join(', ')}]`;
      if ('order' in arg)
        return this.#in.named.access({ ...arg, scope: this.#reach(arg.scope), site: this.site });
      if (arg.kind === 'array') return this.#in.locals.arrayOf(arg.array);
      if (arg.type.kind === 'tensorMap') return this.#expressions.tensor(arg);
      if (arg.type.kind !== 'pointer') return this.#expressions.scalar(arg);
      const { buffer, offset } = this.#expressions.place(arg);
      return `{ buffer: ${buffer}, offset: ${offset} }`;
    });
    return texts.join(', ');
  }

  /** mbarriers of a block in a cluster are seen by all of it. Blocks of a cluster are no nearer to each other than others here. */
  #reach(scope: Scope): Scope {
    return this.#in.inCluster && this.#op.startsWith('mbarrier.') ? 'gpu' : scope;
  }

  #bind(text: string): void {
    const result = this.#result;
    if (result === null) return;
    const slot = this.#in.locals.declare(result);
    if (slot.kind !== 'scalar') throw new Error(`${result.name} is not a scalar`);
    this.#in.emit(`${slot.name} = ${text};`);
  }

  /** A pointer as two plain locals, and its element's view and index. */
  #place(pointer: Expr) {
    if (pointer.type.kind !== 'pointer') throw new Error('an access needs a pointer');
    const { to, space } = pointer.type;
    const address: Address = this.#isElsewhere
      ? { buffer: 'each.buffer', offset: 'each.offset' }
      : this.#expressions.place(pointer);
    const buffer = this.#expressions.simple(address.buffer, 'q');
    const offset = this.#expressions.simple(address.offset, 'i');
    const [view, shift] = views[to];
    const index = /^\d+$/.test(offset) ? String(Number(offset) >>> shift) : `${offset} >>> ${shift}`;
    return { to, space, buffer, offset, view: `${buffer}.${view}`, index, bytes: byteSize[to] };
  }

  load(pointer: Expr, order: Order, scope: Scope, targets = this.#targets()): void {
    const place = this.#place(pointer);
    if (order !== 'weak') this.polls();
    const zero = place.to === 'u64' ? '0n' : '0';
    const make = () => {
      if (targets.length > 0)
        this.#set(targets, this.#words(this.#in.checked && order !== 'weak' ? this.#seen(place) : place));
    };
    const refused = () => this.#set(targets, Array(targets.length).fill(zero));
    this.#accesses.print(this.#formOf({ kind: 'read', order, scope }, place), place, make, { refused });
  }

  #formOf(access: Omit<AccessForm, 'bytes'>, { bytes }: Pick<AccessForm, 'bytes'>): StatementAccess {
    return { ...access, bytes, site: this.site };
  }

  #set(targets: readonly string[], values: readonly string[]): void {
    for (const [i, target] of targets.entries()) this.#in.emit(`${target} = ${values[i]};`);
  }

  /** The place in which checked mode leaves what an atomic load reads. */
  #seen({ to, offset }: { to: MemoryType; offset: string }) {
    const [view, shift] = views[to];
    return { to, view: `t.seen.${view}`, index: `(${offset} & 15) >>> ${shift}` };
  }

  /** The element at a place, or the words of a vector. */
  #words({ to, view, index }: { to: MemoryType; view: string; index: string }): readonly string[] {
    if (to !== 'v16') return [`${view}[${index}]`];
    const words = this.#expressions.simple(view, 'q');
    const first = this.#in.locals.temporary('i');
    this.#in.emit(`${first} = ${index};`);
    return [0, 1, 2, 3].map((i) => `${words}[${i === 0 ? first : `${first} + ${i}`}]`);
  }

  #targets(): readonly string[] {
    const result = this.#result;
    if (result === null) return [];
    const slot = this.#in.locals.declare(result);
    if (slot.kind === 'v16') return slot.words;
    if (slot.kind === 'scalar') return [slot.name];
    throw new Error(`${result.name} cannot be loaded`);
  }

  store(pointer: Expr, value: Expr, order: Order, scope: Scope): void {
    const place = this.#place(pointer);
    const values =
      place.to === 'v16'
        ? this.#expressions.words(value)
        : [this.#expressions.convertText(this.#expressions.scalar(value), valueName(value), place.to)];
    const make = () => this.#set(this.#words(place), values);
    this.#accesses.print(this.#formOf({ kind: 'write', order, scope }, place), place, make);
  }

  update(
    pointer: Expr,
    value: Expr,
    order: Order,
    scope: Scope,
    change: (before: string, value: string) => string,
    expected?: Expr,
  ): void {
    const place = this.#place(pointer);
    const kind = place.to === 'u64' ? 'n' : 'i';
    const by = this.#expressions.simple(this.#expressions.scalar(value), kind);
    const wanted =
      expected === undefined ? null : this.#expressions.simple(this.#expressions.scalar(expected), kind);
    const old = this.#in.locals.temporary(kind);
    const at = `${place.view}[${place.index}]`;
    const miss = wanted === null ? null : { test: `${at} !== ${wanted}`, read: `${old} = ${at};` };
    if (this.#in.checked) this.#in.emit(`${old} = ${kind === 'n' ? '0n' : '0'};`);
    const make = () => {
      this.#in.emit(`${old} = ${at};`);
      this.#in.emit(`${wanted === null ? '' : `if (${old} === ${wanted}) `}${at} = ${change(old, by)};`);
    };
    this.#accesses.print(this.#formOf({ kind: 'update', order, scope }, place), place, make, { miss });
    this.#bind(old);
  }

  elsewhere(
    method: 'inBlock' | 'everywhere',
    pointer: Expr,
    args: readonly Argument[],
    make: () => void,
  ): void {
    this.#in.emit(`for (const each of ${this.#calling(method, [pointer, ...args])}) {`);
    this.#isElsewhere = true;
    make();
    this.#isElsewhere = false;
    this.#in.emit('}');
  }

  sumEverywhere(pointer: Expr, of: 'f32' | 'bf16' | 'f16', order: Order, scope: Scope): void {
    const words = this.#targets();
    const parts = words.flatMap((word) =>
      of === 'f32'
        ? [floatFrom(word)]
        : [`${word} & 65535`, `${word} >>> 16`].map((half) => `${of}ToF32(${half})`),
    );
    const sums = parts.map(() => this.#in.locals.temporary('f'));
    this.#set(sums, Array(sums.length).fill('-0'));
    this.elsewhere('everywhere', pointer, [], () => {
      this.load(pointer, order, scope, words);
      this.#set(
        sums,
        sums.map((sum, i) => `fround(${sum} + ${parts[i]})`),
      );
    });
    const bits = sums.map((sum) =>
      of === 'f32' ? bitsOf(sum) : `f32To${of === 'bf16' ? 'Bf' : 'F'}16(${sum})`,
    );
    this.#set(
      words,
      words.map((_, i) => (of === 'f32' ? bits[i]! : `${bits[2 * i]} | ${bits[2 * i + 1]} << 16`)),
    );
  }

  fence(order: FenceOrder, scope: Scope): void {
    if (!this.#in.checked) return;
    this.#accesses.fence();
    this.#in.emit(`yield ${pause.preempt};`);
    this.#in.emit(`t.fence('${order}', '${scope}');`);
  }

  proxyFence(space: Space): void {
    if (this.#in.checked) this.#in.emit(`t.proxyFence('${space}');`);
  }

  await(pointer: Expr, { until, wanted: by, mask: of, limit: most, order, scope }: Await): void {
    const place = this.#place(pointer);
    const filled = place.to === 'v16';
    const simple = (e: Expr): string => this.#expressions.simple(this.#expressions.scalar(e), 'i');
    const wanted = simple(by);
    const mask = of === undefined ? '-1' : simple(of).replace(/^\((.*)\)$/, '$1');
    const limit = simple(most);
    const kind = filled ? 'filled' : place.to === 'u64' ? 'long' : 'word';
    const access = { kind: 'read', order, scope, bytes: place.bytes, site: this.site } as const;
    const at = `${this.#in.named.wait({ kind, until, access })}, ${place.buffer}, ${place.offset}`;
    const wait = `t.waitFor(${at}, { mask: ${mask}, wanted: ${wanted}, limit: ${limit} }); yield ${pause.wait};`;
    if (this.#in.checked) {
      this.#in.emit(wait);
      if (!filled) this.#bind('t.satisfied');
    } else {
      const looked = filled
        ? `${place.view}[(${place.index}) + 3]`
        : `${place.buffer}.i32[${place.offset} >>> 2]`;
      const is = mask === '-1' ? looked : `(${looked} & ${mask})`;
      const done = this.#in.locals.temporary('b');
      this.#in.emit(
        `${done} = ${until === '>=' ? `(${is} - ${wanted} | 0) >= 0` : `${is} ${until}= ${wanted}`};`,
      );
      this.#in.emit(`if (!${done} && ${limit} !== 0) { ${wait} ${done} = t.satisfied; }`);
      if (!filled) this.#bind(done);
    }
    if (filled && this.#result !== null) {
      const words = this.#words(this.#in.checked ? this.#seen(place) : place);
      this.#set(
        this.#targets(),
        words.map((word) => `${word} | 0`),
      );
    }
  }

  awaitPhase(barrier: Expr, parity: Expr, limit: Expr): void {
    const scope = this.#reach('cta');
    const access = { kind: 'read', order: 'acquire', scope, bytes: 8, site: this.site } as const;
    const wait = this.#in.named.wait({ kind: 'phase', until: '!=', access });
    const operands = [barrier, parity, limit];
    this.#in.emit(`t.waitForPhase(${wait}, ${this.#arguments(operands)}); yield ${pause.wait};`);
    this.#bind('t.satisfied');
  }

  bringRow(row: Expr): void {
    const place = this.#place(row);
    const words = this.#words(place);
    const make = () => this.#in.emit(bringing(words));
    const refused = () => this.#in.emit(bringing(['0', '0', '0', '0']));
    const access = this.#formOf({ kind: 'read', order: 'weak', scope: 'cta' }, place);
    this.#accesses.print(access, place, make, { refused });
  }

  words(vector: Expr): readonly string[] {
    return this.#expressions.words(vector);
  }

  meet(...brought: readonly (Expr | string)[]): void {
    if (brought.length > 0) this.#in.emit(bringing(brought.map((one) => this.#wordOf(one))));
    const meeting = {
      ...operations[this.#op].together,
      key: `${this.#op} ${this.site}`,
      whole: true,
    } as const;
    this.#in.emit(this.#in.named.meet(meeting, '-1', this.site));
    const type = this.#result?.type;
    if (type?.kind !== 'value') return;
    if (type.name === 'v16') this.#set(this.#targets(), [0, 1, 2, 3].map(word));
    else
      this.#bind(
        type.name === 'bool' ? `${word(0)} !== 0` : type.name === 'f32' ? floatFrom(word(0)) : word(0),
      );
  }

  #wordOf(brought: Expr | string): string {
    if (typeof brought === 'string') return brought;
    const text = this.#expressions.scalar(brought);
    const type = valueName(brought);
    return type === 'bool' ? `${text} ? 1 : 0` : type === 'f32' ? bitsOf(text) : text;
  }
}

const isList = (arg: object): arg is readonly Expr[] => Array.isArray(arg);
