/** From a kernel in PTX to a JavaScript function that the machine runs like those of kernels in TypeScript. */
import { mostShared } from '../../../lang/index.js';
import {
  demangled,
  PtxError,
  type PtxInstruction,
  type PtxKernel,
  type PtxVariable,
  placeOfLine,
  ptxBytes,
} from '../../../lang/ptx/index.js';
import { type Compiled, onceForEachMode, pause, type SharedMemory } from '../compiled.js';
import { factorOf } from '../factors.js';
import { replaceInMap } from '../tensor-maps.js';
import { constants } from '../text.js';
import { ptxArithmetic } from './arithmetic.js';
import { Code, doubleBits, Instruction, type Layout, singleBits, type VariablePlace } from './code.js';
import { flowOf } from './flow.js';
import { stepOf } from './late-steps.js';
import { type Handler, memory } from './memory.js';
import { Registers } from './registers.js';
import { isProduct, touchedSums } from './sums.js';
import { together } from './together.js';
import { values } from './values.js';

/** What CUDA keeps of shared memory for cooperative groups, at least. */
const reservedBytes = 288;

const handlers: Readonly<Record<string, Handler>> = { ...memory, ...values, ...together };

/** The names by which the code of PTX alone reaches the thread and its launch. */
const prologue: Readonly<Record<string, string>> = {
  extents: 't.block.launch.extents',
  tidX: 't.index % t.block.launch.extents[0]',
  ctaidX: 't.block.index % t.block.launch.extents[3]',
  params: 't.block.launch.args[0]',
  B: 't.block.launch.args[1]',
  base: 't.block.launch.args[2]',
  shared0: 't.block.shared[0]',
};

export const compilePtx = onceForEachMode(compile);

/** Variables that have a buffer of their own on every device, in the order of their numbers. */
export const globalsOf = ({ module, entry }: PtxKernel): PtxVariable[] =>
  [...module.variables, ...entry.variables].filter(({ space }) => space === 'global' || space === 'const');

