/** Blackwell's tensor memory in PTX: what the text of an instruction asks of `tensor-core.ts`. */
import type { PtxOperand } from '../../../lang/ptx/index.js';
import { type Instruction, meet } from './code.js';
import { placed, spot } from './memory.js';

export function tcgen05(x: Instruction): void {
  const pair = x.among('cta_group::1', 'cta_group::2') === 'cta_group::2';
  x.ignore(/^(sync|aligned)$/);
  const part = x.of.parts[1]!;
  x.has(part);
  if (part === 'alloc') {
    x.ignore(/^(shared::cta|b32)$/);
    const to = spot(x, x.operand(0), 'shared');
    const access = { kind: 'write', order: 'weak', scope: 'cta', bytes: 4, site: x.site } as const;
    whole(x, () => {
      const first = x.simple(`t.allocateTensor(${x.word(x.operand(1))}, ${x.site})`, 'i');
      x.code.accesses.print(access, to, () => x.code.line(`${to.buffer}.i32[${to.offset} >> 2] = ${first};`));
    });
  } else if (part === 'dealloc') {
    x.types();
    whole(x, () => x.code.line(`t.freeTensor(${x.word(x.operand(0))}, ${x.word(x.operand(1))}, ${x.site});`));
  } else if (part === 'relinquish_alloc_permit') whole(x, () => x.code.line('t.tensorMemory.relinquish();'));
  else if (part === 'mma') multiply(x, pair);
  else if (part === 'cp') copy(x, pair);
  else if (part === 'commit') commit(x);
  else if (part === 'ld' || part === 'st') move(x, part === 'ld');
  else if (part === 'wait::ld' || part === 'wait::st')
    x.code.line(`t.tensorMoves.commit(); t.tensorMoves.wait(0, ${part === 'wait::ld'});`);
  else if (part === 'fence::before_thread_sync' || part === 'fence::after_thread_sync') {
    if (x.checked)
      x.code.line(`t.fenceTensor('${part === 'fence::before_thread_sync' ? 'before' : 'after'}');`);
  } else x.refuse('of tcgen05, alloc, mma, cp, commit, ld and st of 32x32b, wait and fence are simulated');
}

/** The warp does it as one. */
function whole(x: Instruction, print: () => void): void {
  const together = { key: x.of.parts.join('.'), orders: true } as const;
  meet(x, together, '-1', []);
  x.code.line('if ((threadIdx & 31) === 0) {');
  print();
  x.code.line('}');
  meet(x, together, '-1', []);
}

function tensorAddress(x: Instruction, operand: PtxOperand): string {
  if (operand.kind !== 'address' || operand.base.kind !== 'register')
    x.refuse('an address of tensor memory must stand there');
  return x.simple(`${x.word(operand.base)} + ${operand.offset}`, 'i');
}

function multiply(x: Instruction, pair: boolean): void {
  const kind = x
    .among(...['f16', 'tf32', 'f8f6f4', 'i8', 'mxf8f6f4', 'mxf4', 'mxf4nvf4'].map((name) => `kind::${name}`))
    ?.slice(6);
  if (kind === undefined) x.refuse('its kind of product is not simulated');
  const isScaled = x.has('block_scale');
  /** Scales of a row. */
  const size = x.among('scale_vec::1X', 'scale_vec::2X', 'scale_vec::4X', 'block16', 'block32');
  const fours = size === 'scale_vec::4X' || size === 'block16';
  const each = kind === 'mxf8f6f4' ? 1 : fours ? 4 : 2;
  const [to, left, right, form, ...others] = x.operands;
  const scales = isScaled ? others.splice(0, 2).map((one) => tensorAddress(x, one)) : [];
  const rest = others;
  const adds = rest.find((one) => one.kind !== 'list');
  if (
    to === undefined ||
    left === undefined ||
    right === undefined ||
    form === undefined ||
    adds === undefined ||
    rest.length > 2
  )
    x.refuse(
      'it has other operands than sums, factors, their form, lanes that it leaves out, and whether it adds',
    );
  const lanes = rest.find((one) => one.kind === 'list');
  const out = lanes?.kind === 'list' ? lanes.elements.map((one) => x.word(one)).join(' | ') : '0';
  const a = left.kind === 'address' ? tensorAddress(x, left) : `[${x.pair(left)}]`;
  x.code.line(
    `t.multiplyTensor('${kind}', ${pair}, ${tensorAddress(x, to)}, ${a}, [${x.pair(right)}], ${x.word(form)}, ${x.predicate(adds)}, ${out}, ${isScaled ? `[${scales}, ${each}]` : 'null'}, ${x.site});`,
  );
}

function copy(x: Instruction, pair: boolean): void {
  const shape = x.among('32x128b', '128x128b', '128x256b');
  if (shape === null || (shape === '32x128b') !== x.has('warpx4'))
    x.refuse(
      'of copies to tensor memory, 32x128b.warpx4, 128x128b and 128x256b are simulated, of whole bytes',
    );
  const [rows, bits] = shape.slice(0, -1).split('x').map(Number);
  const address = tensorAddress(x, x.operand(0));
  x.code.line(
    `t.copyToTensor(${pair}, ${address}, [${x.pair(x.operand(1))}], [${rows}, ${bits! / 8}], ${x.site});`,
  );
}

function commit(x: Instruction): void {
  x.ignore(/^(mbarrier::arrive::one|shared::cluster|b64)$/);
  const many = x.has('multicast::cluster');
  const operand = x.operand(0);
  if (operand.kind !== 'address') x.refuse('it names no mbarrier');
  const at = placed(spot(x, operand, x.of.parts.includes('shared::cluster') ? 'shared' : null));
  x.code.line(`t.commitTensor(${at}, ${many ? x.word(x.operand(1)) : 'null'}, ${x.site});`);
}

/** Each lane of a warp moves columns of its own lane of tensor memory. */
function move(x: Instruction, loads: boolean): void {
  if (!x.has('32x32b')) x.refuse('only 32x32b is simulated');
  x.ignore(/^b32$/);
  const count = Number(x.among('x1', 'x2', 'x4', 'x8', 'x16', 'x32', 'x64', 'x128')?.slice(1) ?? 0);
  const list = x.operand(loads ? 0 : 1);
  const registers = list.kind === 'list' ? list.elements : [list];
  if (registers.length !== count) x.refuse(`it moves ${count} words and has ${registers.length} registers`);
  const address = tensorAddress(x, x.operand(loads ? 1 : 0));
  meet(x, { key: x.of.parts.join('.') }, '-1', []);
  const at = x.simple(`t.tensorAt(${address}, ${count}, ${loads}, ${x.site})`, 'q');
  registers.forEach((register, i) => {
    const cell = `${at}.buffer.i32[(${at}.offset >> 2) + ${i}]`;
    if (loads) x.setWord(register, cell, 'b32', 'bits');
    else x.code.line(`${cell} = ${x.word(register, 'b32', 'bits')};`);
  });
}
