/** Instructions with which threads go elsewhere, meet others, wait, copy beside themselves, or end. */
import { dealMatrices, matrixWords, multiplyMatrices, operations, shuffles } from '../../../lang/index.js';
import { type PtxInstruction, type PtxOperand, ptxBytes } from '../../../lang/ptx/index.js';
import { f16ToF32 } from '../../index.js';
import { pause } from '../compiled.js';
import { type Element, elementTypes, isElementType } from '../factors.js';
import { bringing, type LaneMeeting, word } from '../lanes.js';
import { type Instruction, meet } from './code.js';
import { type Handler, placed, scopeOf, spaceOf, spot } from './memory.js';
import { multimem } from './multimem.js';
import { tcgen05 } from './tcgen05.js';
import { box, getctarank, mapa, setmaxnreg, tensormap, wgmma } from './tiles.js';

/** A thread waits until nobody else can go on. No file can say so: words of PTX have no blanks. */
const quiet = 'until quiet';

export const together: Readonly<Record<string, Handler>> = {
  bra: (x) => jump(x, (to) => String(to)),
  brx: (x) => jump(x, (...to) => `[${to}][${x.word(x.operand(0))}]`),
  ret: end,
  exit: end,
  bar: barrier,
  barrier,
  shfl,
  vote,
  match,
  redux,
  elect,
  activemask(x) {
    // Nothing says that other lanes are here too.
    x.type();
    x.setWord(x.operand(0), '1 << (threadIdx & 31)');
  },
  ldmatrix,
  stmatrix,
  mma,
  griddepcontrol(x) {
    const what = x.among('wait', 'launch_dependents', quiet);
    if (what === quiet)
      x.code.line(
        `t.site = ${x.site}; t.quietScope = '${x.among('cta', 'gpu', 'sys')}'; yield ${pause.quiet};`,
      );
    else if (what === 'wait') x.code.line(`t.site = ${x.site}; yield ${pause.previous};`);
    else x.code.line('t.releaseNext();');
  },
  nanosleep(x) {
    x.type();
    x.code.line(`t.sleep(${x.word(x.operand(0))}); yield ${pause.sleep};`);
  },
  trap(x) {
    x.code.line(`t.trap(${x.site});`);
  },
  brkpt() {},
  call,
  cp: copy,
  mbarrier,
  multimem,
  tcgen05,
  tensormap,
  wgmma,
  setmaxnreg,
  mapa,
  getctarank,
};

function jump(x: Instruction, choose: (...to: readonly number[]) => string): void {
  x.ignore(/^(uni|idx)$/);
  const { blocks, targetsOf } = x.code.flow;
  const to = targetsOf(x.of);
  const from = blocks.findIndex(({ instructions }) => instructions.at(-1) === x.of);
  const first = Math.min(...to);
  if (first <= from) {
    // A jump backwards makes a loop of all blocks from its target to here.
    const loop = blocks.slice(first, from + 1).flatMap(({ instructions }) => instructions);
    if (x.checked) x.code.line(`if (++t.turns > t.block.launch.mostTurns) t.endless(${x.site});`);
    else if (loop.some(polls)) x.code.line(`yield ${pause.preempt};`);
    else x.code.line('t.turns++;');
  }
  x.code.line(`at = ${choose(...to)}; continue flow;`);
}

function end(x: Instruction): void {
  x.has('uni');
  x.code.line('break flow;');
}

/** Whether it looks at what others do meanwhile, so that a loop with it may wait for them. */
function polls({ parts }: PtxInstruction): boolean {
  const [name] = parts;
  if (name === 'atom' || name === 'nanosleep') return true;
  if (name === 'ld') return parts.some((part) => ['relaxed', 'acquire', 'volatile', 'mmio'].includes(part));
  return name === 'mbarrier' && (parts.includes('try_wait') || parts.includes('test_wait'));
}

