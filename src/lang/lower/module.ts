/** Lowers a kernel to a module of the IR. */
import * as build from '../build.js';
import type { KernelDefinition } from '../definition.js';
import { type Diagnostic, KernelError, Problem } from '../diagnostics.js';
import type { IrFunction, IrModule, Param, Stmt, Variable } from '../ir.js';
import type { ParamSpec, PointerParam, ScalarParam, TensorMapParam } from '../kernel.js';
import { operations } from '../operations/index.js';
import { isMinified } from '../parse.js';
import { mostShared, sharedLayout } from '../shared.js';
import type { IrType, Layout } from '../types.js';
import { walkStatements } from '../walk.js';
import { lowerBody } from './body.js';
import { Context, ModuleContext } from './context.js';
import { findEarlyUses } from './sums.js';
import { describeUsing } from './using.js';
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
  const params: Param[] = [];
  const entries = new Map(
    Object.entries(kernel.params).map(([of, spec]) => [of, parameter(ctx, params, of, spec)] as const),
  );
  const body = ctx.capture(() => {
    lowerBody(ctx, kernel, entries);
  });
  return { name, params, body, span: { start: 0, end: source.text.length, source: 0 } };
}

function parameter(ctx: Context, params: Param[], name: string, spec: ParamSpec): Value {
  const add = (type: IrType, index: number | null): Variable => {
    const variable = ctx.variable(index === null ? name : `${name}_${index}`, type);
    params.push({ variable, name, index });
    return variable;
  };
  const one = (of: ScalarParam | PointerParam | TensorMapParam, index: number | null): Value => {
    if (typeof of === 'string') return expression(ctx.read(add(build.valueType(of), index)));
    if (of.kind === 'pointer') return expression(ctx.read(add(build.pointerType(of.to, 'global'), index)));
    const { tile, rank } = of;
    return expression(ctx.read(add({ kind: 'tensorMap', tile, rank }, index)));
  };
  if (typeof spec === 'object' && spec.kind === 'peers')
    return { kind: 'peers', variable: add(build.peersType(spec.layout), null), layout: spec.layout };
  if (typeof spec === 'object' && spec.kind === 'list') {
    const items = Array.from({ length: spec.length }, (_, i) => one(spec.of, i));
    return { kind: 'list', items, what: `the list ${name}` };
  }
  return one(spec, null);
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

/** In the order found; an unrolled loop finds the same again and again. */
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
    '`minifySyntax: false` for esbuild and Vite, `compress: false` for terser, which Rollup and webpack use; or leave ' +
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
