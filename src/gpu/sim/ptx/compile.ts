/** From a kernel in PTX to a JavaScript function that the machine runs like those of kernels in TypeScript. */
import { mostShared } from '../../../lang/index.js';
import {
  PtxError,
  type PtxInstruction,
  type PtxKernel,
  type PtxVariable,
  ptxBytes,
  writtenAs,
} from '../../../lang/ptx/index.js';
import {
  type Compiled,
  type Mode,
  pause,
  type SharedMemory,
  type StatementAccess,
  type StatementWait,
} from '../compiled.js';
import type { Site } from '../detector/detector.js';
import { LateAccesses } from '../late.js';
import { ptxArithmetic } from './arithmetic.js';
import { Code, Instruction, type Place } from './code.js';
import { type Flow, flowOf } from './flow.js';
import type { LaneMeeting } from './lanes.js';
import { registersOf, stepOf } from './late-steps.js';
import { type Handler, memory } from './memory.js';
import { Registers } from './registers.js';
import { isProduct, touchedSums } from './sums.js';
import { factorsOf, shapeOf } from './tiles.js';
import { together } from './together.js';
import { values } from './values.js';

const handlers: Readonly<Record<string, Handler>> = { ...memory, ...values, ...together };

/** The names by which generated code reaches the thread and its launch. */
const prologue: Readonly<Record<string, string>> = {
  threadIdx: 't.index',
  blockIdx: 't.block.index',
  blockDim: 't.block.launch.block',
  gridDim: 't.block.launch.grid',
  extents: 't.block.launch.extents',
  tidX: 't.index % t.block.launch.extents[0]',
  ctaidX: 't.block.index % t.block.launch.extents[3]',
  args: 't.block.launch.args',
  params: 't.block.launch.args[0]',
  B: 't.block.launch.args[1]',
  base: 't.block.launch.args[2]',
  home: 't.rank',
  traffic: 't.block.launch.traffic',
  parts: 't.block.parts',
  shared0: 't.block.shared[0]',
  accesses: 't.block.launch.compiled.accesses',
  waits: 't.block.launch.compiled.waits',
  meetings: 't.block.launch.compiled.meetings',
};

const cache = { fast: new WeakMap<PtxKernel, Compiled>(), checked: new WeakMap<PtxKernel, Compiled>() };

export function compilePtx(kernel: PtxKernel, mode: Mode): Compiled {
  let compiled = cache[mode].get(kernel);
  if (compiled === undefined) {
    compiled = new KernelCompiler(kernel, mode === 'checked').compile();
    cache[mode].set(kernel, compiled);
  }
  return compiled;
}

/** Variables that have a buffer of their own on every device, in the order of their numbers. */
export const globalsOf = ({ module, entry }: PtxKernel): PtxVariable[] =>
  [...module.variables, ...entry.variables].filter(({ space }) => space === 'global' || space === 'const');

class KernelCompiler {
  readonly #kernel: PtxKernel;
  readonly #checked: boolean;
  readonly #sites: Site[] = [];
  readonly #places = new Map<string, Place>();
  #shared: SharedMemory | null = null;
  #localBytes = 0;
  #dynamic = { offset: 0, bytes: 0 };

  constructor(kernel: PtxKernel, checked: boolean) {
    this.#kernel = kernel;
    this.#checked = checked;
  }

  compile(): Compiled {
    const { module, entry } = this.#kernel;
    this.#layOut();
    const flow = flowOf(entry, module.file);
    const registers = new Registers();
    this.#print(flow, registers);
    registers.settle(flow.blocks);
    this.#sites.length = 0;
    const { code, accesses, waits, meetings } = this.#print(flow, registers);
    const body = code.lines.join('\n');
    const isGenerator = /\byield \d/.test(body);
    const name = `ptx_${this.#kernel.name.replace(/\W/g, '_')}`;
    const text = [
      "'use strict';",
      `function${isGenerator ? '*' : ''} ${name}(t) {`,
      code.declaration(),
      registers.declaration(),
      isGenerator ? 'for (;;) {' : '',
      constants(body),
      this.#localBytes === 0 ? '' : `const local0 = t.localMemory(${this.#localBytes});`,
      'let at = 0;',
      'flow: for (;;) switch (at) {',
      body,
      'default: break flow;',
      '}',
      isGenerator ? `yield ${pause.end}; }` : '',
      '}',
      `return ${name};`,
    ].join('\n');
    const named = { ...ptxArithmetic, factorsOf };
    const run = new Function(...Object.keys(named), text)(...Object.values(named)) as Compiled['run'];
    const meets = meetings.length > 0;
    return {
      module: this.#kernel,
      run,
      isGenerator,
      usesWarps: false,
      usesMatrices: meets,
      shared: this.#shared === null ? [] : [this.#shared],
      sites: this.#sites,
      accesses,
      waits,
      meetings,
      text,
    };
  }

