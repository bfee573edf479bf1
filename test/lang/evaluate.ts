/**
 * Runs the IR of a kernel for one thread without other threads, for tests of the lowering: weak loads and stores
 * to arrays, arithmetic, control flow and inlined calls.
 */
import * as arithmetic from '../../src/lang/arithmetic.js';
import { isComputeName, valueName } from '../../src/lang/build.js';
import type { Expr, InlinedCall, IrModule, Stmt } from '../../src/lang/index.js';
import { computePure } from '../../src/lang/operations/pure.js';

type Value = arithmetic.Constant | Pointer;
interface Pointer {
  readonly array: (number | bigint)[];
  readonly index: number;
}
type Frame = Map<number, Value | Value[]>;
type Ending = 'break' | 'continue' | 'return' | InlinedCall | undefined;

/** Arguments by flattened name; a pointer is an array of elements. */
export function evaluate(
  module: IrModule,
  args: Readonly<Record<string, arithmetic.Constant | (number | bigint)[]>>,
): void {
  const frame: Frame = new Map(
    module.entry.params.map((variable) => {
      const value = args[variable.name]!;
      return [variable.id, Array.isArray(value) ? { array: value, index: 0 } : value];
    }),
  );
  new Evaluator().run(module.entry.body, frame);
}

class Evaluator {
  run(statements: readonly Stmt[], frame: Frame): Ending {
    for (const stmt of statements) {
      const ending = this.#step(stmt, frame);
      if (ending !== undefined) return ending;
    }
    return undefined;
  }

  #step(stmt: Stmt, frame: Frame): Ending {
    switch (stmt.kind) {
      case 'let':
        if (stmt.init !== null) frame.set(stmt.variable.id, this.#expr(stmt.init, frame));
        return undefined;
      case 'assign':
        frame.set(stmt.variable.id, this.#expr(stmt.value, frame));
        return undefined;
      case 'registers': {
        const length = stmt.variable.type.kind === 'registers' ? stmt.variable.type.length : 0;
        frame.set(stmt.variable.id, new Array<Value>(length).fill(this.#expr(stmt.fill, frame)));
        return undefined;
      }
      case 'assignRegister':
        (frame.get(stmt.array.id) as Value[])[stmt.index] = this.#expr(stmt.value, frame);
        return undefined;
      case 'effect': {
        const result = this.#effect(stmt, frame);
        if (stmt.result !== null && result !== undefined) frame.set(stmt.result.id, result);
        return undefined;
      }
      case 'if':
        return this.run(this.#expr(stmt.test, frame) ? stmt.then : stmt.else, frame);
      case 'block': {
        const ending = this.run(stmt.body, frame);
        return ending === stmt.call ? undefined : ending;
      }
      case 'foreign':
        return this.run(stmt.twin, frame);
      case 'leave':
        return stmt.call;
      case 'for':
      case 'while': {
        if (stmt.kind === 'for') this.run(stmt.init, frame);
        while (this.#expr(stmt.test, frame)) {
          const ending = this.run(stmt.body, frame);
          if (ending === 'break') break;
          if (ending === 'return' || typeof ending === 'object') return ending;
          if (stmt.kind === 'for') this.run(stmt.update, frame);
        }
        return undefined;
      }
      case 'break':
      case 'continue':
      case 'return':
        return stmt.kind;
    }
  }

  #effect({ effect }: Stmt & { readonly kind: 'effect' }, frame: Frame): Value | undefined {
    switch (effect.op) {
      case 'load': {
        const { array, index } = this.#expr(effect.pointer, frame) as Pointer;
        return array[index]!;
      }
      case 'store': {
        const { array, index } = this.#expr(effect.pointer, frame) as Pointer;
        array[index] = this.#expr(effect.value, frame) as number | bigint;
        return undefined;
      }
      default:
        throw new Error(`the evaluator has no ${effect.op}`);
    }
  }

  #expr(expr: Expr, frame: Frame): Value {
    const constant = (of: Expr): arithmetic.Constant => this.#expr(of, frame) as arithmetic.Constant;
    switch (expr.kind) {
      case 'const':
        return expr.value;
      case 'variable':
        return frame.get(expr.variable.id) as Value;
      case 'builtin':
        return 0;
      case 'unary':
        return arithmetic.unary(expr.op, compute(expr), constant(expr.arg));
      case 'binary':
        return arithmetic.binary(expr.op, compute(expr.left), constant(expr.left), constant(expr.right));
      case 'select':
        return this.#expr(this.#expr(expr.test, frame) ? expr.then : expr.else, frame);
      case 'pure':
        return computePure(expr.name, compute(expr), expr.args.map(constant));
      case 'convert':
        return arithmetic.convert(compute(expr.arg), compute(expr), constant(expr.arg));
      case 'bits':
        return arithmetic.bits(compute(expr.arg), compute(expr), constant(expr.arg));
      case 'register':
        return (frame.get(expr.array.id) as Value[])[expr.index]!;
      case 'index':
        return this.#expr(expr.value, frame);
      case 'offset': {
        const { array, index } = this.#expr(expr.pointer, frame) as Pointer;
        return { array, index: index + Number(constant(expr.index)) };
      }
      default:
        throw new Error(`the evaluator has no ${expr.kind}`);
    }
  }
}

function compute(expr: Expr) {
  const name = valueName(expr.type);
  if (name === undefined || !isComputeName(name)) throw new Error('the evaluator computes with scalars only');
  return name;
}
