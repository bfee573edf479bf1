/** The JavaScript of one PTX kernel while it is written: operands, results, and what an instruction may ask for. */

import type { AccessForm } from '../../../lang/index.js';
import {
  isPtxType,
  PtxError,
  type PtxGuard,
  type PtxInstruction,
  type PtxKernel,
  type PtxOperand,
  type PtxRegister,
  type PtxType,
  placeOfLine,
  ptxBytes,
  registersIn,
  writtenAs,
} from '../../../lang/ptx/index.js';
import type { SharedMemory } from '../compiled.js';
import { bringing, type LaneMeeting } from '../lanes.js';
import { Accesses, type Step } from '../late.js';
import { LocalPool, literal, Named } from '../text.js';
import { windows } from './addresses.js';
import type { Flow } from './flow.js';
import type { Registers, Use } from './registers.js';
import { isProduct, shapeOf } from './sums.js';

export type VariablePlace =
  /** An offset in the block's shared memory, in the thread's local memory, or in the parameters. */
  | { readonly space: 'shared' | 'local' | 'param'; readonly offset: number }
  /** The number of a buffer that holds this variable alone. */
  | { readonly space: 'global'; readonly number: number };

export interface Layout {
  readonly places: ReadonlyMap<string, VariablePlace>;
  readonly shared: SharedMemory | null;
  /** Where cooperative groups of several warps find what CUDA keeps for them. */
  readonly reserved: number;
  readonly localBytes: number;
}

export type Pair = readonly [low: string, high: string];

const simple = /^-?[\w$]+(\.\w+)?$|^\(-\d+\)$/;

export class Code {
  readonly lines: string[] = [];
  readonly named = new Named();
  readonly accesses: Accesses<PtxInstruction>;
  /** Whether threads arrive at barriers without waiting. */
  readonly arrives: boolean;
  /** Whether threads arrive at a cluster's barriers and release nothing. */
  readonly arrivesRelaxed: boolean;
  readonly #products: readonly PtxInstruction[];
  readonly #temporaries = new LocalPool('t');
  /** The temporaries that the instruction has taken. */
  #taken: string[] = [];
  #keeps = false;

  constructor(
    readonly kernel: PtxKernel,
    readonly checked: boolean,
    readonly flow: Flow,
    readonly layout: Layout,
    readonly registers: Registers,
    stepOf: (instruction: PtxInstruction) => Step,
  ) {
    const { instructions } = kernel.entry;
    this.arrives = instructions.some(arrivesAtBarrier);
    this.arrivesRelaxed = instructions.some(arrivesRelaxed);
    this.#products = instructions.filter(isProduct);
    const runs = checked ? flow.blocks.map(({ instructions }) => instructions) : [];
    this.accesses = new Accesses(
      runs.map((items) => ({ items, steps: items.map(stepOf) })),
      {
        checked,
        named: this.named,
        lines: this.lines,
        emit: (line) => this.line(line),
        local: () => this.temporary('q'),
        // Whether temporaries keep what they hold from now on.
        keep: (keeps) => {
          this.#keeps = keeps;
        },
        // What its registers hold must still be there.
        repeats: (item) => {
          for (const register of registersOf(item)) registers.reads(register, 'moved');
        },
      },
    );
  }

  line(text: string): void {
    this.lines.push(text);
  }

  /** The line of the source, and beside it the instruction with its own. */
  site(instruction: PtxInstruction): number {
    const { line } = instruction;
    const span = { start: line, end: line, source: 0 };
    const { name, module } = this.kernel;
    return this.named.sites.push({ kernel: name, span, ...writtenAs(module, instruction) }) - 1;
  }

  /** The array that a product adds to. In checked mode each has one of its own, which tells whether that product is under way. */
  sumsOf(product: PtxInstruction): string {
    const { columns } = shapeOf(product);
    return `t.sums(${this.checked ? this.#products.indexOf(product) : columns}, ${columns / 2})`;
  }

  temporary(kind: 'i' | 'f' | 'b' | 'q'): string {
    const name = this.#temporaries.take(kind);
    this.#taken.push(name);
    return name;
  }

