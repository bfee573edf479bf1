/**
 * IR → CUDA C++. A module becomes one translation unit, with no #include but those of foreign functions: prelude, offsets
 * of window fields, the kernel.
 */
import { HeddleError, requireInteger, requireObject } from '../../base/errors.js';
import type { IrModule } from '../ir.js';
import { tensorMapHelper } from '../operations/tensors.js';
import {
  dynamicAlignment,
  dynamicSharedBytes,
  mostShared,
  sharedAlignment,
  sharedLayout,
} from '../shared.js';
import { sectionAlignment } from '../types.js';
import { requireModule, withoutTwins } from '../walk.js';
import { type AbiOptions, defaultMaxPeers, entryName } from './abi.js';
import { Effects } from './effects.js';
import { Expressions } from './expressions.js';
import { heldSums } from './held-sums.js';
import { type Pruned, prune } from './liveness.js';
import { Prelude } from './prelude.js';
import { identifier, Offsets, reservedNames, Scopes } from './scopes.js';
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
  return printUnit(modulesOf(module), options);
}

function modulesOf(given: IrModule | readonly IrModule[]): readonly IrModule[] {
  const modules = Array.isArray(given) ? (given as readonly IrModule[]) : [given as IrModule];
  for (const module of modules) requireModule('module', module);
  return modules;
}

function printUnit(modules: readonly IrModule[], options: PrintOptions): string {
  requireObject('options', options);
  requireInteger('maxPeers', options.maxPeers ?? defaultMaxPeers, 1, 1024);
  const pruned = modules.map(({ entry }) => prune(withoutTwins(entry.body)));
  const printed = (helperNames: ReadonlySet<string>) => {
    const prelude = new Prelude();
    const names = new Set<string>();
    const bodies = modules.map((module, i) => {
      const printer = new ModulePrinter(module, pruned[i]!, prelude, options, helperNames);
      const text = printer.print();
      for (const name of printer.names) names.add(name);
      // Windows of different modules may have the same name.
      return modules.length === 1 ? text : `namespace in_${entryName(module)} {\n\n${text}\n\n}`;
    });
    return { prelude, names, bodies };
  };
  // The helpers that a program uses are known only once it is printed, and names must keep clear of theirs: where some
  // did not, it is printed again.
  let { prelude, names, bodies } = printed(new Set());
  if ([...names].some((name) => prelude.names.has(name))) ({ prelude, bodies } = printed(prelude.names));
  return `${[...modules.map(header), prelude.print(), ...bodies].join('\n\n')}\n`;
}

function header(module: IrModule): string {
  const values =
    module.specialization === '' ? '' : ` with ${module.specialization.replaceAll(/[\s\\]+/g, ' ')}`;
  return `// ${identifier(module.name)}${values}`;
}

class ModulePrinter {
  readonly #module: IrModule;
  readonly #pruned: Pruned;
  readonly #prelude: Prelude;
  readonly #options: PrintOptions;
  readonly #reserved: ReadonlySet<string>;
  /** Every name that was considered for something of the module. */
  readonly names = new Set<string>();
  readonly #offsets: Offsets;

  constructor(
    module: IrModule,
    /** Of its statements. */
    pruned: Pruned,
    prelude: Prelude,
    options: PrintOptions,
    helperNames: ReadonlySet<string>,
  ) {
    this.#module = module;
    this.#pruned = pruned;
    this.#prelude = prelude;
    this.#options = options;
    this.#reserved = new Set([...reservedNames, ...helperNames, entryName(module)]);
    this.#offsets = new Offsets((name) => this.#isReserved(name));
  }

