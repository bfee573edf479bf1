/** Statements as C++: control flow, declarations, assignments. */
import { HeddleError } from '../../base/errors.js';
import { settled } from '../build.js';
import type { Expr, Span, Stmt, Variable } from '../ir.js';
import {
  children,
  declares,
  expressionsOf,
  isLeftEarly,
  someExpression,
  someStatement,
  walkExpression,
  walkStatements,
  writtenBy,
} from '../walk.js';
import type { Effects } from './effects.js';
import type { Expressions } from './expressions.js';
import { identifier, type Scopes } from './scopes.js';
import type { Writer } from './writer.js';

type Assignment = Extract<Stmt, { kind: 'assign' | 'assignRegister' }>;

export class Statements {
  readonly writer: Writer;
  readonly expressions: Expressions;
  readonly #scopes: Scopes;
  readonly #effects: Effects;
  /** Reads of each variable, by id. */
  readonly #reads = new Map<number, number>();

  constructor(writer: Writer, scopes: Scopes, expressions: Expressions, effects: Effects) {
    this.writer = writer;
    this.expressions = expressions;
    this.#scopes = scopes;
    this.#effects = effects;
  }

  body(statements: readonly Stmt[]): void {
    walkStatements(statements, (statement) => {
      for (const expr of expressionsOf(statement)) {
        walkExpression(expr, (inner) => {
          if (inner.kind !== 'variable') return;
          this.#reads.set(inner.variable.id, (this.#reads.get(inner.variable.id) ?? 0) + 1);
        });
      }
    });
    this.#block(statements);
  }

  #block(statements: readonly Stmt[], span: Span | null = null): void {
    this.#scopes.enter();
    this.writer.indented(() => this.#sequence(statements, span));
    this.#scopes.leave();
  }