  endInstruction(): void {
    if (this.#keeps) return;
    this.#temporaries.give(this.#taken.reverse());
    this.#taken = [];
  }

  declaration(): string {
    return `${this.#temporaries.declaration()} let cc = 0;`;
  }
}

const arrivesAtBarrier = ({ parts }: PtxInstruction): boolean =>
  (parts[0] === 'bar' || parts[0] === 'barrier') && parts.includes('arrive') && !parts.includes('cluster');

const arrivesRelaxed = ({ parts }: PtxInstruction): boolean =>
  parts[0] === 'barrier' && parts.includes('cluster') && parts.includes('relaxed');

export const registersOf = ({ operands, guard }: PtxInstruction): readonly PtxRegister[] => [
  ...operands.flatMap(registersIn),
  ...(guard === null ? [] : [guard.register]),
];

/** One instruction on its way to JavaScript. A part of its name that nobody asks for is refused. */
export class Instruction {
  readonly name: string;
  readonly #asked = new Set<number>();
  readonly #parts: readonly string[];
  readonly operands: readonly PtxOperand[];
  readonly #guard: PtxGuard | null;
  #site = -1;

  constructor(
    readonly code: Code,
    readonly of: PtxInstruction,
  ) {
    this.#parts = of.parts;
    this.name = of.parts[0]!;
    this.operands = of.operands;
    this.#guard = of.guard;
    this.#asked.add(0);
  }

  get checked(): boolean {
    return this.code.checked;
  }

  get site(): number {
    if (this.#site < 0) this.#site = this.code.site(this.of);
    return this.#site;
  }

  // Its name.

  has(part: string): boolean {
    const at = this.#parts.indexOf(part, 1);
    if (at < 0) return false;
    this.#asked.add(at);
    return true;
  }

  among<T extends string>(...parts: readonly T[]): T | null {
    return parts.find((part) => this.has(part)) ?? null;
  }

  types(): readonly PtxType[] {
    return this.#parts.flatMap((part, i) => {
      if (i === 0 || !isPtxType(part)) return [];
      this.#asked.add(i);
      return [part];
    });
  }

  type(): PtxType {
    const [type] = this.types();
    if (type === undefined) this.refuse('it has no type');
    return type;
  }