function compile(kernel: PtxKernel, isChecked: boolean): Compiled {
  const flow = flowOf(kernel);
  const layout = layOut(kernel);
  const registers = new Registers();
  // This text is thrown away: printing it shows `registers` how each register is used.
  print(new Code(kernel, isChecked, flow, layout, registers, stepOf));
  registers.settle(flow.blocks);
  const code = new Code(kernel, isChecked, flow, layout, registers, stepOf);
  print(code);
  const body = code.lines.join('\n');
  const isGenerator = /\byield \d/.test(body);
  const name = `ptx_${kernel.name.replace(/\W/g, '_')}`;
  const text = [
    "'use strict';",
    `function${isGenerator ? '*' : ''} ${name}(t) {`,
    code.declaration(),
    registers.declaration(),
    isGenerator ? 'for (;;) {' : '',
    constants(body, prologue),
    layout.localBytes === 0 ? '' : `const local0 = t.localMemory(${layout.localBytes});`,
    'let at = 0;',
    'flow: for (;;) switch (at) {',
    body,
    'default: break flow;',
    '}',
    isGenerator ? `yield ${pause.end}; }` : '',
    '}',
    `return ${name};`,
  ].join('\n');
  const named = { ...ptxArithmetic, factorOf, replaceInMap };
  const run = new Function(...Object.keys(named), text)(...Object.values(named)) as Compiled['run'];
  return {
    ...{ module: kernel, run, isGenerator, ...code.named, text },
    usesWords: /\bwords\[/.test(body),
    shared: layout.shared === null ? [] : [layout.shared],
  };
}

/** What the simulated machine does not have, of all that stands in the kernel: each thing once, with the first line. */
export function refusedIn(kernel: PtxKernel): PtxError[] {
  const found = new Map<string, PtxError>();
  const trying = (run: () => void): void => {
    try {
      run();
    } catch (error) {
      if (!(error instanceof PtxError)) throw error;
      const what = error.message.slice(error.where.length);
      if (!found.has(what)) found.set(what, error);
    }
  };
  trying(() => {
    const flow = flowOf(kernel);
    print(new Code(kernel, true, flow, layOut(kernel), new Registers(), stepOf), trying);
  });
  return [...found.values()];
}

function layOut(kernel: PtxKernel): Layout {
  const { module, entry, params, sharedBytes } = kernel;
  const places = new Map<string, VariablePlace>();
  const all = [...module.variables, ...entry.variables];
  entry.params.forEach(({ name }, i) => {
    places.set(name, { space: 'param', offset: params[i]!.offset });
  });
  globalsOf(kernel).forEach(({ name }, number) => {
    places.set(name, { space: 'global', number });
  });
  const ranges: SharedMemory['ranges'][number][] = [];
  let end = 0;
  // The array whose length the launch chooses comes last.
  const shared = all.filter(({ space }) => space === 'shared');
  for (const { name, align, bytes, type } of shared.filter(({ bytes }) => bytes !== null)) {
    const offset = Math.ceil(end / align) * align;
    places.set(name, { space: 'shared', offset });
    ranges.push({
      name: demangled(name).name,
      offset,
      elementBytes: ptxBytes[type],
      length: bytes! / ptxBytes[type],
    });
    end = offset + bytes!;
  }
  const dynamic = shared.filter(({ bytes }) => bytes === null);
  if (dynamic.length > 0) {
    const align = Math.max(16, ...dynamic.map((one) => one.align));
    const offset = Math.ceil(end / align) * align;
    for (const { name } of dynamic) places.set(name, { space: 'shared', offset });
    if (sharedBytes > 0)
      ranges.push({ name: demangled(dynamic[0]!.name).name, offset, elementBytes: 1, length: sharedBytes });
    end = offset + sharedBytes;
  }
  const reserved = Math.ceil(end / 16) * 16;
  const asks = ({ operands }: PtxInstruction): boolean =>
    operands.some((one) => one.kind === 'special' && one.name === 'reserved_smem_offset_1');
  if (entry.instructions.some(asks)) {
    ranges.push({ name: "cooperative groups'", offset: reserved, elementBytes: 1, length: reservedBytes });
    end = reserved + reservedBytes;
  }
  if (end > mostShared)
    throw new PtxError(
      placeOfLine(module, entry.line),
      `${kernel.name} has ${end} bytes of shared memory; a block has at most ${mostShared}`,
    );
  let localBytes = 0;
  for (const { name, space, align, bytes, line } of entry.variables) {
    if (space !== 'local' && space !== 'param') continue;
    if (bytes === null) throw new PtxError(placeOfLine(module, line), 'local memory must say how long it is');
    const offset = Math.ceil(localBytes / align) * align;
    places.set(name, { space: 'local', offset });
    localBytes = offset + bytes;
  }
  return { places, shared: end > 0 ? { bytes: end, ranges } : null, reserved, localBytes };
}

function print(code: Code, each = (run: () => void): void => run()): void {
  const { blocks, targetsOf } = code.flow;
  const touched = code.checked ? touchedSums(blocks) : new Map<never, never>();
  const targets = new Set(code.kernel.entry.instructions.flatMap(targetsOf));
  for (const [number, { instructions }] of blocks.entries()) {
    if (number === 0 || targets.has(number)) code.line(`case ${number}:`);
    code.registers.enter(number);
    for (const instruction of instructions)
      each(() => printOne(code, instruction, touched.get(instruction) ?? []));
  }
}

function printOne(code: Code, of: PtxInstruction, touches: Iterable<PtxInstruction>): void {
  const handler = Object.hasOwn(handlers, of.parts[0]!) ? handlers[of.parts[0]!] : undefined;
  const x: Instruction = new Instruction(code, of);
  if (handler === undefined) x.refuse('no such instruction is simulated');
  const { guard } = of;
  if (guard !== null) code.line(`if (${guard.negated ? '!' : ''}${x.predicate(guard.register)}) {`);
  code.accesses.before(of);
  for (const by of touches)
    if (isProduct(by)) code.line(`t.products.touch(${code.sumsOf(by)}, ${x.site});`);
    else code.line(`t.usedEarly(${x.site});`);
  handler(x);
  x.requireKnown();
  if (guard !== null) code.line('}');
  code.accesses.after(of);
  code.endInstruction();
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
    else if (type === 'f32') bits = singleBits(value);
    else if (type === 'f64') bits = doubleBits(value);
    else bits = value.bits;
    for (let byte = 0; byte < bytes; byte++) to[bytes * i + byte] = Number((bits >> BigInt(8 * byte)) & 255n);
  });
}
