/**
 * Effects as JavaScript statements. `t` is the running thread (thread.ts); what a single thread can do by itself is
 * printed inline, what needs others is handed to the machine with a `yield`.
 *
 * Fast mode touches the views and nothing else. Checked mode asks `t.access` first, which checks bounds, alignment
 * and initialisation and tells the race detector, and offers the scheduler a switch before every synchronising
 * access. Switching at synchronising accesses only loses nothing: two weak accesses that a switch between them could
 * tell apart race, and the detector finds a race whatever their order in the run.
 */
import { byteSize, type Effect, type Expr, type IrType, type Variable } from '../../lang/index.js';
import { pause, type WarpOp, warpOps } from '../compiled.js';
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

export class Effects {
  constructor(
    private readonly expressions: Expressions,
    private readonly locals: Locals,
    private readonly checked: boolean,
    private readonly emit: (line: string) => void,
  ) {}

  effect(effect: Effect, result: Variable | null, site: number): void {
    switch (effect.op) {
      case 'load':
        this.load(effect, result, site);
        return;
      case 'store':
        this.store(effect, site);
        return;
      case 'atomic':
      case 'compareExchange':
        this.atomic(effect, result, site);
        return;
      case 'fence':
        if (this.checked) {
          this.emit(`yield ${pause.preempt};`);
          this.emit(`t.fence('${effect.scope}', ${site});`);
        }
        return;
      case 'awaitEpoch':
      case 'awaitFilled':
        this.awaitFlag(effect, result, site);
        return;
      case 'barrier':
        this.emit(`t.site = ${site}; yield ${pause.barrier};`);
        return;
      case 'warpBarrier':
      case 'shuffle':
      case 'shuffleXor':
      case 'shuffleUp':
      case 'shuffleDown':
      case 'ballot':
      case 'any':
      case 'all':
      case 'match':
      case 'elect':
        this.warp(effect, result, site);
        return;
      case 'clock':
        this.bind(result, 't.clock()');
        return;
      case 'sleep':
        this.emit(`t.sleep(${this.expressions.scalar(effect.nanoseconds)}); yield ${pause.sleep};`);
        return;
      case 'prefetch':
        return;
      case 'awaitPrevious':
        this.emit(`t.site = ${site}; yield ${pause.previous};`);
        return;
      case 'releaseNext':
        this.emit('t.releaseNext();');
        return;
      case 'bulkLoad': {
        const [to, from, barrier] = [effect.to, effect.from, effect.barrier].map((p) => this.pair(p));
        const bytes = this.expressions.scalar(effect.bytes);
        this.emit(`t.bulkLoad(${to}, ${from}, ${bytes}, ${barrier}, ${site});`);
        return;
      }
      case 'bulkStore': {
        const [to, from] = [effect.to, effect.from].map((p) => this.pair(p));
        this.emit(`t.bulkStore(${to}, ${from}, ${this.expressions.scalar(effect.bytes)}, ${site});`);
        return;
      }
      case 'bulkCommit':
        this.emit('t.bulkCommit();');
        return;
      case 'bulkWait':
        this.emit(`t.bulkWait(${effect.pending}, ${effect.reads});`);
        return;
      case 'mbarrierInit':
        this.emit(
          `t.mbarrierInit(${this.pair(effect.barrier)}, ${this.expressions.scalar(effect.count)}, ${site});`,
        );
        return;
      case 'mbarrierExpect':
        this.emit(
          `t.mbarrierExpect(${this.pair(effect.barrier)}, ${this.expressions.scalar(effect.bytes)}, ${site});`,
        );
        return;
      case 'mbarrierAwait': {
        const parity = this.expressions.scalar(effect.parity);
        this.emit(`t.waitForPhase(${this.pair(effect.barrier)}, ${parity}, ${site}); yield ${pause.wait};`);
        return;
      }
    }
  }

  private pair(e: Expr): string {
    const { buffer, offset } = this.expressions.address(e);
    return `${buffer}, ${offset}`;
  }

  /** Declares the result and sets it. */
  private bind(result: Variable | null, text: string): void {
    if (result === null) return;
    const slot = this.locals.declare(result);
    if (slot.kind !== 'scalar') throw new Error(`${result.name} is not a scalar`);
    this.emit(`${slot.name} = ${text};`);
  }