/** Functions with a body have become part of the kernel: what is left is the machine's own. */
function call(x: Instruction): void {
  x.has('uni');
  const at = x.operands.findIndex(({ kind }) => kind !== 'list');
  const [name, given] = x.operands.slice(at);
  const own = name?.kind === 'symbol' && given?.kind === 'list' ? name.name : '';
  if (given?.kind !== 'list' || (own !== 'vprintf' && own !== '__assertfail'))
    x.refuse('a function is called whose body is in no file that was read, or by its address');
  const read = (operand: PtxOperand | undefined): string => {
    if (operand?.kind !== 'symbol') x.refuse('its operands must be parameters');
    const { buffer, offset } = spot(
      x,
      { kind: 'address', base: operand, offset: 0, coordinates: [] },
      'param',
    );
    const at = `${buffer}.i32[(${offset}) >> 2]`;
    return `{ slot: ${buffer}.i32[(${offset} >> 2) + 1], low: ${at} }`;
  };
  const [text, values] = given.elements;
  x.code.line(`t.print(${read(text)}, ${own === 'vprintf' ? read(values) : 'null'});`);
  if (own === '__assertfail') x.code.line(`t.trap(${x.site});`);
}

type Complete = NonNullable<LaneMeeting['complete']>;

/** What lanes bring and get is the same as in TypeScript's operations. */
const ballot = operations['warp.ballot'].together!;
const alike = operations['warp.match'].together!;

function each(mask: number, run: (lane: number) => void): void {
  for (let rest = mask; rest !== 0; rest &= rest - 1) run(31 - Math.clz32(rest & -rest));
}

function shfl(x: Instruction): void {
  if (!x.has('sync')) x.refuse('lanes without a mask are not known to be together');
  const mode = x.among('up', 'down', 'bfly', 'idx');
  if (mode === null) x.refuse('it says no mode');
  x.type();
  const to = x.operand(0);
  const words = [1, 2, 3].map((i) => x.word(x.operand(i)));
  const meeting = { key: `shfl ${mode}`, complete: shuffles[mode] };
  meet(x, meeting, x.word(x.operand(4)), words);
  const [value, valid] = to.kind === 'pair' ? [to.first, to.second] : [to, null];
  x.setWord(value, word(0), 'b32', 'bits');
  if (valid !== null) x.setPredicate(valid, `${word(1)} !== 0`);
}

function vote(x: Instruction): void {
  if (!x.has('sync')) x.refuse('lanes without a mask are not known to be together');
  const mode = x.among('ballot', 'any', 'all', 'uni');
  if (mode === null) x.refuse('it says no mode');
  if (mode === 'ballot') x.type();
  else x.has('pred');
  const mask = x.word(x.operand(2));
  meet(x, { key: `vote ${mode}`, ...ballot }, mask, [`${x.predicate(x.operand(1))} ? 1 : 0`]);
  const to = x.operand(0);
  if (mode === 'ballot') x.setWord(to, word(0));
  else if (mode === 'any') x.setPredicate(to, `${word(0)} !== 0`);
  else if (mode === 'all') x.setPredicate(to, `${word(0)} === ${word(1)}`);
  else x.setPredicate(to, `${word(0)} === 0 || ${word(0)} === ${word(1)}`);
}

function match(x: Instruction): void {
  const mode = x.among('any', 'all');
  if (mode === null || !x.has('sync')) x.refuse('it says no mode');
  const isWide = ptxBytes[x.type()] === 8;
  const operand = x.operand(1);
  const words = isWide ? x.pair(operand) : [x.word(operand), '0'];
  meet(x, { key: `match ${mode} ${isWide}`, ...alike }, x.word(x.operand(2)), words);
  const to = x.operand(0);
  if (mode === 'any') {
    x.setWord(to, word(0));
    return;
  }
  const [value, all] = to.kind === 'pair' ? [to.first, to.second] : [to, null];
  const same = x.simple(`${word(0)} === ${word(1)}`, 'b');
  x.setWord(value, `${same} ? ${word(1)} : 0`);
  if (all !== null) x.setPredicate(all, same);
}

const reductions: Readonly<Record<string, (a: number, b: number) => number>> = {
  'add u32': (a, b) => (a + b) | 0,
  'add s32': (a, b) => (a + b) | 0,
  'min u32': (a, b) => (a >>> 0 < b >>> 0 ? a : b),
  'max u32': (a, b) => (a >>> 0 > b >>> 0 ? a : b),
  'min s32': Math.min,
  'max s32': Math.max,
  'and b32': (a, b) => a & b,
  'or b32': (a, b) => a | b,
  'xor b32': (a, b) => a ^ b,
};

