/** The control flow of PTX, which is jumps, in JavaScript, which has none: a switch in a loop, with a case for each basic block. */
import {
  PtxError,
  type PtxInstruction,
  type PtxKernel,
  type PtxOperand,
  placeOfLine,
} from '../../../lang/ptx/index.js';

export interface BasicBlock {
  readonly instructions: readonly PtxInstruction[];
  /** The blocks that may come next. */
  readonly to: readonly number[];
}

export interface Flow {
  readonly blocks: readonly BasicBlock[];
  /** The blocks to which a jump may go; the one behind the last ends the thread. */
  targetsOf(jump: PtxInstruction): readonly number[];
}

const jumps: ReadonlySet<string> = new Set(['bra', 'brx', 'ret', 'exit']);

/** Cuts a function where control may come from elsewhere, or go elsewhere. */
export function flowOf({ entry, module }: PtxKernel): Flow {
  const { instructions, labels, tables } = entry;
  const starts = new Set([0, ...labels.values()]);
  for (const [i, { parts }] of instructions.entries()) if (jumps.has(parts[0]!)) starts.add(i + 1);
  const order = [...starts].sort((a, b) => a - b).filter((start) => start < instructions.length);
  const numbers = new Map(order.map((start, i) => [start, i]));
  const symbol = (operand: PtxOperand | undefined): string =>
    operand?.kind === 'symbol' ? operand.name : '';
  const targetsOf = ({ parts: [name], operands, guard, line }: PtxInstruction): readonly number[] => {
    const refuse = (why: string): never => {
      throw new PtxError(placeOfLine(module, line), why);
    };
    if (name !== 'bra' && name !== 'brx') return [];
    const to = name === 'bra' ? [symbol(operands[0])] : tables.get(symbol(operands[1]));
    if (to === undefined || (name === 'brx' && guard !== null))
      return refuse('a branch by an index must name a list of labels');
    return to.map((label) => {
      const at = labels.get(label) ?? refuse(`no label '${label}' stands in this function`);
      return numbers.get(at) ?? order.length;
    });
  };
  const blocks = order.map((start, i): BasicBlock => {
    const all = instructions.slice(start, order[i + 1]);
    const last = all.at(-1)!;
    const next = jumps.has(last.parts[0]!) && last.guard === null ? [] : [i + 1];
    return { instructions: all, to: [...targetsOf(last), ...next].filter((to) => to < order.length) };
  });
  return { blocks, targetsOf };
}