  /** A pointer as two plain locals, and its element's view and index. */
  private place(pointer: Expr) {
    if (pointer.type.kind !== 'pointer') throw new Error('an access needs a pointer');
    const { to, space } = pointer.type;
    const address: Address = this.expressions.address(pointer);
    const buffer = this.expressions.simple(address.buffer, 'q');
    const offset = this.expressions.simple(address.offset, 'i');
    const [view, shift] = views[to];
    const index = /^\d+$/.test(offset) ? String(Number(offset) >>> shift) : `${offset} >>> ${shift}`;
    return { to, space, buffer, offset, view: `${buffer}.${view}`, index, bytes: byteSize[to] };
  }

  /** Counts bytes that move between ranks: `traffic` is [stored, loaded]. */
  private count(place: { space: string; buffer: string; bytes: number }, direction: 0 | 1): void {
    if (place.space === 'shared') return;
    this.emit(`if (${place.buffer}.rank !== home) traffic[${direction}] += ${place.bytes};`);
  }

  private preempt(
    order: string,
    place: { buffer: string; offset: string; bytes: number },
    writes: boolean,
  ): void {
    if (!this.checked || order === 'weak') return;
    this.emit(
      `t.about(${place.buffer}, ${place.offset}, ${place.bytes}, ${writes}); yield ${pause.preempt};`,
    );
  }

  private load(effect: Extract<Effect, { op: 'load' }>, result: Variable | null, site: number): void {
    const place = this.place(effect.pointer);
    this.preempt(effect.order, place, false);
    const targets = result === null ? [] : this.targets(result);
    const guard = this.checked
      ? `t.access('read', '${effect.order}', '${effect.scope}', ${place.buffer}, ${place.offset}, ${place.bytes}, ${site})`
      : null;
    if (result === null && guard !== null) {
      this.emit(`${guard};`);
      return;
    }
    const zero = place.to === 'u64' ? '0n' : '0';
    if (guard !== null) this.emit(`if (${guard}) {`);
    if (place.to === 'v16') {
      const view = this.expressions.simple(`${place.view}`, 'q');
      const index = this.locals.temporary('i');
      this.emit(`${index} = ${place.index};`);
      targets.forEach((target, i) => {
        this.emit(`${target} = ${view}[${i === 0 ? index : `${index} + ${i}`}];`);
      });
    } else {
      for (const target of targets) this.emit(`${target} = ${place.view}[${place.index}];`);
    }
    this.count(place, 1);
    if (guard !== null) this.emit(`} else { ${targets.map((target) => `${target} = ${zero};`).join(' ')} }`);
  }

  private targets(result: Variable): readonly string[] {
    const slot = this.locals.declare(result);
    if (slot.kind === 'v16') return slot.words;
    if (slot.kind === 'scalar') return [slot.name];
    throw new Error(`${result.name} cannot be loaded`);
  }

  private store(effect: Extract<Effect, { op: 'store' }>, site: number): void {
    const place = this.place(effect.pointer);
    const values =
      place.to === 'v16'
        ? this.expressions.words(effect.value)
        : [
            this.expressions.convertText(
              this.expressions.scalar(effect.value),
              valueName(effect.value),
              place.to,
            ),
          ];
    this.preempt(effect.order, place, true);
    if (this.checked) {
      this.emit(
        `if (t.access('write', '${effect.order}', '${effect.scope}', ${place.buffer}, ${place.offset}, ${place.bytes}, ${site})) {`,
      );
    }
    if (place.to === 'v16') {
      const view = this.expressions.simple(`${place.view}`, 'q');
      const index = this.locals.temporary('i');
      this.emit(`${index} = ${place.index};`);
      values.forEach((value, i) => {
        this.emit(`${view}[${i === 0 ? index : `${index} + ${i}`}] = ${value};`);
      });
    } else {
      this.emit(`${place.view}[${place.index}] = ${values[0]};`);
    }
    this.count(place, 0);
    this.wrote(place);
    if (this.checked) this.emit('}');
  }

  /** Fast mode looks at parked threads only once nothing else can run; checked mode wakes them at the store. */
  private wrote(place: { buffer: string; offset: string; bytes: number }): void {
    if (!this.checked) return;
    this.emit(
      `if (${place.buffer}.waiters !== 0) t.wrote(${place.buffer}, ${place.offset}, ${place.bytes});`,
    );
  }

