/**
 * Multicast addresses, which stand for the same place on all ranks: a switch stores and adds to all, and loads what all hold as one.
 * That is an access of each rank's memory, in no order that others could rely on.
 */
import { type PtxOperand, ptxBytes } from '../../../lang/ptx/index.js';
import type { Instruction, Pair } from './code.js';
import {
  type Change,
  cells,
  change,
  combined,
  elements,
  type Ordering,
  ordering,
  plus,
  type Spot,
  spot,
  type Update,
  width,
} from './memory.js';

export function multimem(x: Instruction): void {
  const does = x.among('ld_reduce', 'st', 'red');
  const form = ordering(x);
  const op: Update = x.among('add', 'min', 'max', 'and', 'or', 'xor') ?? 'exch';
  x.has('global');
  const isWide = x.has('acc::f32');
  const count = width(x);
  const type = x.type();
  if (does === null || (op === 'exch') !== (does === 'st')) x.refuse('it says no operation that is known');
  const loads = does === 'ld_reduce';
  const registers = elements(x.operand(loads ? 0 : 1));
  if (registers.length !== count) x.refuse(`it is of ${count} and has ${registers.length} registers`);
  const at = spot(x, x.operand(loads ? 1 : 0), 'global');
  const all = x.simple(`t.everywhere({ buffer: ${at.buffer}, offset: ${at.offset} })`, 'q');
  registers.forEach((register, i) => {
    const of = {
      type,
      op,
      form,
      all,
      at: { buffer: 'each.buffer', offset: plus('each.offset', i * ptxBytes[type]), isShared: true },
    };
    if (loads) loadOne(x, register, of, isWide);
    else storeOne(x, register, of, does === 'st');
  });
}

interface Element extends Pick<Change, 'op' | 'type' | 'at'> {
  readonly form: Ordering;
  /** The places of all ranks. */
  readonly all: string;
}

function storeOne(
  x: Instruction,
  from: PtxOperand,
  { type, op, form, all, at }: Element,
  plain: boolean,
): void {
  const bytes = ptxBytes[type];
  const value: Pair = bytes === 8 ? x.pair(from) : [x.short(x.word(from), 'i'), '0'];
  const old: Pair = [x.code.temporary('i'), x.code.temporary('i')];
  const order = form.order === 'weak' && !plain ? 'relaxed' : form.order;
  x.code.line(`for (const each of ${all}) {`);
  const access = { kind: plain ? 'write' : 'update', order, scope: form.scope, bytes, site: x.site } as const;
  x.code.accesses.print(access, at, () => change(x, { op, type, at, old, value, swap: null }));
  x.code.line('}');
}

function loadOne(
  x: Instruction,
  to: PtxOperand,
  { type, op, form, all, at }: Element,
  isWide: boolean,
): void {
  const bytes = ptxBytes[type];
  const names = bytes === 8 ? 2 : 1;
  const [sum, got] = [0, 1].map(() => Array.from({ length: names }, () => x.code.temporary('i')));
  const sums = isWide && op === 'add' ? [0, 1].map(() => x.code.temporary('f')) : [];
  const isFirst = x.code.temporary('b');
  const float = (half: string): string =>
    type.startsWith('b') ? `floatOf(${half} << 16)` : `f16ToF32(${half})`;
  x.code.line(`${isFirst} = true; ${[...sum!, ...sums].map((one) => `${one} = 0;`).join(' ')}`);
  x.code.line(`for (const each of ${all}) {`);
  const seen = x.checked && form.order !== 'weak';
  const from: Spot = seen ? { ...at, buffer: 't.seen', offset: `(${at.offset} & 15)` } : at;
  x.code.accesses.print({ kind: 'read', ...form, bytes, site: x.site }, at, () => {
    for (const [i, cell] of cells(from.buffer, from.offset, bytes).entries())
      x.code.line(`${got![i]} = ${cell};`);
    sums.forEach((one, i) => {
      x.code.line(`${one} = fround(${one} + ${float(`(${got![0]} >>> ${16 * i} & 65535)`)});`);
    });
    x.code.line(`if (${isFirst}) { ${sum!.map((one, i) => `${one} = ${got![i]};`).join(' ')} } else {`);
    const result = combined(x, op, type, sum as unknown as Pair, got as unknown as Pair);
    x.code.line(
      sum!.length === 2
        ? `${sum![1]} = ${result[1]}; ${sum![0]} = ${result[0]};`
        : `${sum![0]} = ${result[0]};`,
    );
    x.code.line(`} ${isFirst} = false;`);
  });
  x.code.line('}');
  const round = type.startsWith('b') ? 'doubleToBf16' : 'doubleToF16';
  if (sums.length > 0)
    x.code.line(
      `${sum![0]} = ${round}(${sums[0]})${type.endsWith('x2') ? ` | ${round}(${sums[1]}) << 16` : ''};`,
    );
  if (bytes === 8) x.setPair(to, sum![0]!, sum![1]!, 'bits');
  else x.setWord(to, sum![0]!, type, 'bits');
}
