/**
 * Mutants of kernels in PTX: one synchronising instruction weakened or removed. Compilers copy code, unrolled and inlined: all
 * copies of an instruction that come from one place of the source change together, and those that come from none by their own line.
 */
import { type PtxInstruction, type PtxKernel, type PtxOperand, writtenAs } from '../../lang/ptx/index.js';
import type { Mutant } from './subject.js';

/** Null removes the instruction. */
interface Change {
  readonly description: string;
  readonly instruction: PtxInstruction | null;
}

export function ptxMutantsOf(kernel: PtxKernel): Mutant[] {
  const mutants = new Map<string, Mutant>();
  for (const instruction of kernel.entry.instructions) {
    for (const { description } of changesOf(instruction)) {
      const { where, text } = writtenAs(kernel.module, instruction);
      const id = `${kernel.name} ${where} ${instruction.parts.join('.')} ${description}`;
      if (!mutants.has(id)) mutants.set(id, { id, kernel: kernel.name, where, text, description });
    }
  }
  return [...mutants.values()];
}

/** The kernel with this mutation; a kernel without that instruction stays as it is. */
export function mutatePtx(kernel: PtxKernel, { id, description }: Mutant): PtxKernel {
  const { instructions, labels } = kernel.entry;
  const left: PtxInstruction[] = [];
  /** Where each instruction is now. */
  const moved: number[] = [];
  for (const instruction of instructions) {
    moved.push(left.length);
    const change = changesOf(instruction).find((one) => one.description === description);
    const isMeant =
      change !== undefined &&
      id ===
        `${kernel.name} ${writtenAs(kernel.module, instruction).where} ${instruction.parts.join('.')} ${description}`;
    if (!isMeant) left.push(instruction);
    else if (change.instruction !== null) left.push(change.instruction);
  }
  moved.push(left.length);
  const relabelled = new Map([...labels].map(([label, at]) => [label, moved[at]!] as const));
  return { ...kernel, entry: { ...kernel.entry, instructions: left, labels: relabelled } };
}

const weaker: Readonly<Record<string, readonly string[]>> = {
  sc: ['acq_rel'],
  acq_rel: ['acquire', 'release'],
  acquire: ['relaxed'],
  release: ['relaxed'],
  sys: ['gpu'],
  gpu: ['cta'],
};

const fences: Readonly<Record<string, readonly string[]>> = { sc: ['acq_rel'], sys: ['gpu'], gpu: ['cta'] };
const membars: Readonly<Record<string, readonly string[]>> = { sys: ['gl'], gl: ['cta'] };
const scopes: readonly string[] = ['cta', 'cluster', 'gpu', 'sys'];

const accesses: ReadonlySet<string> = new Set(['ld', 'st', 'atom', 'red']);

function changesOf(instruction: PtxInstruction): Change[] {
  const { parts, operands } = instruction;
  const [name] = parts;
  const removed: Change = { description: `${name} removed`, instruction: null };
  if (accesses.has(name!))
    return [...replaced(instruction, weaker), ...madeWeak(instruction), ...narrowed(instruction)];
  switch (name) {
    case 'multimem':
      return replaced(instruction, weaker);
    case 'membar':
      return [removed, ...replaced(instruction, membars)];
    case 'fence':
      if (parts.includes('proxy') || parts.includes('mbarrier_init')) return [removed];
      // A fence of one direction is as good where only that one matters.
      return [removed, ...replaced(instruction, fences)];
    case 'bar':
    case 'barrier':
      // On the simulated machine a thread that arrives at a cluster's barrier also waits there, so leaving out the arrival alone would change nothing.
      return parts.includes('cluster') && parts.includes('arrive') ? [] : [removed];
    case 'wgmma':
      // wgmma's fences order accesses to registers, which the machine does not follow: so a missing fence could not be noticed.
      if (parts.includes('commit_group')) return [removed];
      return parts.includes('wait_group') ? [removed, ...moreBy(instruction, 0, 1)] : [];
    case 'tcgen05':
      return /^(fence|wait|commit)/.test(parts[1]!) ? [removed] : [];
    case 'griddepcontrol':
      return parts.includes('wait') ? [removed] : [];
    case 'cp':
      if (['commit_group', 'wait_all', 'mbarrier'].some((part) => parts.includes(part))) return [removed];
      if (!parts.includes('wait_group')) return [];
      return [
        removed,
        ...moreBy(instruction, 0, 1),
        ...(parts.includes('bulk') && !parts.includes('read') ? [readsOnly(instruction)] : []),
      ];
    case 'mbarrier':
      if (parts.includes('init')) return [removed, ...moreBy(instruction, 1, 1)];
      if (parts.includes('expect_tx')) {
        // An instruction that also arrives has the state as its first operand, before the barrier.
        const bytes = parts[1] === 'expect_tx' ? 1 : 2;
        return [removed, ...moreBy(instruction, bytes, 16), ...moreBy(instruction, bytes, -16)];
      }
      if (parts.includes('arrive') || parts.includes('arrive_drop')) return [removed];
      if (parts.includes('try_wait') || parts.includes('test_wait')) {
        const yes: PtxOperand = { kind: 'integer', value: 1n };
        return [
          {
            description: 'mbarrier removed',
            instruction: { ...instruction, parts: ['mov', 'pred'], operands: [operands[0]!, yes] },
          },
        ];
      }
      return [];
    default:
      return [];
  }
}

const withPart = (instruction: PtxInstruction, at: number, part: string): PtxInstruction => ({
  ...instruction,
  parts: instruction.parts.with(at, part),
});

/** With one part of its name in place of another. */
function replaced(instruction: PtxInstruction, by: Readonly<Record<string, readonly string[]>>): Change[] {
  return instruction.parts.flatMap((part, i) =>
    i === 0
      ? []
      : (by[part] ?? []).map((less) => ({
          description: `${part} → ${less}`,
          instruction: withPart(instruction, i, less),
        })),
  );
}

/** Updates are atomic whatever they say; loads and stores need not be. */
function madeWeak(instruction: PtxInstruction): Change[] {
  const { parts } = instruction;
  const was = parts.find((part) => part === 'relaxed' || part === 'volatile');
  if (was === undefined || (parts[0] !== 'ld' && parts[0] !== 'st')) return [];
  const left = parts.filter((part) => part !== was && !scopes.includes(part));
  return [{ description: `${was} → weak`, instruction: { ...instruction, parts: left } }];
}

/** An update that says no scope has that of the GPU. */
function narrowed(instruction: PtxInstruction): Change[] {
  const [name, ...rest] = instruction.parts;
  if ((name !== 'atom' && name !== 'red') || rest.some((part) => scopes.includes(part))) return [];
  const parts = [
    name,
    ...rest.filter((part) => part === 'relaxed'),
    'cta',
    ...rest.filter((part) => part !== 'relaxed'),
  ];
  return [{ description: 'gpu → cta', instruction: { ...instruction, parts } }];
}

function moreBy(instruction: PtxInstruction, operand: number, more: number): Change[] {
  const was = instruction.operands[operand];
  if (was?.kind !== 'integer') return [];
  const value = was.value + BigInt(more);
  const operands = instruction.operands.with(operand, { kind: 'integer', value });
  return [{ description: `${was.value} → ${value}`, instruction: { ...instruction, operands } }];
}

function readsOnly(instruction: PtxInstruction): Change {
  return {
    description: 'waits for reads only',
    instruction: { ...instruction, parts: [...instruction.parts, 'read'] },
  };
}
