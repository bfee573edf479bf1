/**
 * IR → C++. A module becomes one translation unit without a single #include: prelude, offsets of window fields,
 * device functions, the kernel.
 */
import { HeddleError, requireObject } from '../../errors/index.js';
import type { IrFunction, IrModule, Stmt } from '../ir.js';
import { requireModule } from '../require.js';
import { byteSize } from '../types.js';
import { type AbiOptions, defaultMaxPeers, entryName } from './abi.js';
import { Effects } from './effects.js';
import { Expressions } from './expressions.js';
import { liveVariables, prune } from './liveness.js';
import { Prelude, type Target } from './prelude.js';
import { identifier, Offsets, reservedNames, Scopes, uniqueName } from './scopes.js';
import { Statements } from './statements.js';
import { Writer } from './writer.js';

export interface PrintOptions extends AbiOptions {
  /** `#line` directives back to the TypeScript. Default true; without them the text is easier to read. */
  readonly lineDirectives?: boolean;
}

/**
 * A kernel as CUDA C++ (C++17, for NVRTC and nvcc; compile with `compileOptions`). Several modules, which need
 * different names, become one translation unit that shares a prelude.
 */
export function printCuda(module: IrModule | readonly IrModule[], options: PrintOptions = {}): string {
  return printUnit(modulesOf(module), 'cuda', options);
}

/**
 * The same programs for the host's C++ compiler, as far as one thread can run them: arithmetic, conversions, lanes,
 * control flow, device functions, weak loads and stores. Each becomes
 * `extern "C" void name(parameters…, u32 rank, u32 threadIdx, u32 blockIdx, u32 blockDim, u32 gridDim)`, with windows
 * as `const HeddlePeers*`.
 */
export function printHost(module: IrModule | readonly IrModule[], options: PrintOptions = {}): string {
  return printUnit(modulesOf(module), 'host', options);
}

function modulesOf(given: IrModule | readonly IrModule[]): readonly IrModule[] {
  const modules = Array.isArray(given) ? (given as readonly IrModule[]) : [given as IrModule];
  for (const module of modules) requireModule('module', module);
  return modules;
}

function printUnit(modules: readonly IrModule[], target: Target, options: PrintOptions): string {
  requireObject('options', options);
  // The helpers that a program uses are known only once it is printed, and their names must be kept clear of: the
  // first pass finds them, the second avoids them.
  const first = new Prelude(target);
  for (const module of modules) new ModulePrinter(module, target, first, options, new Set()).print();
  const prelude = new Prelude(target);
  const bodies = modules.map((module) => {
    const text = new ModulePrinter(module, target, prelude, options, first.names).print();
    // Device functions of different modules may have the same name.
    return modules.length === 1 ? text : `namespace in_${entryName(module)} {\n\n${text}\n\n}`;
  });
  return `${[...modules.map(header), prelude.print(), ...bodies].join('\n\n')}\n`;
}

function header(module: IrModule): string {
  const values = module.specialization === '' ? '' : ` with ${module.specialization.replaceAll(/\s+/g, ' ')}`;
  return `// ${identifier(module.name)}${values}`;
}

/** Static shared memory that a block can have on every architecture. */
const maxSharedBytes = 48 * 1024;

class ModulePrinter {
  readonly #module: IrModule;
  readonly #target: Target;
  readonly #prelude: Prelude;
  readonly #options: PrintOptions;
  readonly #reserved: ReadonlySet<string>;
  readonly #offsets: Offsets;
  readonly #functionNames: string[] = [];
  /** Which device functions need the implicit argument, directly or through their callees. */
  readonly #needRank: boolean[] = [];

  constructor(
    module: IrModule,
    target: Target,
    prelude: Prelude,
    options: PrintOptions,
    helperNames: ReadonlySet<string>,
  ) {
    this.#module = module;
    this.#target = target;
    this.#prelude = prelude;
    this.#options = options;
    this.#reserved = new Set([...reservedNames, ...helperNames, entryName(module)]);
    this.#offsets = new Offsets((name) => this.#reserved.has(name));
  }

  print(): string {
    const functions = this.#module.functions.map((fn) => {
      const name = uniqueName(fn.name, (n) => this.#isTaken(n));
      const printed = this.#function(fn, name);
      this.#functionNames.push(name);
      return printed;
    });
    const called = calledFunctions(this.#module);
    const kernel = this.#kernel();
    return [...this.#offsets.print(), ...functions.filter((_, i) => called.has(i)), kernel].join('\n\n');
  }

  #isTaken(name: string): boolean {
    return (
      this.#reserved.has(name) || this.#functionNames.includes(name) || this.#offsets.names.includes(name)
    );
  }

  #function(fn: IrFunction, name: string): string {
    const scopes = new Scopes((n) => this.#isTaken(n) || n === name, this.#offsets);
    const printer = this.#body(scopes);
    const params = fn.params.map(({ variable }) => {
      const type =
        variable.type.kind === 'peers' ? `const ${this.#peers()}&` : printer.expressions.type(variable.type);
      return `${type} ${scopes.declare(variable)}`;
    });
    const returns = printer.expressions.type(fn.returns);
    printer.body(prune(fn.body));
    this.#needRank.push(scopes.usesRank);
    if (scopes.usesRank) params.push('u32 rank');
    const qualifiers = this.#target === 'cuda' ? 'static __device__ __forceinline__' : 'static inline';
    return `${qualifiers} ${returns} ${name}(${params.join(', ')}) {\n${printer.writer.print()}\n}`;
  }

