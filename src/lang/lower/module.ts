/** Lowers a kernel, with the device functions that it calls, to a module of the IR. */
import * as build from '../build.js';
import type { Definition, DeviceDefinition, KernelDefinition } from '../definition.js';
import { deviceDefinition } from '../definition.js';
import { type Diagnostic, type FramedSource, KernelError, Problem } from '../diagnostics.js';
import type { Expr, IrFunction, IrModule, Param, SharedArray, Span, Variable } from '../ir.js';
import type { ParamSpec, PointerParam, ScalarParam, Using } from '../kernel.js';
import { parseBody } from '../parse.js';
import { byteSize, type IrType, type Layout, type Space } from '../types.js';
import { type CallPlace, Context, type ModuleContext } from './context.js';
import { bind } from './declarations.js';
import { describeUsing } from './specialization.js';
import { lowerExpressionBody, lowerStatements } from './statements.js';
import { expression, type Value } from './values.js';

/** Static shared memory of a block, as every GPU since Volta offers it. */
const sharedLimit = 48 * 1024;

/** Throws a KernelError that carries everything found wrong. */
export function lowerKernel(definition: KernelDefinition): IrModule {
  return new ModuleLowering(definition).run();
}

class ModuleLowering implements ModuleContext {
  private readonly problems: Problem[] = [];
  private readonly functions: IrFunction[] = [];
  /** By definition and by the spaces of its pointers. */
  private readonly lowered = new Map<DeviceDefinition, Map<string, number>>();
  private readonly active = new Set<DeviceDefinition>();
  private readonly sources: FramedSource[] = [];
  private readonly layouts = new Set<Layout>();
  private readonly shared: SharedArray[] = [];

  constructor(private readonly kernel: KernelDefinition) {}

  run(): IrModule {
    const { kernel } = this;
    let entry: IrFunction | undefined;
    try {
      entry = this.lower(kernel, kernel.name, 'kernel', build.voidType, undefined);
      this.checkShared();
    } catch (error) {
      // Whatever goes wrong, the author hears of it as an error of this kernel.
      if (!(error instanceof Problem)) throw internalError(kernel, error);
      this.report(error);
    }
    if (entry === undefined || this.problems.length > 0)
      throw new KernelError(kernel.name, this.diagnostics());
    return {
      name: kernel.name,
      entry,
      functions: this.functions,
      shared: this.shared,
      layouts: [...this.layouts],
      sources: this.sources,
      maxThreads: kernel.maxThreads,
      specialization: describeUsing(kernel.using),
    };
  }

  report(problem: Problem): void {
    this.problems.push(problem);
  }

  addShared(variable: Variable, length: number, span: Span): void {
    this.shared.push({ variable, length, span });
  }

  callee(definition: DeviceDefinition, name: string, args: readonly Expr[], call: CallPlace) {
    if (this.active.has(definition)) {
      call.fail(
        'HK701',
        `${name} calls itself; a device function cannot, for a GPU thread has hardly any stack`,
      );
    }
    const returns = definition.returns === 'void' ? build.voidType : build.valueType(definition.returns);
    const spaces = args.map((arg): Space => (arg.type.kind === 'pointer' ? arg.type.space : 'global'));
    const byKey = this.lowered.get(definition) ?? new Map<string, number>();
    this.lowered.set(definition, byKey);
    const key = spaces.join();
    let index = byKey.get(key);
    if (index === undefined) {
      this.active.add(definition);
      const unique = this.uniqueName(definition.named ? definition.name : name);
      const lowered = this.lower(definition, unique, 'device', returns, spaces);
      this.active.delete(definition);
      index = this.functions.push(lowered) - 1;
      byKey.set(key, index);
    }
    return { index, returns };
  }

  private uniqueName(name: string): string {
    const taken = (candidate: string): boolean =>
      candidate === this.kernel.name || this.functions.some((other) => other.name === candidate);
    let unique = name;
    for (let i = 2; taken(unique); i++) unique = `${name}_${i}`;
    return unique;
  }