  /** Gives variables their places. */
  #layOut(): void {
    const { module, entry, params, sharedBytes } = this.#kernel;
    const all = [...module.variables, ...entry.variables];
    entry.params.forEach(({ name }, i) => {
      this.#places.set(name, { space: 'param', offset: params[i]!.offset });
    });
    globalsOf(this.#kernel).forEach(({ name }, number) => {
      this.#places.set(name, { space: 'global', number });
    });
    const ranges: SharedMemory['ranges'][number][] = [];
    let end = 0;
    // The array whose length the launch chooses comes last.
    const shared = all.filter(({ space }) => space === 'shared');
    for (const { name, align, bytes, type } of shared.filter(({ bytes }) => bytes !== null)) {
      const offset = Math.ceil(end / align) * align;
      this.#places.set(name, { space: 'shared', offset });
      ranges.push({ name, offset, elementBytes: ptxBytes[type], length: bytes! / ptxBytes[type] });
      end = offset + bytes!;
    }
    const dynamic = shared.filter(({ bytes }) => bytes === null);
    if (dynamic.length > 0) {
      const align = Math.max(16, ...dynamic.map((one) => one.align));
      const offset = Math.ceil(end / align) * align;
      for (const { name } of dynamic) this.#places.set(name, { space: 'shared', offset });
      this.#dynamic = { offset, bytes: sharedBytes };
      if (sharedBytes > 0)
        ranges.push({ name: dynamic[0]!.name, offset, elementBytes: 1, length: sharedBytes });
      end = offset + sharedBytes;
    }
    if (end > mostShared)
      throw new PtxError(
        module.file,
        `${this.#kernel.name} has ${end} bytes of shared memory; a block has at most ${mostShared}`,
      );
    if (end > 0) this.#shared = { bytes: end, ranges };
    for (const { name, space, align, bytes, line } of entry.variables) {
      if (space !== 'local' && space !== 'param') continue;
      if (bytes === null)
        throw new PtxError(`${module.file}:${line}`, 'local memory must say how long it is');
      const offset = Math.ceil(this.#localBytes / align) * align;
      this.#places.set(name, { space: 'local', offset });
      this.#localBytes = offset + bytes;
    }
  }

  #print(flow: Flow, registers: Registers) {
    const { module } = this.#kernel;
    const accesses: StatementAccess[] = [];
    const waits: StatementWait[] = [];
    const meetings: LaneMeeting[] = [];
    const { blocks } = flow;
    const products = blocks.flatMap(({ instructions }) => instructions.filter(isProduct));
    const touched = this.#checked ? touchedSums(blocks) : new Map<never, never>();
    const runs = blocks.map(({ instructions }) => ({ items: instructions, steps: instructions.map(stepOf) }));
    const code: Code = new Code({
      late: new LateAccesses(this.#checked ? runs : [], {
        get lines() {
          return code.lines;
        },
        emit: (line) => code.line(line),
        local: () => code.temporary('q'),
        keep: (keeps) => code.keep(keeps),
        // What its registers hold must still be there.
        repeats: (item) => {
          for (const register of registersOf(item)) registers.reads(register, 'moved');
        },
      }),
      checked: this.#checked,
      file: module.file,
      flow,
      cluster: this.#kernel.cluster,
      arrives: this.#kernel.entry.instructions.some(arrivesAtBarrier),
      registers,
      accesses,
      waits,
      meetings,
      places: this.#places,
      sharedBytes: this.#shared?.bytes ?? 0,
      dynamicShared: this.#dynamic,
      site: (instruction) => this.#site(instruction),
      sumsOf: (product) => {
        const { columns } = shapeOf(product);
        // In checked mode each has one of its own, which tells whether that product is under way.
        return `t.sums(${this.#checked ? products.indexOf(product) : columns}, ${columns / 2})`;
      },
    });
    const targets = new Set(this.#kernel.entry.instructions.flatMap(flow.targetsOf));
    for (const [number, { instructions }] of blocks.entries()) {
      if (number === 0 || targets.has(number)) code.line(`case ${number}:`);
      registers.enter(number);
      for (const instruction of instructions)
        this.#instruction(code, instruction, touched.get(instruction) ?? []);
    }
    return { code, accesses, waits, meetings };
  }

  #instruction(code: Code, of: PtxInstruction, touches: Iterable<PtxInstruction>): void {
    const handler = Object.hasOwn(handlers, of.parts[0]!) ? handlers[of.parts[0]!] : undefined;
    const x: Instruction = new Instruction(code, of);
    if (handler === undefined) x.refuse('no such instruction is simulated');
    const { guard } = of;
    if (guard !== null) {
      code.line(`if (${guard.negated ? '!' : ''}${x.predicate(guard.register)}) {`);
      code.indent++;
    }
    code.around.late.before(of);
    for (const product of touches) code.line(`t.products.touch(${code.around.sumsOf(product)}, ${x.site});`);
    handler(x);
    x.requireKnown();
    if (guard !== null) {
      code.indent--;
      code.line('}');
    }
    code.around.late.after(of);
    code.endInstruction();
  }

  /** The line of the source, and beside it the instruction with its own. */
  #site(instruction: PtxInstruction): number {
    const { line } = instruction;
    const span = { start: line, end: line, source: 0 };
    this.#sites.push({ kernel: this.#kernel.name, span, ...writtenAs(this.#kernel.module, instruction) });
    return this.#sites.length - 1;
  }
}

const arrivesAtBarrier = ({ parts }: PtxInstruction): boolean =>
  (parts[0] === 'bar' || parts[0] === 'barrier') && parts.includes('arrive') && !parts.includes('cluster');

/** Declares what a text uses. */
function constants(body: string): string {
  const used = Object.entries(prologue)
    .filter(([name]) => new RegExp(`(?<![.\\w])${name}\\b`).test(body))
    .map(([name, value]) => `${name} = ${value}`);
  return used.length === 0 ? '' : `const ${used.join(', ')};`;
}

/** Writes what a variable of a module begins as; what it does not say is zero. */
export function fillVariable(
  to: Uint8Array,
  { init, type }: PtxVariable,
  addressOf: (name: string) => number,
): void {
  const bytes = ptxBytes[type];
  init?.forEach((value, i) => {
    let bits: bigint;
    if (value.kind === 'integer') bits = value.value;
    else if (value.kind === 'symbol') bits = BigInt(addressOf(value.name) + value.offset);
    else bits = value.bits;
    for (let byte = 0; byte < bytes; byte++) to[bytes * i + byte] = Number((bits >> BigInt(8 * byte)) & 255n);
  });
}