  #kernel(): string {
    const { entry, maxThreads } = this.#module;
    const body = prune(entry.body);
    const scopes = new Scopes((name) => this.#isTaken(name), this.#offsets);
    const printer = this.#body(scopes);
    const cuda = this.#target === 'cuda';
    const params = entry.params.map(({ variable }) => {
      // In constant memory and indexed there: without __grid_constant__ a dynamic index would copy it to the stack.
      if (variable.type.kind === 'peers') {
        return `${cuda ? '__grid_constant__ ' : ''}const ${this.#peers()}${cuda ? ' ' : '& '}${scopes.declare(variable)}`;
      }
      return `${printer.expressions.type(variable.type)} ${scopes.declare(variable)}`;
    });
    params.push('u32 rank');
    if (!cuda) {
      this.#prelude.use('indices');
      params.push('u32 threadIdx_x', 'u32 blockIdx_x', 'u32 blockDim_x', 'u32 gridDim_x');
    }
    printer.writer.indented(() => {
      if (!cuda) {
        printer.writer.line('threadIdx.x = threadIdx_x, blockIdx.x = blockIdx_x;');
        printer.writer.line('blockDim.x = blockDim_x, gridDim.x = gridDim_x;');
      }
      this.#shared(scopes, printer, liveVariables(body));
    });
    printer.body(body);
    const oneLine = params.join(', ');
    const list = oneLine.length > 90 ? `\n    ${params.join(',\n    ')}` : oneLine;
    // One block a multiprocessor is promised: without a second number ptxas picks an occupancy by itself and would
    // rather spill than give it up (seen for sm_100a: 40 registers and a spill where 56 and none were to be had).
    const qualifiers = cuda
      ? `extern "C" __global__ void __launch_bounds__(${maxThreads}, 1)\n`
      : 'extern "C" void ';
    const qualified = `${qualifiers}${entryName(this.#module)}(${list})`;
    return `${qualified} {\n${printer.writer.print()}\n}`;
  }

  #shared(scopes: Scopes, { writer, expressions }: Statements, live: ReadonlySet<number>): void {
    let bytes = 0;
    for (const { variable, length, span } of this.#module.shared) {
      const { type } = variable;
      if (type.kind !== 'pointer' || this.#target === 'host') {
        throw new HeddleError(
          'HEDDLE_PRINT',
          `'${variable.name}' is shared by threads; a program for the host has one`,
        );
      }
      if (!live.has(variable.id)) continue;
      expressions.type(type);
      const wide = type.to === 'v16' ? ' alignas(128)' : '';
      writer.line(`__shared__${wide} ${type.to} ${scopes.declare(variable)}[${length}];`, span);
      bytes += length * byteSize[type.to];
    }
    if (bytes > maxSharedBytes) {
      throw new HeddleError(
        'HEDDLE_PRINT',
        `${this.#module.name} declares ${bytes} bytes of shared memory; a block has ${maxSharedBytes}. Use smaller tiles`,
      );
    }
  }

  #body(scopes: Scopes): Statements {
    const expressions = new Expressions(this.#prelude, scopes);
    const effects = new Effects(this.#target, this.#prelude, expressions, (callee, args) => {
      const name = this.#functionNames[callee];
      if (name === undefined)
        throw new HeddleError('HEDDLE_PRINT', `function ${callee} is called before it is defined`);
      return `${name}(${[...args, ...(this.#needRank[callee] ? [scopes.rank()] : [])].join(', ')})`;
    });
    const writer = new Writer(this.#module.sources, this.#options.lineDirectives ?? true);
    return new Statements(writer, scopes, expressions, effects);
  }

  /** The type of a peers parameter; the struct that every kernel with windows shares. */
  #peers(): string {
    const count = this.#options.maxPeers ?? defaultMaxPeers;
    return this.#prelude.add('HeddlePeers', 'HeddlePeers', {
      text: `// Where each rank's window is mapped on this one.\nstruct HeddlePeers {\n  u64 base[${count}];\n};`,
    });
  }
}

/** Indices of the device functions that the kernel reaches. */
function calledFunctions(module: IrModule): ReadonlySet<number> {
  const called = new Set<number>();
  const visit = (statements: readonly Stmt[]): void => {
    for (const statement of statements) {
      if (
        statement.kind === 'effect' &&
        statement.effect.op === 'call' &&
        !called.has(statement.effect.callee)
      ) {
        called.add(statement.effect.callee);
        visit(prune(module.functions[statement.effect.callee]?.body ?? []));
      }
      if (statement.kind === 'if') visit([...statement.then, ...statement.else]);
      if (statement.kind === 'for' || statement.kind === 'while' || statement.kind === 'block')
        visit(statement.body);
    }
  };
  visit(prune(module.entry.body));
  return called;
}