  #isReserved(name: string): boolean {
    this.names.add(name);
    return this.#reserved.has(name);
  }

  print(): string {
    const kernel = this.#kernel();
    return [...this.#offsets.print(), kernel].join('\n\n');
  }

  #kernel(): string {
    const { entry, maxThreads, cluster } = this.#module;
    const { body } = this.#pruned;
    const scopes = new Scopes(
      (name) => this.#isReserved(name) || this.#offsets.names.includes(name),
      this.#offsets,
    );
    const printer = this.#body(scopes);
    const params = entry.params.map(({ variable }) => {
      // In constant memory and indexed there: without __grid_constant__ a dynamic index would copy it to the stack.
      if (variable.type.kind === 'peers') {
        return `__grid_constant__ const ${this.#peers()} ${scopes.declare(variable)}`;
      }
      if (variable.type.kind === 'tensorMap') {
        const type = this.#prelude.add(tensorMapHelper);
        return `__grid_constant__ const ${type} ${scopes.declare(variable)}`;
      }
      return `${printer.expressions.type(variable.type)} ${scopes.declare(variable)}`;
    });
    params.push('u32 rank');
    printer.writer.indented(() => this.#shared(scopes, printer));
    printer.body(body);
    const oneLine = params.join(', ');
    const list = oneLine.length > 90 ? `\n    ${params.join(',\n    ')}` : oneLine;
    // One block a multiprocessor is promised: without a second number ptxas picks an occupancy by itself and would
    // rather spill than give it up (seen for sm_100a: 40 registers and a spill where 56 and none were to be had).
    const clusters = cluster === 1 ? '' : ` __cluster_dims__(${cluster}, 1, 1)`;
    const qualifiers = `extern "C" __global__ void${clusters} __launch_bounds__(${maxThreads}, 1)`;
    return `${qualifiers}\n${entryName(this.#module)}(${list}) {\n${printer.writer.print()}\n}`;
  }

  /** Declares the arrays in shared memory: static ones where every block has room for all, otherwise parts of the dynamic memory that a launch asks for. */
  #shared(scopes: Scopes, { writer, expressions }: Statements): void {
    const { shared, name } = this.#module;
    const [first] = shared;
    if (first === undefined) return;
    const { ranges, bytes } = sharedLayout(shared);
    if (bytes > mostShared) {
      throw new HeddleError(
        'HEDDLE_PRINT',
        `${name} declares ${bytes} bytes of shared memory; a block has at most ${mostShared}. Use smaller tiles`,
      );
    }
    const { live } = this.#pruned;
    const isDynamic = dynamicSharedBytes(shared) > 0;
    const alignments = shared.map(({ variable: { type } }) =>
      type.kind === 'pointer' ? sharedAlignment(type) : 0,
    );
    if (isDynamic)
      writer.line(
        `extern __shared__ __align__(${dynamicAlignment}) ${this.#prelude.use('u8')} shared_memory[];`,
      );
    for (const [i, { variable, offset, length }] of ranges.entries()) {
      if (variable.type.kind !== 'pointer' || !live.has(variable.id)) continue;
      const { to } = variable.type;
      expressions.type(variable.type);
      const text = isDynamic
        ? `${to}* const ${scopes.declare(variable)} = ${this.#prelude.use('as')}<${to}>(shared_memory + ${offset})`
        : `__shared__${alignments[i]! >= sectionAlignment ? ` alignas(${alignments[i]})` : ''} ${to} ${scopes.declare(variable)}[${length}]`;
      writer.line(`${text};`, shared[i]!.span);
    }
  }

  #body(scopes: Scopes): Statements {
    const expressions = new Expressions(this.#prelude, scopes);
    const effects = new Effects(this.#prelude, expressions, scopes, {
      inCluster: this.#module.cluster > 1,
      held: heldSums(this.#pruned.body),
    });
    const writer = new Writer(this.#module.sources, this.#options.lineDirectives ?? true);
    return new Statements(writer, scopes, expressions, effects);
  }

  /** The type of a peers parameter; the struct that every kernel with windows shares. */
  #peers(): string {
    const count = this.#options.maxPeers ?? defaultMaxPeers;
    return this.#prelude.add({
      name: 'HeddlePeers',
      text: `// Where each rank's window is mapped on this one.\nstruct HeddlePeers {\n  u64 base[${count}];\n};`,
    });
  }
}