function redux(x: Instruction): void {
  x.has('sync');
  const op = x.among('add', 'min', 'max', 'and', 'or', 'xor');
  const type = x.type();
  const combine = reductions[`${op} ${type}`];
  if (combine === undefined) x.refuse('it reduces in no way that is known');
  const complete: Complete = (words, first, mask) => {
    let result: number | null = null;
    each(mask, (lane) => {
      const value = words[matrixWords * (first + lane)]!;
      result = result === null ? value : combine(result, value);
    });
    each(mask, (lane) => {
      words[matrixWords * (first + lane)] = result!;
    });
  };
  meet(x, { key: `redux ${op} ${type}`, complete }, x.word(x.operand(2)), [x.word(x.operand(1))]);
  x.setWord(x.operand(0), word(0));
}

function elect(x: Instruction): void {
  x.has('sync');
  const to = x.operand(0);
  if (to.kind !== 'pair') x.refuse('it needs a lane and a predicate to write to');
  meet(x, { key: 'elect', ...ballot }, x.word(x.operand(1)), ['0']);
  const leader = x.simple(`31 - clz32(${word(1)} & -${word(1)})`, 'i');
  x.setWord(to.first, leader);
  x.setPredicate(to.second, `(threadIdx & 31) === ${leader}`);
}

function barrier(x: Instruction): void {
  x.has('cta');
  if (x.has('warp')) {
    x.has('sync');
    meet(x, { key: 'bar.warp', orders: true }, x.word(x.operand(0)), []);
    return;
  }
  if (x.has('cluster')) {
    // A thread that arrives also waits: to say the one before the other changes what may run meanwhile, not what is ordered.
    x.ignore(/^(aligned|acquire|release)$/);
    const { kernel, arrivesRelaxed } = x.code;
    const kind = kernel.cluster === 1 && !arrivesRelaxed ? pause.barrier : pause.cluster;
    if (x.among('arrive', 'wait') === 'wait') x.code.line(`t.site = ${x.site}; yield ${kind};`);
    else if (x.has('relaxed')) x.code.line('t.arrivesRelaxed = true;');
    return;
  }
  x.has('aligned');
  const kind = x.among('sync', 'arrive', 'red');
  if (kind === null) x.refuse('it says no way to come to it');
  const { arrives } = x.code;
  // Where threads vote the result stands before them, and what each says behind.
  const operands = kind === 'red' ? x.operands.slice(1, -1) : x.operands;
  const [id = x.operand(0), count] = operands;
  if (kind === 'sync' && !arrives && count === undefined && id.kind === 'integer' && id.value === 0n) {
    x.code.line(`t.site = ${x.site}; yield ${pause.barrier};`);
    return;
  }
  const number = x.short(x.word(id), 'i');
  const threads = x.short(count === undefined ? 'blockDim' : x.word(count), 'i');
  const form = { order: 'release', scope: 'cta', bytes: 8 } as const;
  if (kind === 'arrive') {
    const access = x.access({ ...form, kind: 'update' });
    x.code.line(`t.arriveAtGroup(${access}, ${number}, ${threads}); yield ${pause.arrived};`);
    return;
  }
  if (kind === 'red') {
    const says = x.predicate(x.operand(x.operands.length - 1));
    x.code.line(`t.voteInGroup(${number}, ${threads}, ${says}, ${x.site}); yield ${pause.group};`);
  } else {
    x.code.line(`if (t.joinGroup(${number}, ${threads}, ${x.site})) yield ${pause.group};`);
    x.code.line(`else yield ${pause.barrier};`);
  }
  if (arrives && x.checked)
    x.code.line(`t.awaitedGroup(${x.access({ ...form, kind: 'read', order: 'acquire' })}, ${number});`);
  if (kind === 'red') voted(x, threads);
}

function voted(x: Instruction, threads: string): void {
  const op = x.among('popc', 'and', 'or');
  x.has('pred');
  x.types();
  if (op === 'popc') x.setWord(x.operand(0), 't.yes');
  else if (op !== null) x.setPredicate(x.operand(0), op === 'and' ? `t.yes === ${threads}` : 't.yes !== 0');
  else x.refuse('it says no vote');
}

const fullWarp = '(-1)';

function elementsOf(x: Instruction, operand: PtxOperand, count: number): readonly PtxOperand[] {
  const elements = operand.kind === 'list' ? operand.elements : [operand];
  if (elements.length !== count) x.refuse(`it has ${elements.length} registers where ${count} are needed`);
  return elements;
}