  /** Parts that mean nothing to the simulated machine, such as hints to caches. */
  ignore(like: RegExp): void {
    this.#parts.forEach((part, i) => {
      if (like.test(part)) this.#asked.add(i);
    });
  }

  /** Whether somebody has asked for every part. */
  requireKnown(): void {
    const unknown = this.#parts.find((_, i) => !this.#asked.has(i));
    if (unknown !== undefined) this.refuse(`'.${unknown}' is not known of it`);
  }

  refuse(why: string): never {
    throw new PtxError(
      placeOfLine(this.code.kernel.module, this.of.line),
      `the simulated machine does not have '${this.#parts.join('.')}': ${why}`,
    );
  }

  operand(index: number): PtxOperand {
    const operand = this.operands[index];
    if (operand === undefined) this.refuse(`it has only ${this.operands.length} operands`);
    return operand;
  }

  // Operands.

  /** How a register that it reads is kept, and where. */
  #read(register: PtxRegister, as: Use) {
    const { registers } = this.code;
    registers.reads(register, as);
    const [low, high] = registers.locals(register);
    return { kept: registers.kept(register), low: low!, high: high! };
  }

  /** At most 32 bits as an integer: as a type has it, signed or not. */
  word(operand: PtxOperand, type: PtxType = 'b32', as: 'integer' | 'bits' = 'integer'): string {
    if (operand.kind === 'register') {
      const { kept, low } = this.#read(operand, as);
      if (kept === 'predicate') this.refuse(`${operand.name} is a predicate`);
      const text = kept === 'single' ? `bitsOf(${low})` : kept === 'double' ? `bitsOfDouble(${low})` : low;
      return narrowed(text, type, operand.type === 'pred' ? 1 : 8 * ptxBytes[operand.type]);
    }
    if (operand.kind === 'integer') return literal(narrow(operand.value, type));
    if (operand.kind === 'float') return literal(Number(BigInt.asIntN(32, singleBits(operand))));
    if (operand.kind === 'special') return this.#special(operand.name)[0];
    return this.pair(operand)[0];
  }

  pair(operand: PtxOperand, as: 'integer' | 'bits' = 'integer'): Pair {
    switch (operand.kind) {
      case 'register': {
        const { kept, low, high } = this.#read(operand, as);
        if (kept === 'double') {
          const lower = this.simple(`bitsOfDouble(${low})`, 'i');
          return [lower, this.simple('up[0]', 'i')];
        }
        if (kept !== 'pair') return [this.word(operand), '0'];
        return [low, high];
      }
      case 'integer':
        return [literal(narrow(operand.value, 'b32')), literal(narrow(operand.value >> 32n, 'b32'))];
      case 'float': {
        const bits = doubleBits(operand);
        return [literal(narrow(bits, 'b32')), literal(narrow(bits >> 32n, 'b32'))];
      }
      case 'special':
        return this.#special(operand.name);
      case 'symbol': {
        if (operand.name === 'WARP_SZ') return ['32', '0'];
        const place = this.code.layout.places.get(operand.name);
        if (place === undefined) this.refuse(`'${operand.name}' is defined in no file that was read`);
        if (place.space === 'global') return [String(operand.offset), `(args[${3 + place.number}])`];
        return [String(place.offset + operand.offset), '0'];
      }
      default:
        this.refuse('one of its operands has another form');
    }
  }

  quad(operand: PtxOperand): readonly string[] {
    if (operand.kind !== 'register' || this.#read(operand, 'bits').kept !== 'quad')
      this.refuse('128 bits must stand there');
    return this.code.registers.locals(operand);
  }

  /** As many words as a type has, the lowest first. */
  words(operand: PtxOperand, type: PtxType, as: 'integer' | 'bits' = 'bits'): readonly string[] {
    const bytes = ptxBytes[type];
    if (bytes === 16) return this.quad(operand);
    return bytes === 8 ? this.pair(operand, as) : [this.word(operand, type, as)];
  }

  #special(name: string): Pair {
    const { clusterExtents, sharedBytes, cluster } = this.code.kernel;
    const [, register, axis] = /^(n?(?:tid|ctaid|clusterid)|cluster_n?ctaid)\.([xyz])$/.exec(name) ?? [];
    if (register !== undefined) return [alongAxis(register, 'xyz'.indexOf(axis!), clusterExtents), '0'];
    if (/^(clock(64|_hi)?|globaltimer(_lo|_hi)?)$/.test(name)) {
      const low = this.simple('t.clockWords()', 'i');
      return name.endsWith('_hi') ? ['t.clockHigh', '0'] : [low, 't.clockHigh'];
    }
    const known: Readonly<Record<string, string>> = {
      ...specials,
      cluster_ctarank: cluster === 1 ? '0' : 't.rankInCluster',
      cluster_nctarank: String(cluster),
      total_smem_size: String(this.code.layout.shared?.bytes ?? 0),
      dynamic_smem_size: String(sharedBytes),
      reserved_smem_offset_1: String(this.code.layout.reserved),
    };
    if (!Object.hasOwn(known, name)) this.refuse(`'%${name}' is no register that it knows`);
    return [known[name]!, '0'];
  }

  predicate(operand: PtxOperand): string {
    if (operand.kind === 'not') return `!${this.predicate(operand.of)}`;
    if (operand.kind === 'integer') return operand.value === 0n ? 'false' : 'true';
    if (operand.kind !== 'register') this.refuse('a predicate must stand there');
    return this.#read(operand, 'bits').low;
  }

  single(operand: PtxOperand): string {
    if (operand.kind === 'float') return literal(Math.fround(operand.value));
    if (operand.kind === 'integer') return `floatOf(${narrow(operand.value, 'b32')})`;
    if (operand.kind !== 'register') this.refuse('a number must stand there');
    const { kept, low } = this.#read(operand, 'float');
    return kept === 'single' ? low : `floatOf(${low})`;
  }

  double(operand: PtxOperand): string {
    if (operand.kind === 'float') return literal(operand.value);
    if (operand.kind !== 'register') this.refuse('a number must stand there');
    const { kept, low, high } = this.#read(operand, 'float');
    return kept === 'double' ? low : `doubleOf(${low}, ${high})`;
  }

  /** Something that is cheap to repeat, and does not change with what is written meanwhile. */
  simple(text: string, kind: 'i' | 'f' | 'b' | 'q'): string {
    if (/^\(?-?\d+\)?$/.test(text)) return text;
    const name = this.code.temporary(kind);
    this.code.line(`${name} = ${text};`);
    return name;
  }

  /** Something that is cheap to repeat. */
  short(text: string, kind: 'i' | 'f' | 'b' | 'q'): string {
    return simple.test(text) ? text : this.simple(text, kind);
  }

  // Results.

  /** How the register is kept that a result goes to, and where; null where nobody wants it. */
  #write(to: PtxOperand, as: Use) {
    if (to.kind === 'sink') return null;
    if (to.kind !== 'register') this.refuse('its result must go to a register');
    const { registers } = this.code;
    registers.writes(to, as, this.#guard === null);
    const locals = registers.locals(to);
    return { register: to, kept: registers.kept(to), locals, low: locals[0]!, high: locals[1]! };
  }

  /** Sets a register to a value of at most 32 bits, extended as its type has a sign or none. */
  setWord(to: PtxOperand, text: string, type: PtxType = 'b32', as: 'integer' | 'bits' = 'integer'): void {
    const target = this.#write(to, as);
    if (target === null) return;
    const { register, kept, low, high } = target;
    const bits = register.type === 'pred' ? 0 : 8 * ptxBytes[register.type];
    if (kept === 'predicate' || kept === 'quad') this.refuse(`${register.name} holds no number`);
    switch (kept) {
      case 'single':
        this.code.line(`${low} = floatOf(${text});`);
        return;
      case 'pair':
        this.code.line(`${low} = ${text};`);
        this.code.line(`${high} = ${type.startsWith('s') ? `${low} >> 31` : '0'};`);
        return;
      case 'double':
        this.code.line(`${low} = doubleOf(${text}, 0);`);
        return;
      case 'word':
        this.code.line(`${low} = ${bits < 32 ? `(${text}) & ${bits === 16 ? 65535 : 255}` : text};`);
    }
  }

  setPair(to: PtxOperand, low: string, high: string, as: 'integer' | 'bits' = 'integer'): void {
    const target = this.#write(to, as);
    if (target?.kept === 'double') this.code.line(`${target.low} = doubleOf(${low}, ${high});`);
    else if (target?.kept === 'pair') {
      // The upper word may be made of what the lower one was.
      const held = /^ti\d+$/.test(low) ? low : this.simple(low, 'i');
      this.code.line(`${target.high} = ${high};`);
      this.code.line(`${target.low} = ${held};`);
    } else if (target !== null) this.refuse(`${target.register.name} has no 64 bits`);
  }

  setQuad(to: PtxOperand, words: readonly string[]): void {
    const target = this.#write(to, 'bits');
    if (target === null) return;
    if (target.kept !== 'quad') this.refuse(`${target.register.name} has no 128 bits`);
    const held = words.map((word) => this.simple(word, 'i'));
    held.forEach((word, i) => {
      this.code.line(`${target.locals[i]} = ${word};`);
    });
  }

  setWords(to: PtxOperand, words: readonly string[], type: PtxType = 'b32'): void {
    const [low, high] = words;
    if (words.length === 4) this.setQuad(to, words);
    else if (words.length === 2) this.setPair(to, low!, high!, 'bits');
    else this.setWord(to, low!, type, 'bits');
  }

  setSingle(to: PtxOperand, text: string): void {
    const target = this.#write(to, 'float');
    if (target !== null)
      this.code.line(`${target.low} = ${target.kept === 'single' ? text : `bitsOf(${text})`};`);
  }

  setDouble(to: PtxOperand, text: string): void {
    const target = this.#write(to, 'float');
    if (target?.kept === 'double') this.code.line(`${target.low} = ${text};`);
    else if (target !== null)
      this.code.line(`${target.low} = bitsOfDouble(${text}); ${target.high} = up[0];`);
  }

  setPredicate(to: PtxOperand, text: string): void {
    this.setLocal(to, text, 'bits');
  }

  /** As the register is kept. */
  setLocal(to: PtxOperand, text: string, as: 'bits' | 'moved'): void {
    const target = this.#write(to, as);
    if (target !== null) this.code.line(`${target.low} = ${text};`);
  }

  /** How all are kept, if they are registers, or numbers, that are kept alike as floats; registers become so if they can. */
  alike(to: PtxOperand, ...from: readonly PtxOperand[]): 'single' | 'double' | null {
    if (to.kind !== 'register') return null;
    const { registers } = this.code;
    let kept = registers.linked(to, to);
    for (const one of from) {
      if (one.kind === 'register') kept = registers.linked(to, one) === null ? null : kept;
      // A double keeps no bits of what is no number.
      else if (one.kind !== 'float' || Number.isNaN(one.value)) kept = null;
    }
    return kept;
  }

  local(operand: PtxOperand, kept: 'single' | 'double'): string {
    if (operand.kind === 'float')
      return literal(kept === 'single' ? Math.fround(operand.value) : operand.value);
    if (operand.kind !== 'register') this.refuse('a register must stand there');
    return this.#read(operand, 'moved').low;
  }

  access(form: AccessForm): string {
    return this.code.named.access({ ...form, site: this.site });
  }
}

