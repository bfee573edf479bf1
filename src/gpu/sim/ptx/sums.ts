/** Sums of products (wgmma) lie in registers, and a factor may: which instructions may touch them while a product is under way. */
import { type PtxInstruction, registersIn } from '../../../lang/ptx/index.js';
import type { BasicBlock } from './flow.js';

/** Products that may be adding to a register, or reading it. `age` counts the groups committed behind theirs; -1 before theirs is. */
interface Flight {
  readonly by: ReadonlySet<PtxInstruction>;
  readonly isFactor: boolean;
  readonly age: number;
}

type State = Map<string, Flight>;

/** Older ones are alike. */
const oldest = 16;

export const isProduct = ({ parts }: PtxInstruction): boolean =>
  parts[0] === 'wgmma' && parts[1] === 'mma_async';

/** Fills registers from tensor memory, until it is awaited. */
const isTensorLoad = ({ parts }: PtxInstruction): boolean => parts[0] === 'tcgen05' && parts[1] === 'ld';

export function shapeOf({ parts }: PtxInstruction): { readonly shape: string; readonly columns: number } {
  const shape = parts.find((part) => /^m64n\d+k\d+$/.test(part)) ?? '';
  return { shape, columns: Number(/n(\d+)/.exec(shape)?.[1]) };
}

/** By instruction, the products whose sums it reads or writes, or whose factor it writes, unless they have been awaited. */
export function touchedSums(
  blocks: readonly BasicBlock[],
): ReadonlyMap<PtxInstruction, ReadonlySet<PtxInstruction>> {
  const touched = new Map<PtxInstruction, ReadonlySet<PtxInstruction>>();
  if (!blocks.some(({ instructions }) => instructions.some((one) => isProduct(one) || isTensorLoad(one))))
    return touched;
  const before: State[] = blocks.map(() => new Map());
  const todo = new Set(blocks.keys());
  for (const at of todo) {
    todo.delete(at);
    const state = new Map(before[at]);
    for (const instruction of blocks[at]!.instructions) step(instruction, state, touched);
    for (const to of blocks[at]!.to) if (join(before[to]!, state)) todo.add(to);
  }
  return touched;
}

function step(
  instruction: PtxInstruction,
  state: State,
  touched: Map<PtxInstruction, ReadonlySet<PtxInstruction>>,
): void {
  const { parts, operands } = instruction;
  const [to, from] = operands;
  if (parts[0] === 'wgmma') {
    if (isProduct(instruction))
      for (const [operand, isFactor] of [
        [from, true],
        [to, false],
      ] as const)
        for (const { name } of operand?.kind === 'list' ? registersIn(operand) : [])
          state.set(name, { by: new Set([instruction]), isFactor, age: -1 });
    else if (parts[1] === 'commit_group')
      for (const [name, { age, ...flight }] of state)
        state.set(name, { ...flight, age: Math.min(age + 1, oldest) });
    else if (parts[1] === 'wait_group' && to?.kind === 'integer')
      for (const [name, { age }] of state) if (age >= to.value) state.delete(name);
    return;
  }
  if (isTensorLoad(instruction))
    for (const { name } of registersIn(to))
      state.set(name, { by: new Set([instruction]), isFactor: false, age: -1 });
  else if (parts[1] === 'wait::ld')
    for (const [name, { by }] of state) if ([...by].some(isTensorLoad)) state.delete(name);
  if (isTensorLoad(instruction)) return;
  // A compiler moves sums from register to register at any time.
  if (parts[0] === 'mov' && to?.kind === 'register' && from?.kind === 'register') {
    const moved = state.get(from.name);
    if (moved === undefined || moved.isFactor) state.delete(to.name);
    else state.set(to.name, moved);
    return;
  }
  const written = to?.kind === 'address' ? [] : registersIn(to).map(({ name }) => name);
  const by = operands.flatMap(registersIn).flatMap(({ name }) => {
    const flight = state.get(name);
    return flight === undefined || (flight.isFactor && !written.includes(name)) ? [] : [...flight.by];
  });
  if (by.length > 0) touched.set(instruction, new Set([...(touched.get(instruction) ?? []), ...by]));
}

/** Adds what another way brings; whether that is new. */
function join(into: State, from: State): boolean {
  let changed = false;
  for (const [name, { by, isFactor, age }] of from) {
    const known = into.get(name);
    const all = new Set([...(known?.by ?? []), ...by]);
    const least = Math.min(known?.age ?? oldest, age);
    if (known !== undefined && all.size === known.by.size && least === known.age) continue;
    into.set(name, { by: all, isFactor: isFactor && known?.isFactor !== false, age: least });
    changed = true;
  }
  return changed;
}
