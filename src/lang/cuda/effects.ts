/** Effects as C++: each becomes one call of a helper or a CUDA intrinsic, as its entry in operations/ says. */
import { HeddleError } from '../../errors/index.js';
import type { Effect, Expr } from '../ir.js';
import { type OperationEffect, type OperationName, operations } from '../operations/index.js';
import type { Text } from '../operations/operation.js';
import { operands } from '../walk.js';
import type { Expressions } from './expressions.js';
import type { Prelude, Target } from './prelude.js';

export class Effects {
  readonly #target: Target;
  readonly #text: Text;

  constructor(target: Target, prelude: Prelude, expressions: Expressions) {
    const print = (expr: Expr): string => expressions.print(expr);
    this.#target = target;
    this.#text = {
      prelude,
      args: (...of) => of.map(print).join(', '),
      place: (pointer) => expressions.place(pointer),
    };
  }

  /** The effect as an expression. `used`: somebody reads its result. */
  print(effect: Effect, used: boolean): string {
    if (this.#target === 'host') return this.#host(effect);
    const { cuda } = operations[effect.op];
    if ('print' in cuda) return this.#cuda(effect, used);
    const { prelude, args } = this.#text;
    return `${prelude.add(cuda.name, cuda.name, cuda)}(${args(...operands(effect))})`;
  }

  #cuda<Op extends OperationName>(effect: OperationEffect<Op>, used: boolean): string {
    const { cuda } = operations[effect.op];
    return 'print' in cuda ? cuda.print(effect, this.#text, used) : cuda.name;
  }

  #host<Op extends OperationName>(effect: OperationEffect<Op>): string {
    const text = operations[effect.op].host?.(effect, this.#text);
    if (text !== undefined) return text;
    throw new HeddleError(
      'HEDDLE_PRINT',
      `'${effect.op}' involves other threads or the clock; a program for the host has one thread. Use printCuda`,
    );
  }
}
