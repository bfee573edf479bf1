/** Effects as C++: each becomes one call of a helper or a CUDA intrinsic, as its operation says. */
import type { Expr, ForeignFunction } from '../ir.js';
import { type OperationEffect, type OperationName, operations } from '../operations/index.js';
import type { Text } from '../operations/operation.js';
import { operands } from '../walk.js';
import type { Expressions } from './expressions.js';
import type { heldSums } from './held-sums.js';
import type { Prelude } from './prelude.js';
import type { Scopes } from './scopes.js';

export type Effects = ReturnType<typeof effectsOf>;

export function effectsOf(
  prelude: Prelude,
  expressions: Expressions,
  scopes: Scopes,
  { inCluster, held }: { readonly inCluster: boolean; readonly held: ReturnType<typeof heldSums> },
) {
  const args = (...of: readonly Expr[]): string => of.map((expr) => expressions.print(expr)).join(', ');
  const call = (helper: string, effect: object): string => {
    const counts = Object.values(effect).filter((operand) => typeof operand === 'number');
    const template = counts.length === 0 ? '' : `<${counts.join(', ')}>`;
    return `${prelude.add(helper)}${template}(${args(...operands(effect))})`;
  };
  const text: Text = {
    ...{ prelude, call, args, inCluster },
    place: (pointer) => expressions.place(pointer),
    heldAt: (effect) => scopes.namesOf(held.get(effect) ?? new Set()),
  };
  return {
    /** The effect as an expression. `used`: somebody reads its result. */
    print<Op extends OperationName>(effect: OperationEffect<Op>, used: boolean): string {
      const { cuda } = operations[effect.op];
      return typeof cuda === 'string' ? call(cuda, effect) : cuda(effect, text, used);
    },
    /** A call of a function that somebody else has written. */
    foreign({ name, header, returns }: ForeignFunction, given: readonly Expr[]): string {
      if (header !== undefined) prelude.include(header);
      const types = given.map(({ type }) => expressions.type(type));
      const result = returns.kind === 'void' ? 'void' : expressions.type(returns);
      const declared = `extern "C" __device__ ${result} ${name}(${types.join(', ')});`;
      return `${prelude.add(header === undefined ? declared : name)}(${args(...given)})`;
    },
  };
}
