/** Lowers a kernel to a module of the IR. */
import * as build from '../build.js';
import type { DeviceDefinition, KernelDefinition } from '../definition.js';
import { type Diagnostic, type FramedSource, KernelError, Problem } from '../diagnostics.js';
import type { IrFunction, IrModule, Param, SharedArray, Span, Stmt, Variable } from '../ir.js';
import type { ParamSpec, PointerParam, ScalarParam, TensorMapParam } from '../kernel.js';
import { operations } from '../operations/index.js';
import { isMinified } from '../parse.js';
import { mostShared, sharedLayout } from '../shared.js';
import type { IrType, Layout } from '../types.js';
import { walkStatements } from '../walk.js';
import { lowerBody } from './body.js';
import { type CallPlace, Context, type ModuleContext } from './context.js';
import { findEarlyUses } from './sums.js';
import { describeUsing } from './using.js';
import { expression, type Value } from './values.js';

/** A body that is inlined more often than this is a mistake, and would take minutes to compile. */
const mostCalls = 4096;

/** Throws a KernelError that carries everything found wrong. */
export function lowerKernel(definition: KernelDefinition): IrModule {
  return new ModuleLowering(definition).run();
}

class ModuleLowering implements ModuleContext {
  nextId = 0;
  #unrolled = 0;
  #calls = 0;
  readonly #problems: Problem[] = [];
  readonly #active = new Set<DeviceDefinition>();
  readonly #sources: FramedSource[] = [];
  readonly #layouts = new Set<Layout>();
  readonly #shared: SharedArray[] = [];
  readonly #kernel: KernelDefinition;

  constructor(kernel: KernelDefinition) {
    this.#kernel = kernel;
  }

  run(): IrModule {
    const kernel = this.#kernel;
    let entry: IrFunction | undefined;
    try {
      entry = this.#lower();
      this.#checkShared();
      this.#checkTwins(entry.body);
      this.#checkSums(entry.body);
    } catch (error) {
      // The author hears of any failure as an error of this kernel.
      if (!(error instanceof Problem)) throw internalError(kernel, error);
      this.report(error);
    }
    if (entry === undefined || this.#problems.length > 0)
      throw new KernelError(kernel.name, this.#diagnostics());
    return {
      name: kernel.name,
      entry,
      shared: this.#shared,
      layouts: [...this.#layouts],
      sources: this.#sources,
      maxThreads: kernel.maxThreads,
      cluster: kernel.cluster,
      specialization: describeUsing(kernel.using),
    };
  }

  get problemCount(): number {
    return this.#problems.length;
  }

  report(problem: Problem): void {
    this.#problems.push(problem);
  }

  takeId(): number {
    return this.nextId++;
  }

  countUnrolled(): number {
    return ++this.#unrolled;
  }

  addShared(variable: Variable, length: number, span: Span): void {
    this.#shared.push({ variable, length, span });
  }

  lowerCallee(
    call: CallPlace,
    callee: Context,
    definition: DeviceDefinition,
    params: ReadonlyMap<string, Value>,
  ): boolean {
    if (this.#active.has(definition)) {
      call.fail(
        'HK701',
        `${call.name} calls itself; a device function cannot, for it takes the place of its calls`,
      );
    }
    if (++this.#calls > mostCalls) {
      call.fail(
        'HK703',
        `device functions are called more than ${mostCalls} times in all; call them in a loop`,
      );
    }
    this.#active.add(definition);
    try {
      return lowerBody(callee, definition, params);
    } finally {
      this.#active.delete(definition);
    }
  }

  sourceIndex(source: FramedSource): number {
    const known = this.#sources.indexOf(source);
    return known >= 0 ? known : this.#sources.push(source) - 1;
  }

  #lower(): IrFunction {
    const { name, params: specs, source } = this.#kernel;
    const ctx = new Context(this, source, undefined);
    const span = { start: 0, end: source.text.length, source: this.sourceIndex(source) };
    const params: Param[] = [];
    const entries = new Map<string, Value>();
    for (const [paramName, spec] of Object.entries(specs)) {
      entries.set(paramName, this.#parameter(ctx, params, paramName, spec));
    }
    const body = ctx.capture(() => {
      lowerBody(ctx, this.#kernel, entries);
    });
    return { name, params, body, span };
  }

  #parameter(ctx: Context, params: Param[], name: string, spec: ParamSpec): Value {
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
    if (typeof spec === 'object' && spec.kind === 'peers') {
      this.#layouts.add(spec.layout);
      return { kind: 'peers', variable: add(build.peersType(spec.layout), null), layout: spec.layout };
    }
    if (typeof spec === 'object' && spec.kind === 'list') {
      const items = Array.from({ length: spec.length }, (_, i) => one(spec.of, i));
      return { kind: 'list', items, what: `the list ${name}` };
    }
    return one(spec, null);
  }

  #checkShared(): void {
    const { bytes } = sharedLayout(this.#shared);
    const last = this.#shared.at(-1);
    if (last === undefined || bytes <= mostShared) return;
    const message = `shared memory takes ${bytes} bytes; a block has at most ${mostShared}, where the GPU has so much`;
    this.report(new Problem('HK608', message, this.#kernel.source, last.span.start, last.span.end));
  }

  /** `g.network.*` is legal only in the twin of a foreign function. */
  #checkTwins(body: readonly Stmt[]): void {
    const inTwins = new Set<Stmt>();
    walkStatements(body, (stmt) => {
      if (stmt.kind === 'foreign') walkStatements(stmt.twin, (inside) => inTwins.add(inside));
      if (stmt.kind !== 'effect' || !operations[stmt.effect.op].twinOnly || inTwins.has(stmt)) return;
      const { source, start, end } = stmt.span;
      const message = `g.${stmt.effect.op} stands in the twin of a foreign function only; call one`;
      this.report(new Problem('HK705', message, this.#sources[source]!, start, end));
    });
  }

  #checkSums(body: readonly Stmt[]): void {
    findEarlyUses(body, ({ source, start, end }, { name }) => {
      const message = `${name} belongs to a product that is still under way: commit its group (g.wgmma.commit) and await that (g.wgmma.wait) before`;
      this.report(new Problem('HK610', message, this.#sources[source]!, start, end));
    });
  }

  /** In the order found; an unrolled loop finds the same again and again. */
  #diagnostics(): Diagnostic[] {
    const [first] = this.#problems.filter(({ source, code }) => code !== 'HK103' && isMinified(source));
    if (first !== undefined) return [minified(first)];
    const seen = new Set<string>();
    return this.#problems.flatMap((problem) => {
      const key = `${problem.code} ${this.#sources.indexOf(problem.source)} ${problem.start} ${problem.end}`;
      if (seen.has(key)) return [];
      seen.add(key);
      return [problem.diagnostic()];
    });
  }
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