/** How many matrices of a warp's registers go between them and memory, whether turned, and where that is. */
function matricesOf(x: Instruction) {
  x.ignore(/^(sync|aligned|m8n8)$/);
  const count = Number(x.among('x1', 'x2', 'x4')?.slice(1) ?? 0);
  const turned = x.has('trans');
  const space = spaceOf(x);
  if (x.type() !== 'b16' || count === 0) x.refuse('only 8×8 matrices of 16 bits are simulated');
  return { count, turned, space };
}

function ldmatrix(x: Instruction): void {
  const { count, turned, space } = matricesOf(x);
  const to = elementsOf(x, x.operand(0), count);
  const from = spot(x, x.operand(1), space);
  const words = [0, 1, 2, 3].map((i) => `${from.buffer}.i32[(${from.offset} >> 2) + ${i}]`);
  // Lanes that name no row bring nothing.
  x.code.line(`if ((threadIdx & 31) < ${8 * count}) {`);
  const access = { kind: 'read', order: 'weak', scope: 'cta', bytes: 16, site: x.site } as const;
  x.code.accesses.print(access, from, () => x.code.line(bringing(words)));
  x.code.line('}');
  const complete: Complete = (words, first) => dealMatrices(words, first, count, turned);
  meet(x, { key: `ldmatrix ${count} ${turned}`, complete }, fullWarp, []);
  to.forEach((register, i) => {
    x.setWord(register, word(i), 'b32', 'bits');
  });
}

function stmatrix(x: Instruction): void {
  const { count, turned, space } = matricesOf(x);
  const words = elementsOf(x, x.operand(1), count).map((one) => x.word(one));
  const complete: Complete = (words, first) => gatherRows(words, first, count, turned);
  meet(x, { key: `stmatrix ${count} ${turned}`, complete }, fullWarp, words);
  const to = spot(x, x.operand(0), space);
  x.code.line(`if ((threadIdx & 31) < ${8 * count}) {`);
  const access = { kind: 'write', order: 'weak', scope: 'cta', bytes: 16, site: x.site } as const;
  x.code.accesses.print(access, to, () => {
    for (let i = 0; i < 4; i++) x.code.line(`${to.buffer}.i32[(${to.offset} >> 2) + ${i}] = ${word(i)};`);
  });
  x.code.line('}');
}

/** Lane 8 · m + r gets row r of matrix m, of which each lane brought a word: the reverse of `dealMatrices`. */
function gatherRows(words: Int32Array, first: number, count: number, turned: boolean): void {
  const brought = words.slice(matrixWords * first, matrixWords * (first + 32));
  /** The element in a row and a column of matrix m. */
  const half = (m: number, row: number, column: number): number => {
    const [y, x] = turned ? [column, row] : [row, column];
    return (brought[matrixWords * (4 * y + (x >> 1)) + m]! >>> (16 * (x & 1))) & 0xffff;
  };
  for (let lane = 0; lane < 8 * count; lane++)
    for (let i = 0; i < 4; i++) {
      const [m, row] = [lane >> 3, lane & 7];
      words[matrixWords * (first + lane) + i] = half(m, row, 2 * i) | (half(m, row, 2 * i + 1) << 16);
    }
}

/** sum += a · bᵀ of 16 × 32 and 8 × 32 bytes, four in a register; floats are rounded at every step. The result replaces the first four words. */
function multiplyBytes(words: Int32Array, first: number, { isInteger, read }: Element): void {
  const brought = words.slice(matrixWords * first, matrixWords * (first + 32));
  const sums = new Float32Array(brought.buffer);
  const byte = (row: number, register: number, n: number): number =>
    read((brought[matrixWords * (4 * row + ((n & 15) >> 2)) + register]! >>> (8 * (n & 3))) & 255);
  for (let lane = 0; lane < 32; lane++)
    for (let i = 0; i < 4; i++) {
      const [row, lower, column] = [lane >> 2, i >> 1, 2 * (lane & 3) + (i & 1)];
      const at = matrixWords * lane + 6 + i;
      for (let n = 0; n < 32; n++) {
        const product = byte(row, lower + 2 * (n >> 4), n) * byte(column, 4 + (n >> 4), n);
        if (isInteger) brought[at]! += product;
        else sums[at]! += product;
      }
      words[matrixWords * (first + lane) + i] = brought[at]!;
    }
}