  /** `span`: of the call, where these are a device function's. */
  #sequence(statements: readonly Stmt[], span: Span | null = null): void {
    for (let i = 0; i < statements.length; i++) {
      const [statement, next] = [statements[i]!, statements[i + 1]];
      if (statement.kind === 'effect' && this.#isCopy(statement.result, next)) {
        const text = this.#effects.print(statement.effect, true);
        this.writer.line(`${this.#place(next)} = ${text};`, statement.span);
        i++;
      } else if (next?.kind === 'block' && this.#isResult(statement, next, statements[i + 2])) {
        this.#statement(next);
        i += 2;
      } else if (isRenaming(statement, span) && !assigns(statements.slice(i + 1), statement.init)) {
        this.#scopes.replace(statement.variable, this.expressions.print(statement.init));
      } else if (statement.kind === 'effect' && this.#isInNext(statement.result, next)) {
        this.#scopes.replace(statement.result, operand(this.#effects.print(statement.effect, true)));
      } else this.#statement(statement);
    }
  }

  /** Whether all that ever happens to `variable` is that `next` assigns it: `row[0] = load(p)` needs no name. */
  #isCopy(variable: Variable | null, next: Stmt | undefined): next is Assignment {
    return (
      variable !== null &&
      (next?.kind === 'assign' || next?.kind === 'assignRegister') &&
      next.value.kind === 'variable' &&
      next.value.variable.id === variable.id &&
      this.#reads.get(variable.id) === 1
    );
  }

  /** `if (load(p) != 0u)`: whether `next` surely reads the nameless result of an effect, and nothing else does. */
  #isInNext(variable: Variable | null, next: Stmt | undefined): variable is Variable {
    // If the effect moved into the condition of a loop, it would happen in every round; in a register array, for every element.
    if (next === undefined || ['for', 'while', 'registers'].includes(next.kind)) return false;
    if (variable?.unnamed !== true || this.#reads.get(variable.id) !== 1) return false;
    return expressionsOf(next).some((expr) => surelyReads(expr, variable));
  }

  /** Whether a call's nameless result only goes to where `behind` assigns it; then the call assigns it there itself. */
  #isResult(statement: Stmt, call: Stmt, behind: Stmt | undefined): boolean {
    if (statement.kind !== 'let' || statement.init !== null || statement.variable.unnamed !== true)
      return false;
    if (!this.#isCopy(statement.variable, behind)) return false;
    const place = behind.kind === 'assign' ? behind.variable : behind.array;
    if (touches([call], place)) return false;
    this.#scopes.replace(statement.variable, this.#place(behind));
    return true;
  }

  #statement(statement: Stmt): void {
    const { writer, expressions } = this;
    const { span } = statement;
    switch (statement.kind) {
      case 'let':
      case 'assign':
      case 'assignRegister':
        writer.line(`${this.#simple(statement)};`, span);
        break;
      case 'registers': {
        const { type } = statement.variable;
        if (type.kind !== 'registers')
          throw new HeddleError('HEDDLE_PRINT', 'a register array must have its type');
        expressions.type({ kind: 'value', name: type.of });
        const fill = isZero(statement.fill)
          ? ''
          : Array(type.length).fill(expressions.print(statement.fill)).join(', ');
        const name = this.#scopes.declare(statement.variable);
        writer.line(`${type.of} ${name}[${type.length}] = {${fill}};`, span);
        break;
      }
      case 'effect': {
        const text = this.#effects.print(statement.effect, statement.result !== null);
        if (statement.result !== null) writer.line(`${this.#declaration(statement.result)} = ${text};`, span);
        else writer.line(`${text};`, span);
        break;
      }
      case 'foreign': {
        const text = this.#effects.foreign(statement.callee, statement.args);
        const declared = statement.result === null ? '' : `${this.#declaration(statement.result)} = `;
        writer.line(`${declared}${text};`, span);
        break;
      }
      case 'if':
        this.#if(statement, '');
        break;
      case 'for':
        this.#for(statement);
        break;
      case 'while':
        writer.line(`while (${expressions.print(statement.test)}) {`, span);
        this.#block(statement.body);
        writer.line('}');
        break;
      case 'break':
      case 'continue':
      case 'return':
        writer.line(`${statement.kind};`, span);
        break;
      case 'block':
        this.#scope(statement);
        break;
      case 'leave':
        writer.line(`goto ${this.#scopes.labelOf(statement.call)};`, span);
        break;
    }
  }

  /** A scope of its own: in braces where something is declared in it, or where it is a device function's. */
  #scope(statement: Extract<Stmt, { kind: 'block' }>): void {
    const { body, call } = statement;
    if (call !== null) {
      this.writer.line(`{  // ${identifier(call.name)}`);
      this.#block(body, statement.span);
      this.writer.line('}');
      if (isLeftEarly(statement)) this.writer.line(`${this.#scopes.labelOf(call)}:;`);
      return;
    }
    const isDeclared = (inner: Stmt, next: Stmt | undefined): boolean =>
      declares(inner) &&
      !(inner.kind === 'effect' && (this.#isCopy(inner.result, next) || this.#isInNext(inner.result, next)));
    if (!body.some((inner, i) => isDeclared(inner, body[i + 1]))) {
      this.#sequence(body);
      return;
    }
    this.writer.line('{');
    this.#block(body);
    this.writer.line('}');
  }

  #declaration(variable: Variable): string {
    const type = this.expressions.type(variable.type);
    return `${variable.mutable ? '' : constant(type)}${type} ${this.#scopes.declare(variable)}`;
  }

  /** A statement that C++ also allows in the head of a `for`. */
  #simple(statement: Stmt): string {
    switch (statement.kind) {
      case 'let': {
        if (statement.init === null) {
          const type = this.expressions.type(statement.variable.type);
          return `${type} ${this.#scopes.declare(statement.variable)}`;
        }
        const init = this.expressions.print(statement.init);
        return `${this.#declaration(statement.variable)} = ${init}`;
      }
      case 'assign':
      case 'assignRegister':
        return this.#assignment(statement);
      default:
        throw new HeddleError('HEDDLE_PRINT', `a '${statement.kind}' cannot stand in the head of a loop`);
    }
  }

  /** `x += n` and `++x` where they mean what the language means: not for i32, which wraps. */
  #assignment(statement: Assignment): string {
    const { value } = statement;
    const place = this.#place(statement);
    const name = value.type.kind === 'value' ? value.type.name : 'v16';
    if (
      value.kind === 'binary' &&
      (value.op === '+' || value.op === '-') &&
      (name === 'u32' || name === 'u64' || name === 'f32') &&
      isPlaceOf(statement, value.left)
    ) {
      if (value.right.kind === 'const' && name !== 'f32' && BigInt(value.right.value) === 1n) {
        return `${value.op}${value.op}${place}`;
      }
      return `${place} ${value.op}= ${this.expressions.print(value.right)}`;
    }
    return `${place} = ${this.expressions.print(value)}`;
  }

  #place(statement: Assignment): string {
    if (statement.kind === 'assign') return this.#scopes.nameOf(statement.variable);
    return `${this.#scopes.nameOf(statement.array)}[${statement.index}]`;
  }

  #if(statement: Extract<Stmt, { kind: 'if' }>, before: string): void {
    const { writer } = this;
    writer.line(
      `${before}if (${this.expressions.print(statement.test)}) {`,
      before === '' ? statement.span : null,
    );
    this.#block(statement.then);
    const [only] = statement.else;
    if (statement.else.length === 1 && only?.kind === 'if') {
      this.#if(only, '} else ');
      return;
    }
    if (statement.else.length > 0) {
      writer.line('} else {');
      this.#block(statement.else);
    }
    writer.line('}');
  }

  #for(statement: Extract<Stmt, { kind: 'for' }>): void {
    const { writer } = this;
    const [first, ...rest] = statement.init;
    // The head of a C++ loop declares variables of one type only. Other loops get a scope around them, which declares
    // all.
    this.#scopes.enter();
    if (rest.length > 0) {
      writer.line('{');
      writer.indented(() => {
        for (const inner of statement.init) this.#statement(inner);
        this.#loop(statement, '');
      });
      writer.line('}');
    } else this.#loop(statement, first === undefined ? '' : this.#simple(first));
    this.#scopes.leave();
  }

  #loop(statement: Extract<Stmt, { kind: 'for' }>, init: string): void {
    const update = statement.update.map((inner) => this.#simple(inner)).join(', ');
    this.writer.line(`for (${init}; ${this.expressions.print(statement.test)}; ${update}) {`, statement.span);
    this.#block(statement.body);
    this.writer.line('}');
  }
}