/** Registers that are the same text in every kernel. */
const specials: Readonly<Record<string, string>> = {
  // The address at which the blocks of a cooperative launch count each other; null where it is none.
  envreg1: `(t.isCooperative ? ${windows.grid} : 0)`,
  envreg2: '0',
  laneid: '(threadIdx & 31)',
  warpid: '(threadIdx >>> 5)',
  nwarpid: '(blockDim + 31 >>> 5)',
  lanemask_eq: '(1 << (threadIdx & 31))',
  lanemask_lt: '~(-1 << (threadIdx & 31))',
  lanemask_le: '~(-2 << (threadIdx & 31))',
  lanemask_gt: '(-2 << (threadIdx & 31))',
  lanemask_ge: '(-1 << (threadIdx & 31))',
  smid: '(blockIdx % 132)',
  nsmid: '132',
  gridid: '0',
};

/** A place in the block or the grid, or how far that goes, along x, y or z. Threads and blocks are counted along x first. */
function alongAxis(register: string, axis: number, cluster: readonly number[]): string {
  const blocks = cluster[axis]!;
  if (register === 'cluster_nctaid') return String(blocks);
  if (register === 'cluster_ctaid') return `(${alongAxis('ctaid', axis, cluster)} % ${blocks})`;
  if (register.endsWith('clusterid'))
    return `(${alongAxis(register.replace('clusterid', 'ctaid'), axis, cluster)} / ${blocks} | 0)`;
  const first = register.endsWith('ctaid') ? 3 : 0;
  if (register.startsWith('n')) return `extents[${first + axis}]`;
  const index = first === 0 ? 'threadIdx' : 'blockIdx';
  if (axis === 0) return `${register}X`;
  const behind = axis === 1 ? `extents[${first}]` : `(extents[${first}] * extents[${first + 1}])`;
  const at = `(${index} / ${behind} | 0)`;
  return axis === 1 ? `(${at} % extents[${first + 1}])` : at;
}