function mma(x: Instruction): void {
  x.ignore(/^(sync|aligned|row|col|e4m3|e5m2)$/);
  const shape = x.among('m16n8k32', 'm16n8k16', 'm16n8k8');
  const [type = '', sums] = x.of.parts.slice(-2);
  x.types();
  const known = isElementType(type) ? elementTypes[type] : undefined;
  const ofBytes =
    shape === 'm16n8k32' && x.of.parts.at(-3) === type && known?.bytes === 1 ? known : undefined;
  const ofHalves = (type === 'bf16' || type === 'f16') && shape !== 'm16n8k32' && shape !== null;
  if (sums !== (ofBytes?.isInteger ? 's32' : 'f32') || (!ofHalves && ofBytes === undefined))
    x.refuse('only products of bf16, f16, e4m3 and e5m2 into f32, and of s8 and u8 into s32, are simulated');
  // Of bytes a register holds twice as many.
  const k = shape === 'm16n8k8' ? 8 : 16;
  const to = elementsOf(x, x.operand(0), 4);
  const words = [
    ...elementsOf(x, x.operand(1), k / 4).map((one) => x.word(one)),
    ...elementsOf(x, x.operand(2), k / 8).map((one) => x.word(one)),
    ...elementsOf(x, x.operand(3), 4).map((one) =>
      one.kind === 'register' ? x.word(one, 'b32', 'bits') : x.word(one),
    ),
  ];
  const read = type === 'f16' ? f16ToF32 : undefined;
  const complete: Complete = (words, first) =>
    ofBytes === undefined ? multiplyMatrices(words, first, k, read) : multiplyBytes(words, first, ofBytes);
  meet(x, { key: `mma ${shape} ${type}`, complete }, fullWarp, words);
  to.forEach((register, i) => {
    x.setWord(register, word(i), 'b32', 'bits');
  });
}

function copy(x: Instruction): void {
  if (!x.has('async')) x.refuse('only asynchronous copies are known');
  if (x.has('bulk')) bulk(x);
  else if (x.has('commit_group')) x.code.line('t.async.commit();');
  else if (x.has('wait_all')) x.code.line('t.async.commit(); t.async.wait(0, false);');
  else if (x.has('wait_group')) x.code.line(`t.async.wait(${x.word(x.operand(0))}, false);`);
  else if (x.has('mbarrier')) {
    x.types();
    x.ignore(/^(arrive|shared|shared::cta)$/);
    const at = placed(spot(x, x.operand(0), 'shared'));
    x.code.line(`t.arriveAfterCopies(${at}, ${!x.has('noinc')}, ${x.site});`);
  } else load(x);
}

/** 4, 8 or 16 bytes, of which some may be zeros instead. */
function load(x: Instruction): void {
  const hinted = x.has('L2::cache_hint');
  x.ignore(/^(ca|cg|L2::.*|shared|shared::cta|global)$/);
  const [to, from] = [spot(x, x.operand(0), 'shared'), spot(x, x.operand(1), 'global')];
  const bytes = x.operand(2);
  if (bytes.kind !== 'integer') x.refuse('it must say how many bytes it copies');
  // A hint to caches stands last. A predicate says that nothing is copied.
  const some = x.operands.length > (hinted ? 4 : 3) ? x.operand(3) : bytes;
  const given =
    some.kind === 'register' && some.type === 'pred'
      ? `${x.predicate(some)} ? 0 : ${bytes.value}`
      : x.word(some);
  x.code.line(`t.loadAsync(${placed(to)}, ${placed(from)}, ${bytes.value}, ${given}, ${x.site});`);
}

function bulk(x: Instruction): void {
  if (x.has('commit_group')) x.code.line('t.bulk.commit();');
  else if (x.has('wait_group')) x.code.line(`t.bulk.wait(${x.word(x.operand(0))}, ${x.has('read')});`);
  // It brings lines to caches.
  else if (x.has('prefetch')) x.ignore(/./);
  else if (x.has('reduce'))
    x.refuse('of bulk copies, those of plain bytes and of boxes of tensors are simulated');
  else if (x.has('tensor')) box(x);
  else plainBytes(x);
}