type Renaming = Extract<Stmt, { kind: 'let' }> & { readonly init: Expr };

/** Whether all that a statement does is to hold what has a name already: an argument of the call of that span, a rank. */
function isRenaming(statement: Stmt, call: Span | null): statement is Renaming {
  if (statement.kind !== 'let' || statement.variable.mutable) return false;
  const { init, variable, span } = statement;
  const isArgument = span.source === call?.source && span.start === call.start && span.end === call.end;
  return (
    (isArgument || variable.unnamed === true) && (init?.kind === 'variable' || init?.kind === 'register')
  );
}

function assigns(statements: readonly Stmt[], place: Expr): boolean {
  if (place.kind === 'variable' && !place.variable.mutable) return false;
  const read = readOf(place);
  return read !== undefined && someStatement(statements, (stmt) => writtenBy(stmt).includes(read));
}

const touches = (statements: readonly Stmt[], variable: Variable): boolean =>
  someStatement(
    statements,
    (stmt) =>
      writtenBy(stmt).includes(variable) ||
      expressionsOf(stmt).some((expr) => someExpression(expr, (part) => readOf(part) === variable)),
  );

function readOf(expr: Expr): Variable | undefined {
  if (expr.kind === 'variable') return expr.variable;
  return expr.kind === 'register' || expr.kind === 'array' ? expr.array : undefined;
}

/** Whether an expression reads a variable whatever else is true. */
function surelyReads(expr: Expr, variable: Variable): boolean {
  if (expr.kind === 'variable') return expr.variable === variable;
  if (expr.kind === 'select') return surelyReads(expr.test, variable);
  if (expr.kind === 'binary' && (expr.op === '&&' || expr.op === '||'))
    return surelyReads(expr.left, variable);
  return settled(expr) === undefined && children(expr).some((child) => surelyReads(child, variable));
}

/** An effect's text where an expression reads it: in parentheses, unless it is one call or an element. */
function operand(text: string): string {
  if (!/^[\w:<>]+[([]/.test(text)) return `(${text})`;
  let depth = 0;
  const end = [...text].findIndex((character) => {
    if (character === '(' || character === '[') depth++;
    if (character === ')' || character === ']') depth--;
    return depth === 0 && (character === ')' || character === ']');
  });
  return end === text.length - 1 ? text : `(${text})`;
}

function isPlaceOf(statement: Assignment, expr: Expr): boolean {
  if (statement.kind === 'assign')
    return expr.kind === 'variable' && expr.variable.id === statement.variable.id;
  return expr.kind === 'register' && expr.array.id === statement.array.id && expr.index === statement.index;
}

/** The value to which `{}` initialises: all bits zero. */
function isZero(expr: Expr): boolean {
  if (expr.kind === 'pack') return expr.lanes.every(isZero);
  return expr.kind === 'const' && (Object.is(expr.value, 0) || expr.value === 0n || expr.value === false);
}

/** `const` before a value type; a pointer is constant after its star, which reads badly and helps nobody. */
function constant(type: string): string {
  return type.endsWith('*') ? '' : 'const ';
}
