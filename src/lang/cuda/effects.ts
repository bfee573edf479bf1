/** Effects as C++: each becomes one call of a helper or a CUDA intrinsic, as its operation says. */
import type { Expr, ForeignFunction } from '../ir.js';
import { type OperationEffect, type OperationName, operations } from '../operations/index.js';
import type { Text } from '../operations/operation.js';
import { operands } from '../walk.js';
import type { Expressions } from './expressions.js';
import type { heldSums } from './held-sums.js';
import type { Prelude } from './prelude.js';
import type { Scopes } from './scopes.js';

export class Effects {
  readonly #prelude: Prelude;
  readonly #text: Text;
  readonly #expressions: Expressions;

  constructor(
    prelude: Prelude,
    expressions: Expressions,
    scopes: Scopes,
    of: { readonly inCluster: boolean; readonly held: ReturnType<typeof heldSums> },
  ) {
    const print = (expr: Expr): string => expressions.print(expr);
    this.#prelude = prelude;
    this.#expressions = expressions;
    this.#text = {
      prelude,
      call: (helper, effect) => this.#call(helper, effect),
      args: (...of) => of.map(print).join(', '),
      place: (pointer) => expressions.place(pointer),
      inCluster: of.inCluster,
      heldAt: (effect) => scopes.namesOf(of.held.get(effect) ?? new Set()),
    };
  }

  /** The effect as an expression. `used`: somebody reads its result. */
  print<Op extends OperationName>(effect: OperationEffect<Op>, used: boolean): string {
    const { cuda } = operations[effect.op];
    return typeof cuda === 'string' ? this.#call(cuda, effect) : cuda(effect, this.#text, used);
  }

  /** A call of a function that somebody else has written. */
  foreign({ name, header, returns }: ForeignFunction, args: readonly Expr[]): string {
    const prelude = this.#prelude;
    if (header !== undefined) prelude.include(header);
    const types = args.map(({ type }) => this.#expressions.type(type));
    const result = returns.kind === 'void' ? 'void' : this.#expressions.type(returns);
    const text =
      header === undefined ? `extern "C" __device__ ${result} ${name}(${types.join(', ')});` : name;
    return `${prelude.add(text)}(${this.#text.args(...args)})`;
  }

  #call(helper: string, effect: object): string {
    const counts = Object.values(effect).filter((operand) => typeof operand === 'number');
    const template = counts.length === 0 ? '' : `<${counts.join(', ')}>`;
    return `${this.#prelude.add(helper)}${template}(${this.#text.args(...operands(effect))})`;
  }
}
