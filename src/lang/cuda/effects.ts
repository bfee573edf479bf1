/** Effects as C++: each becomes one call of a helper or a CUDA intrinsic, as its entry in operations/ says. */
import { HeddleError } from '../../base/errors.js';
import type { Effect, Expr, ForeignFunction } from '../ir.js';
import { type OperationEffect, type OperationName, operations } from '../operations/index.js';
import type { Text } from '../operations/operation.js';
import { operands } from '../walk.js';
import type { Expressions } from './expressions.js';
import type { Prelude, Target } from './prelude.js';

export class Effects {
  readonly #target: Target;
  readonly #text: Text;
  readonly #expressions: Expressions;

  constructor(target: Target, prelude: Prelude, expressions: Expressions) {
    const print = (expr: Expr): string => expressions.print(expr);
    this.#target = target;
    this.#expressions = expressions;
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

  /** A call of a function that somebody else has written. */
  foreign({ name, header, returns }: ForeignFunction, args: readonly Expr[]): string {
    const { prelude } = this.#text;
    if (this.#target === 'host') this.#notForHost(name);
    if (header !== undefined) prelude.include(header);
    const types = args.map(({ type }) => this.#expressions.type(type));
    const result = returns.kind === 'void' ? 'void' : this.#expressions.type(returns);
    const text = header === undefined ? `extern "C" __device__ ${result} ${name}(${types.join(', ')});` : '';
    return `${prelude.add(name, name, { text })}(${this.#text.args(...args)})`;
  }

  #cuda<Op extends OperationName>(effect: OperationEffect<Op>, used: boolean): string {
    const { cuda } = operations[effect.op];
    return 'print' in cuda ? cuda.print(effect, this.#text, used) : cuda.name;
  }

  #host<Op extends OperationName>(effect: OperationEffect<Op>): string {
    const text = operations[effect.op].host?.(effect, this.#text);
    if (text !== undefined) return text;
    return this.#notForHost(effect.op);
  }

  #notForHost(what: string): never {
    throw new HeddleError(
      'HEDDLE_PRINT',
      `'${what}' involves other threads or the clock; a program for the host has one thread. Use printCuda`,
    );
  }
}