export const singleBits = (operand: Extract<PtxOperand, { kind: 'float' }>): bigint => {
  if (operand.single) return operand.bits;
  view.setFloat32(0, operand.value);
  return BigInt(view.getInt32(0));
};
export const doubleBits = (operand: Extract<PtxOperand, { kind: 'float' }>): bigint => {
  if (!operand.single) return operand.bits;
  view.setFloat64(0, operand.value);
  return view.getBigUint64(0);
};
const view = new DataView(new ArrayBuffer(8));

function narrow(value: bigint, type: PtxType): number {
  const bits = Math.min(32, 8 * ptxBytes[type]);
  if (bits === 32 || type.startsWith('s')) return Number(BigInt.asIntN(bits, value));
  return Number(BigInt.asUintN(bits, value));
}

/** The low bits of a word, as a type has them. 16-bit registers hold no sign. `held`: how many bits it has. */
export function narrowed(text: string, type: PtxType, held = 32): string {
  const bits = 8 * ptxBytes[type];
  if (bits >= 32) return text;
  if (type.startsWith('s')) return `(${text} << ${32 - bits} >> ${32 - bits})`;
  return held === bits ? text : `(${text} & ${bits === 16 ? 65535 : 255})`;
}

/** Brings words to the lanes that a mask names, and waits for them. */
export function meet(x: Instruction, meeting: LaneMeeting, mask: string, words: readonly string[]): void {
  if (words.length > 0) x.code.line(bringing(words));
  x.code.line(x.code.named.meet(meeting, mask, x.site));
}