function plainBytes(x: Instruction): void {
  x.has('L2::cache_hint');
  const loads = x.has('mbarrier::complete_tx::bytes');
  if (!loads && !x.has('bulk_group')) x.refuse('it says no way in which it completes');
  if (!x.has('global')) x.refuse('bulk copies between blocks of a cluster are not simulated');
  x.ignore(loads ? /^shared::(cluster|cta)$/ : /^shared::cta$/);
  const to = spot(x, x.operand(0), loads ? 'shared' : 'global');
  const from = spot(x, x.operand(1), loads ? 'global' : 'shared');
  const gate = loads ? spot(x, x.operand(3), 'shared') : null;
  const operands = `${placed(to)}, ${placed(from)}, ${x.word(x.operand(2))}`;
  if (gate === null) x.code.line(`t.bulk.post(${operands}, ${x.site});`);
  else x.code.line(`t.bulk.load(${operands}, ${placed(gate)}, ${x.site});`);
}

/** As much as a wait may take, in microseconds: as good as for ever. */
const noLimit = -1;

function mbarrier(x: Instruction): void {
  x.types();
  x.ignore(/^shared(::cta|::cluster)?$/);
  if (x.has('init')) {
    const at = spot(x, x.operand(0), 'shared');
    const access = x.access({ kind: 'write', order: 'weak', scope: 'cta', bytes: 8 });
    x.code.line(`t.mbarrierInit(${access}, ${placed(at)}, ${x.word(x.operand(1))}, false);`);
  } else if (x.among('arrive', 'arrive_drop', 'expect_tx') !== null) {
    x.ignore(/^(release|noComplete)$/);
    const arrives = x.of.parts[1] !== 'expect_tx';
    const expects = x.has('expect_tx');
    if (!arrives) x.has('relaxed');
    const isFar = x.has('shared::cluster') && x.code.kernel.cluster > 1;
    const scope = scopeOf(x) ?? 'cta';
    const drops = x.has('arrive_drop');
    const state: PtxOperand = arrives ? x.operand(0) : { kind: 'sink' };
    const [to, first, second] = arrives ? x.operands.slice(1) : x.operands;
    const count = expects ? second : first;
    if (isFar) {
      if (
        expects ||
        count !== undefined ||
        drops ||
        to?.kind !== 'address' ||
        to.base.kind !== 'register' ||
        to.offset !== 0
      )
        x.refuse('at the mbarrier of another block a thread arrives without bytes');
      const far = x.access({ kind: 'update', order: 'release', scope: 'gpu', bytes: 8 });
      x.code.line(`t.arriveAt(${far}, ${x.word(to.base)});`);
      return;
    }
    if (to === undefined) x.refuse('it names no mbarrier');
    const at = spot(x, to, 'shared');
    const access = x.access({ kind: 'update', order: arrives ? 'release' : 'relaxed', scope, bytes: 8 });
    // Its state is the number of its phase: whose parity says as much as a thread may ask.
    const phase = state.kind === 'sink' ? '' : x.simple(`t.mbarrier(${placed(at)}).phase`, 'i');
    const arrivals = count === undefined ? (arrives ? '1' : '0') : x.word(count);
    const bytes = expects && first !== undefined ? x.word(first) : '0';
    x.code.line(`t.mbarrierExpect(${access}, ${placed(at)}, ${bytes}, ${arrivals}, ${drops});`);
    if (state.kind !== 'sink') x.setPair(state, phase, '0');
  } else if (x.has('try_wait') || x.has('test_wait')) {
    const isParity = x.has('parity');
    const parity = isParity ? x.word(x.operand(2)) : `${x.pair(x.operand(2))[0]} & 1`;
    x.has('acquire');
    const scope = scopeOf(x) ?? 'cta';
    const at = spot(x, x.operand(1), 'shared');
    const access = { kind: 'read', order: 'acquire', scope, bytes: 8, site: x.site } as const;
    const wait = x.code.named.wait({ kind: 'phase', until: '!=', access });
    // To look once and to wait differ in when they give up.
    const limit = x.of.parts.includes('try_wait') ? noLimit : 0;
    x.code.line(`t.waitForPhase(${wait}, ${placed(at)}, ${parity}, ${limit}); yield ${pause.wait};`);
    x.setPredicate(x.operand(0), 't.satisfied');
  } else if (x.has('inval')) {
    spot(x, x.operand(0), 'shared');
  } else x.refuse('that operation of mbarriers is not simulated');
}
