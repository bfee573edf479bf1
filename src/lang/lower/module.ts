/** Lowers a kernel to a module of the IR. */
import * as build from '../build.js';
import { type Definition, deviceDefinition, type KernelDefinition } from '../definition.js';
import { type Diagnostic, KernelError, Problem } from '../diagnostics.js';
import { parameterNames } from '../header.js';
import type { Expr, IrFunction, IrModule, Span, Stmt, Variable } from '../ir.js';
import type { ParamSpec, Using } from '../kernel.js';
import { operations } from '../operations/index.js';
import { isMinified, parseBody } from '../parse.js';
import { mostShared, sharedLayout } from '../shared.js';
import { isTile, showTile } from '../tile.js';
import type { IrType, Layout } from '../types.js';
import {
  bodies,
  changedBy,
  expressionsOf,
  isLeftEarly,
  isProduct,
  someStatement,
  walkExpression,
  walkStatements,
} from '../walk.js';
import { Context, ModuleContext } from './context.js';
import { bind } from './declarations.js';
import { lowerExpressionBody, lowerStatements } from './statements.js';
import { expression, type Value } from './values.js';

/** Throws a KernelError that carries everything found wrong. */
export function lowerKernel(kernel: KernelDefinition): IrModule {
  const module = new ModuleContext(lowerBody);
  let entry: IrFunction | undefined;
  try {
    entry = lowerEntry(module, kernel);
    checkShared(module, kernel);
    checkTwins(module, entry.body);
    checkSums(module, entry.body);
  } catch (error) {
    // The author hears of any failure as an error of this kernel.
    if (!(error instanceof Problem)) throw internalError(kernel, error);
    module.problems.push(error);
  }
  if (entry === undefined || module.problems.length > 0)
    throw new KernelError(kernel.name, diagnostics(module));
  return {
    name: kernel.name,
    entry,
    shared: module.shared,
    layouts: [...new Set(Object.values(kernel.params).flatMap(layoutOf))],
    sources: module.sources,
    maxThreads: kernel.maxThreads,
    cluster: kernel.cluster,
    specialization: describeUsing(kernel.using),
  };
}

function lowerEntry(module: ModuleContext, kernel: KernelDefinition): IrFunction {
  const { name, source } = kernel;
  const ctx = new Context(module, source, undefined);
  const params: Variable[] = [];
  const entries = new Map(
    Object.entries(kernel.params).map(([of, spec]) => [of, parameter(ctx, params, of, spec)] as const),
  );
  const body = ctx.capture(() => {
    lowerBody(ctx, kernel, entries);
  });
  return { name, params, body, span: { start: 0, end: source.text.length, source: 0 } };
}

function parameter(ctx: Context, params: Variable[], name: string, spec: ParamSpec): Value {
  if (typeof spec === 'object' && spec.kind === 'list') {
    const items = parameterNames(name, spec).map((item) => parameter(ctx, params, item, spec.of));
    return { kind: 'list', items, what: `the list ${name}` };
  }
  const add = (type: IrType): Variable => {
    const variable = ctx.variable(name, type);
    params.push(variable);
    return variable;
  };
  if (typeof spec === 'string') return expression(ctx.read(add(build.valueType(spec))));
  if (spec.kind === 'pointer') return expression(ctx.read(add(build.pointerType(spec.to, 'global'))));
  return { kind: 'handle', variable: add(spec) };
}

const layoutOf = (spec: ParamSpec): Layout[] =>
  typeof spec === 'object' && spec.kind === 'peers' ? [spec.layout] : [];

function checkShared(module: ModuleContext, { source }: KernelDefinition): void {
  const { bytes } = sharedLayout(module.shared);
  const last = module.shared.at(-1);
  if (last === undefined || bytes <= mostShared) return;
  const message = `shared memory takes ${bytes} bytes; a block has at most ${mostShared}, where the GPU has so much`;
  module.report('HK608', message, source, last.span);
}

/** `g.network.*` is legal only in the twin of a foreign function. */
function checkTwins(module: ModuleContext, body: readonly Stmt[]): void {
  const inTwins = new Set<Stmt>();
  walkStatements(body, (stmt) => {
    if (stmt.kind === 'foreign') walkStatements(stmt.twin, (inside) => inTwins.add(inside));
    if (stmt.kind !== 'effect' || !operations[stmt.effect.op].twinOnly || inTwins.has(stmt)) return;
    const message = `g.${stmt.effect.op} stands in the twin of a foreign function only; call one`;
    module.report('HK705', message, module.sources[stmt.span.source]!, stmt.span);
  });
}

function checkSums(module: ModuleContext, body: readonly Stmt[]): void {
  findEarlyUses(body, (span, { name }) => {
    const message = `${name} belongs to a product that is still under way: commit its group (g.wgmma.commit) and await that (g.wgmma.wait) before`;
    module.report('HK610', message, module.sources[span.source]!, span);
  });
}

/** Mistakes in the order found, each once: an unrolled loop finds one again and again. */
function diagnostics({ problems, sources }: ModuleContext): Diagnostic[] {
  const [first] = problems.filter(({ source, code }) => code !== 'HK103' && isMinified(source));
  if (first !== undefined) return [minified(first)];
  const seen = new Set<string>();
  return problems.flatMap((problem) => {
    const key = `${problem.code} ${sources.indexOf(problem.source)} ${problem.start} ${problem.end}`;
    if (seen.has(key)) return [];
    seen.add(key);
    return [problem.diagnostic()];
  });
}