  private sourceIndex(source: FramedSource): number {
    const known = this.sources.indexOf(source);
    return known >= 0 ? known : this.sources.push(source) - 1;
  }

  /** `spaces`: of a device function's arguments, in their order. */
  private lower(
    definition: Definition,
    name: string,
    role: 'kernel' | 'device',
    returns: IrType,
    spaces: readonly Space[] | undefined,
  ): IrFunction {
    const { source } = definition;
    const ctx = new Context(this, source, this.sourceIndex(source), role, returns);
    const span = { start: 0, end: source.text.length, source: ctx.sourceIndex };
    const params: Param[] = [];
    const entries = new Map<string, Value>();
    for (const [paramName, spec] of Object.entries(definition.params)) {
      entries.set(paramName, this.parameter(ctx, params, paramName, spec, spaces));
    }
    const parsed = parseBody(source);
    const values: readonly Value[] = [
      { kind: 'gpu', path: '' },
      { kind: 'record', entries, what: 'params' },
      usingValue(definition.using, 'using'),
    ];
    let ends = false;
    const body = ctx.capture(() => {
      for (const [i, pattern] of parsed.parameters.entries()) bind(ctx, pattern, values[i]!, pattern);
      ends =
        'statements' in parsed.body
          ? lowerStatements(ctx, parsed.body.statements)
          : lowerExpressionBody(ctx, parsed.body.expression);
    });
    if (returns.kind !== 'void' && !ends) {
      const end = source.text.length;
      const message = `the end can be reached without a return, but the header promises ${build.showType(returns)}`;
      this.report(new Problem('HK607', message, source, Math.max(0, end - 1), end));
    }
    return { name, params, returns, body, span };
  }

  private parameter(
    ctx: Context,
    params: Param[],
    name: string,
    spec: ParamSpec,
    spaces: readonly Space[] | undefined,
  ): Value {
    const add = (type: IrType, index: number | null): Variable => {
      const variable = ctx.variable(index === null ? name : `${name}_${index}`, type);
      params.push({ variable, name, index });
      return variable;
    };
    const scalar = (of: ScalarParam | PointerParam, index: number | null): Value => {
      const space = spaces?.[params.length] ?? 'global';
      const type = typeof of === 'string' ? build.valueType(of) : build.pointerType(of.to, space);
      return expression(ctx.read(add(type, index)));
    };
    if (typeof spec === 'object' && spec.kind === 'peers') {
      this.layouts.add(spec.layout);
      return { kind: 'peers', variable: add(build.peersType(spec.layout), null), layout: spec.layout };
    }
    if (typeof spec === 'object' && spec.kind === 'list') {
      const items = Array.from({ length: spec.length }, (_, i) => scalar(spec.of, i));
      return { kind: 'list', items, what: `the list ${name}` };
    }
    return scalar(spec, null);
  }

  private checkShared(): void {
    const bytes = this.shared.reduce((sum, { variable, length }) => {
      return sum + (variable.type.kind === 'pointer' ? byteSize[variable.type.to] * length : 0);
    }, 0);
    const last = this.shared.at(-1);
    if (last === undefined || bytes <= sharedLimit) return;
    const message = `shared memory takes ${bytes} bytes; a block has ${sharedLimit}`;
    this.report(new Problem('HK608', message, this.kernel.source, last.span.start, last.span.end));
  }

  /** In the order found; an unrolled loop finds the same again and again. */
  private diagnostics(): Diagnostic[] {
    const seen = new Set<string>();
    return this.problems.flatMap((problem) => {
      const key = `${problem.code} ${this.sources.indexOf(problem.source)} ${problem.start} ${problem.end}`;
      if (seen.has(key)) return [];
      seen.add(key);
      return [problem.diagnostic()];
    });
  }
}

/** A compile-time value, as bodies see it. */
function usingValue(value: Using, what: string): Value {
  if (typeof value === 'number' || typeof value === 'bigint') return { kind: 'literal', value };
  if (typeof value === 'boolean') return expression(build.boolean(value));
  if (typeof value === 'string') return { kind: 'string', value };
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