  private atomic(
    effect: Extract<Effect, { op: 'atomic' | 'compareExchange' }>,
    result: Variable | null,
    site: number,
  ): void {
    const place = this.place(effect.pointer);
    const kind = place.to === 'u64' ? 'n' : 'i';
    const value = this.expressions.simple(this.expressions.scalar(effect.value), kind);
    const compare =
      effect.op === 'compareExchange'
        ? this.expressions.simple(this.expressions.scalar(effect.compare), kind)
        : '';
    this.preempt(effect.order, place, true);
    const old = this.locals.temporary(kind);
    const at = `${place.view}[${place.index}]`;
    if (this.checked) {
      this.emit(`${old} = ${kind === 'n' ? '0n' : '0'};`);
      this.emit(
        `if (t.access('update', '${effect.order}', '${effect.scope}', ${place.buffer}, ${place.offset}, ${place.bytes}, ${site})) {`,
      );
    }
    this.emit(`${old} = ${at};`);
    if (effect.op === 'compareExchange') this.emit(`if (${old} === ${compare}) ${at} = ${value};`);
    else this.emit(`${at} = ${updated(effect.name, place.to, old, value)};`);
    this.count(place, 0);
    this.wrote(place);
    if (this.checked) this.emit('}');
    this.bind(result, old);
  }

  private awaitFlag(
    effect: Extract<Effect, { op: 'awaitEpoch' | 'awaitFilled' }>,
    result: Variable | null,
    site: number,
  ): void {
    const place = this.place(effect.pointer);
    const wanted = effect.op === 'awaitFilled' ? effect.empty : effect.epoch;
    const epoch = this.expressions.simple(this.expressions.scalar(wanted), 'i');
    const limit = this.expressions.simple(this.expressions.scalar(effect.limit), 'i');
    const filled = effect.op === 'awaitFilled';
    const order = filled ? 'relaxed' : effect.order;
    const wait = `t.waitFor(${filled}, ${place.buffer}, ${place.offset}, ${epoch}, ${limit}, '${order}', '${effect.scope}', ${site}); yield ${pause.wait};`;
    const ready = filled
      ? `${place.view}[(${place.index}) + 3] !== ${epoch}`
      : `(${place.view}[${place.index}] - ${epoch} | 0) >= 0`;
    if (this.checked) {
      this.emit(wait);
      if (!filled) this.bind(result, 't.satisfied');
    } else {
      const done = this.locals.temporary('b');
      this.emit(`${done} = ${ready};`);
      this.emit(`if (!${done} && ${limit} !== 0) { ${wait} ${done} = t.satisfied; }`);
      if (!filled) this.bind(result, done);
    }
    if (filled && result !== null) {
      this.targets(result).forEach((target, i) => {
        this.emit(`${target} = ${place.view}[(${place.index}) + ${i}] | 0;`);
      });
      this.count(place, 1);
    }
  }

  private warp(effect: Extract<Effect, { op: WarpOp }>, result: Variable | null, site: number): void {
    if (effect.op === 'elect' && !this.checked) {
      this.bind(result, 'laneId === 0');
      return;
    }
    if ('value' in effect) {
      const value = this.expressions.scalar(effect.value);
      const type = valueName(effect.value);
      this.emit(`values[threadIdx] = ${type === 'bool' ? `${value} ? 1 : 0` : value};`);
    }
    if ('lane' in effect) this.emit(`lanes[threadIdx] = ${this.expressions.scalar(effect.lane)};`);
    this.emit(`t.site = ${site}; t.warpOp = ${warpOps.indexOf(effect.op)}; yield ${pause.warp};`);
    if (result === null || effect.op === 'warpBarrier') return;
    const type = result.type.kind === 'value' ? result.type.name : 'v16';
    const text = 'values[threadIdx]';
    this.bind(result, type === 'bool' ? `${text} !== 0` : type === 'f32' ? text : `${text} | 0`);
  }
}

function updated(
  name: Extract<Effect, { op: 'atomic' }>['name'],
  type: MemoryType,
  old: string,
  value: string,
): string {
  switch (name) {
    case 'add':
      return `${old} + ${value}`;
    case 'or':
      return `${old} | ${value}`;
    case 'exchange':
      return value;
    case 'max':
      return `${type === 'u32' ? 'umax' : type === 'u64' ? 'lmax' : 'max'}(${old}, ${value})`;
  }
}
