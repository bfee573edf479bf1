/**
 * IR → CUDA C++. A module becomes one translation unit, with no #include but those of foreign functions: prelude, offsets
 * of window fields, the kernel.
 */
import { HeddleError, requireObject, requireThat } from '../../base/errors.js';
import type { IrModule } from '../ir.js';
import { dynamicAlignment, dynamicSharedBytes, mostShared, sharedLayout } from '../shared.js';
import { sectionAlignment } from '../types.js';
import { requireModule, withoutTwins } from '../walk.js';
import { entryName, maxPeers } from './abi.js';
import { effectsOf } from './effects.js';
import { Expressions } from './expressions.js';
import { heldSums } from './held-sums.js';
import { type Pruned, prune } from './liveness.js';
import { Prelude } from './prelude.js';
import { identifier, Offsets, reservedNames, Scopes } from './scopes.js';
import { Statements } from './statements.js';
import { Writer } from './writer.js';

export interface PrintOptions {
  /** `#line` directives back to the TypeScript. Default true; without them the text is easier to read. */
  readonly lineDirectives?: boolean;
}

interface Printed {
  readonly module: IrModule;
  /** The module's statements, and the variables that they need. */
  readonly pruned: Pruned;
  readonly prelude: Prelude;
  readonly options: PrintOptions;
  isReserved(name: string): boolean;
}

/**
 * A kernel as CUDA C++ (C++17, for NVRTC and nvcc; compile with `compileOptions`). Several modules, which need
 * different names, become one translation unit that shares a prelude.
 */
export function printCuda(given: IrModule | readonly IrModule[], options: PrintOptions = {}): string {
  const modules = Array.isArray(given) ? (given as readonly IrModule[]) : [given as IrModule];
  for (const module of modules) requireModule('module', module);
  const entries = modules.map(entryName);
  const twice = entries.find((name, i) => entries.indexOf(name) !== i);
  requireThat(twice === undefined, 'modules', twice, 'kernels with different names');
  requireObject('options', options);
  const all = modules.map(({ entry }) => prune(withoutTwins(entry.body)));
  const printed = (helperNames: ReadonlySet<string>) => {
    const prelude = new Prelude();
    /** Every name that was considered for something of the modules. */
    const names = new Set<string>();
    const texts = modules.map((module, i) => {
      const reserved = new Set([...reservedNames, ...helperNames, entryName(module)]);
      const isReserved = (name: string): boolean => {
        names.add(name);
        return reserved.has(name);
      };
      const text = print({ module, pruned: all[i]!, prelude, options, isReserved });
      // Windows of different modules may have the same name.
      return modules.length === 1 ? text : `namespace in_${entryName(module)} {\n\n${text}\n\n}`;
    });
    return { prelude, names, texts };
  };
  // The helpers that a program uses are known only once it is printed, and names must keep clear of theirs: where some
  // did not, it is printed again.
  let { prelude, names, texts } = printed(new Set());
  if ([...names].some((name) => prelude.names.has(name))) ({ prelude, texts } = printed(prelude.names));
  return `${[...modules.map(header), prelude.print(), ...texts].join('\n\n')}\n`;
}

function header(module: IrModule): string {
  const values =
    module.specialization === '' ? '' : ` with ${module.specialization.replaceAll(/[\s\\]+/g, ' ')}`;
  return `// ${identifier(module.name)}${values}`;
}

function print(of: Printed): string {
  const { module, pruned, prelude, options, isReserved } = of;
  const { entry, maxThreads, cluster } = module;
  const offsets = new Offsets(isReserved);
  const scopes = new Scopes((name) => isReserved(name) || offsets.names.includes(name), offsets);
  const expressions = new Expressions(prelude, scopes);
  const held = heldSums(pruned.body);
  const effects = effectsOf(prelude, expressions, scopes, { inCluster: cluster > 1, held });
  const writer = new Writer(module.sources, options.lineDirectives ?? true);
  const statements = new Statements(writer, scopes, expressions, effects);
  const params = entry.params.map((variable) => {
    // In constant memory and indexed there: without __grid_constant__ a dynamic index would copy it to the stack.
    if (variable.type.kind === 'peers')
      return `__grid_constant__ const ${prelude.add(peers)} ${scopes.declare(variable)}`;
    if (variable.type.kind === 'tensorMap')
      return `__grid_constant__ const ${prelude.use('HeddleTensorMap')} ${scopes.declare(variable)}`;
    return `${expressions.type(variable.type)} ${scopes.declare(variable)}`;
  });
  params.push('u32 rank');
  writer.indented(() => declareShared(of, scopes, statements));
  statements.body(pruned.body);
  const oneLine = params.join(', ');
  const list = oneLine.length > 90 ? `\n    ${params.join(',\n    ')}` : oneLine;
  // One block a multiprocessor is promised: without a second number ptxas picks an occupancy by itself and would
  // rather spill than give it up (seen for sm_100a: 40 registers and a spill where 56 and none were to be had).
  const clusters = cluster === 1 ? '' : ` __cluster_dims__(${cluster}, 1, 1)`;
  const qualifiers = `extern "C" __global__ void${clusters} __launch_bounds__(${maxThreads}, 1)`;
  const kernel = `${qualifiers}\n${entryName(module)}(${list}) {\n${writer.print()}\n}`;
  return [...offsets.print(), kernel].join('\n\n');
}

/** Declares the arrays in shared memory: static ones where every block has room for all, otherwise parts of the dynamic memory that a launch asks for. */
function declareShared(
  { module: { shared, name }, pruned: { live }, prelude }: Printed,
  scopes: Scopes,
  { writer, expressions }: Statements,
): void {
  if (shared.length === 0) return;
  const { ranges, bytes } = sharedLayout(shared);
  if (bytes > mostShared) {
    throw new HeddleError(
      'HEDDLE_PRINT',
      `${name} declares ${bytes} bytes of shared memory; a block has at most ${mostShared}. Use smaller tiles`,
    );
  }
  const isDynamic = dynamicSharedBytes(shared) > 0;
  if (isDynamic)
    writer.line(`extern __shared__ __align__(${dynamicAlignment}) ${prelude.use('u8')} shared_memory[];`);
  for (const [i, { variable, offset, alignment, length }] of ranges.entries()) {
    if (variable.type.kind !== 'pointer' || !live.has(variable.id)) continue;
    const { to } = variable.type;
    expressions.type(variable.type);
    const text = isDynamic
      ? `${to}* const ${scopes.declare(variable)} = ${prelude.use('as')}<${to}>(shared_memory + ${offset})`
      : `__shared__${alignment >= sectionAlignment ? ` alignas(${alignment})` : ''} ${to} ${scopes.declare(variable)}[${length}]`;
    writer.line(`${text};`, shared[i]!.span);
  }
}

/** The type of a peers parameter, which every kernel with windows shares. */
const peers = `// Where each rank's window is mapped on this one.
struct HeddlePeers {
  u64 base[${maxPeers}];
};`;
