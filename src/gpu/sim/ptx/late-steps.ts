/** Instructions of a basic block, for accesses that may come later than they stand. */
import { type PtxInstruction, registersIn } from '../../../lang/ptx/index.js';
import type { Step } from '../late.js';
import { registersOf } from './code.js';
import { values } from './values.js';

export function stepOf(instruction: PtxInstruction): Step {
  const { parts, operands } = instruction;
  const kind = kindOf(instruction);
  const gives = parts[0] !== 'st' && parts[0] !== 'red';
  const sets = new Set(
    gives
      ? operands
          .slice(0, 1)
          .flatMap(registersIn)
          .map(({ name }) => name)
      : [],
  );
  return { kind, uses: new Set(registersOf(instruction).map(({ name }) => name)), sets, moves: false };
}

/** Parts that order, or that say what has an order of its own. */
const ordered = /^(acquire|release|acq_rel|volatile|mmio|async|proxy)$/;
/** Forms that move several at a time, and memory of the thread alone. */
const special = /^(v\d|local|param|const)$/;

function kindOf({ parts, guard }: PtxInstruction): Step['kind'] {
  const name = parts[0]!;
  if (Object.hasOwn(values, name)) return 'other';
  if (parts.some((part) => ordered.test(part))) return 'stop';
  const alone = guard === null && !parts.some((part) => special.test(part));
  switch (name) {
    case 'ld':
      return alone && parts.includes('relaxed') ? 'load' : 'other';
    case 'st':
      return 'store';
    case 'atom':
    case 'red':
      return alone ? 'update' : 'store';
    case 'fence':
    case 'membar':
      return parts.includes('cta') ? 'other' : 'stop';
    default:
      return 'stop';
  }
}