/** All that a minifier did is one mistake, and not the author's. */
function minified({ source, message, start, end }: Problem): Diagnostic {
  const advice =
    'statements of this body are joined to expressions, as by a minifier, which the kernel language does not have. Keep them as they are: ' +
    '`minifySyntax: false` for esbuild and Vite up to 7, `treeshake: false, output: { minify: { compress: false } }` in the ' +
    '`build.rolldownOptions` of Vite 8, `compress: false` for terser, which Rollup and webpack use; or leave ' +
    `kernels out of the bundle (docs/language.md, Bundlers and minifiers). First: ${message}`;
  return new Problem('HK105', advice, source, start, end).diagnostic();
}

function internalError(kernel: KernelDefinition, error: unknown): KernelError {
  const { source } = kernel;
  const why = error instanceof Error ? error.message : String(error);
  const { line, column } = source.position(0);
  const message = `the compiler failed on this kernel: ${why}. Please report it with the kernel's source`;
  return new KernelError(
    kernel.name,
    [{ code: 'HK900', message, file: source.file, line, column, frame: '' }],
    { cause: error },
  );
}

// The body of a kernel or of a device function: its three parameters, then its statements.

/** Returns true when control never comes out at the end. */
export function lowerBody(ctx: Context, definition: Definition, params: ReadonlyMap<string, Value>): boolean {
  const { parameters, body } = parseBody(definition.source);
  const values: readonly Value[] = [
    { kind: 'gpu', path: '' },
    { kind: 'record', entries: params, what: 'params' },
    usingValue(definition.using, 'using'),
  ];
  for (const [i, pattern] of parameters.entries()) bind(ctx, pattern, values[i]!, pattern);
  return 'statements' in body
    ? lowerStatements(ctx, body.statements)
    : lowerExpressionBody(ctx, body.expression);
}

// Compile-time values: as bodies see them, and as text.

export function usingValue(value: Using, what: string): Value {
  if (typeof value === 'number' || typeof value === 'bigint') return { kind: 'literal', value };
  if (typeof value === 'boolean') return expression(build.boolean(value));
  if (typeof value === 'string') return { kind: 'string', value };
  if (isTile(value)) return { kind: 'tile', tile: value };
  const definition = deviceDefinition(value);
  if (definition !== undefined) {
    return {
      kind: 'device',
      definition,
      name: definition.named ? definition.name : what.replace(/^.*\./, ''),
    };
  }
  if (Array.isArray(value)) {
    return { kind: 'list', items: value.map((item, i) => usingValue(item, `${what}[${i}]`)), what };
  }
  const entries = Object.entries(value).map(
    ([key, item]) => [key, usingValue(item, `${what}.${key}`)] as const,
  );
  return { kind: 'record', entries: new Map(entries), what };
}

/** `EP=8, flags={counts:true}`. Device functions are left out: what they were made with shows in the code. */
export function describeUsing(using: { readonly [name: string]: Using }): string {
  return Object.entries(using)
    .filter(([, value]) => !isCode(value))
    .map(([name, value]) => `${name}=${describe(value)}`)
    .join(', ');
}

function describe(value: Using): string {
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value !== 'object' && typeof value !== 'function') return String(value);
  if (isTile(value)) return showTile(value);
  if (Array.isArray(value)) return `[${value.map(describe).join(',')}]`;
  const entries = Object.entries(value).map(([key, item]) => `${key}:${describe(item)}`);
  return `{${entries.join(',')}}`;
}

/** A device function, or several in an array or an object. */
const isCode = (value: Using): boolean =>
  deviceDefinition(value) !== undefined ||
  (typeof value === 'object' && value !== null && Object.values(value).some(isCode));

/**
 * Sums of a product (wgmma) are nobody's until a wait. A mistake that straight-line code shows is an error of the kernel; the rest the
 * simulated machine finds.
 */

/** Calls `found` with each statement that reads or writes sums of a product which nothing has awaited since. */
export function findEarlyUses(
  statements: readonly Stmt[],
  found: (span: Span, sums: Variable) => void,
  /** Sums whose product is under way when the statements begin; the call changes it to those when they end. */
  busy = new Set<Variable>(),
): void {
  for (const stmt of statements) {
    if (busy.size > 0) for (const sums of usedBy(stmt)) if (busy.has(sums)) found(stmt.span, sums);
    if (stmt.kind === 'effect') {
      if (isProduct(stmt.effect)) for (const sums of changedBy(stmt.effect)) busy.add(sums);
      // A wait that leaves groups pending may be for these or for others.
      if (stmt.effect.op === 'wgmma.wait') busy.clear();
    } else if (stmt.kind === 'block' && !isLeftEarly(stmt)) findEarlyUses(stmt.body, found, busy);
    else {
      for (const list of bodies(stmt)) findEarlyUses(list, found, new Set(busy));
      if (awaits(stmt)) busy.clear();
    }
  }
}

/** Whether a wait stands in one of the lists of a statement, which may be run or not. */
const awaits = (stmt: Stmt): boolean =>
  bodies(stmt).some((list) =>
    someStatement(list, (inside) => inside.kind === 'effect' && inside.effect.op === 'wgmma.wait'),
  );

/** The register arrays that a statement itself reads or writes; a product may go on with sums of an earlier one. */
function usedBy(stmt: Stmt): Variable[] {
  const used: Variable[] = stmt.kind === 'assignRegister' ? [stmt.array] : [];
  const look = (expr: Expr): void => {
    if (expr.kind === 'register') used.push(expr.array);
  };
  for (const expr of expressionsOf(stmt)) walkExpression(expr, look);
  if (stmt.kind === 'effect' && !isProduct(stmt.effect)) used.push(...changedBy(stmt.effect));
  return used;
}
