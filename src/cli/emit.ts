import { ArgumentError, oneOfListed } from '../base/errors.js';
import { byteSize, type IrModule, type IrType, printCuda, printIr } from '../lang/index.js';
import { loadOwnModule } from '../verify/check/index.js';
import { type RegisteredKernel, registry } from '../verify/kernels/index.js';
import type { Command, FlagsOf } from './commander.js';
import { isModule, parseShape, shapeHelp } from './options.js';

export type ListedKernel = Omit<RegisteredKernel, 'shape'>;

type Options = FlagsOf<typeof define>;

const define = (command: Command) =>
  command
    .argument('[kernel]', 'one of the kernels that --list shows; or a module that exports some: ./mine.ts')
    .argument('[exported]', 'which of them, where there are several')
    .option('--shape <key=value,…>', 'what to specialise it to; every kernel has defaults')
    .option('--ir', 'print the intermediate representation instead')
    .option('--list', 'list the kernels')
    .option('--json', 'print an object with the text and what a launch must know')
    .addHelpText(
      'after',
      () => `
${shapeHelp(registry())}

Exit code: 0 when the kernel was printed, 1 when it does not compile, 2 when there is no such kernel or shape.

Examples:
  $ heddle emit --list
  $ heddle emit one_sided_dispatch --shape ranks=8,topk=8 > dispatch.cu
  $ heddle emit one_sided_combine --shape tokens=8,combine.way=pull
  $ heddle emit one_sided_combine --ir
  $ heddle emit ./mine.ts ring`,
    );

export function register(command: Command): void {
  define(command).action(async (named, exported, options) => {
    if (named === undefined && options.list !== true)
      command.error("error: missing required argument 'kernel' (--list shows all)");
    if (named === undefined || !isModule(named)) {
      if (exported !== undefined)
        throw new ArgumentError('kernel', named, 'a module, where one of its kernels is named');
      process.stdout.write(emit(registry(), named, options));
      return;
    }
    const { kernels } = await loadOwnModule(named);
    if (kernels.length === 0)
      throw new ArgumentError(
        'module',
        named,
        'a module that exports a kernel itself; a function that makes kernels is not one: export const ring4 = ring(4)',
      );
    const listed = kernels.map((kernel) => ({ name: kernel.name, summary: named, build: () => kernel }));
    if (options.shape !== undefined)
      throw new ArgumentError(
        '--shape',
        options.shape,
        'left out: kernels of a module are what it makes them',
      );
    if (exported === undefined && listed.length > 1 && options.list !== true)
      command.error(
        `error: ${named} exports several kernels: name one of ${listed.map(({ name }) => name).join(', ')}`,
      );
    process.stdout.write(emit(listed, exported ?? listed[0]!.name, options));
  });
}

export function emit(
  kernels: readonly ListedKernel[],
  kernel: string | undefined,
  options: Options = {},
): string {
  if (options.list === true) return list(kernels, options.json === true);
  const [found, other] = kernels.filter(({ name }) => name === kernel);
  if (other !== undefined)
    throw new ArgumentError(
      'kernel',
      kernel,
      'the name of one kernel, but several have it: give each its own',
    );
  if (found === undefined) {
    const names = kernels.map(({ name }) => name);
    throw new ArgumentError('kernel', kernel, oneOfListed(kernel ?? '', names));
  }
  const module = found.build(parseShape(options.shape ?? '')).ir();
  const text = options.ir === true ? printIr(module) : printCuda(module);
  if (options.json !== true) return text;
  return `${JSON.stringify(describe(found.name, module, options.ir === true ? 'ir' : 'cuda', text), null, 2)}\n`;
}

function list(kernels: readonly ListedKernel[], json: boolean): string {
  if (json)
    return `${JSON.stringify({ kernels: kernels.map(({ name, summary }) => ({ name, summary })) }, null, 2)}\n`;
  const width = Math.max(...kernels.map(({ name }) => name.length));
  return kernels.map(({ name, summary }) => `${name.padEnd(width)}  ${summary}\n`).join('');
}

/** The output of `--json`: the kernel's name here and in CUDA, and what a launch must know. */
function describe(kernel: string, module: IrModule, language: 'cuda' | 'ir', text: string) {
  const { name, specialization, maxThreads } = module;
  return {
    ...{ kernel, name, specialization, maxThreads },
    sharedBytes: module.shared.reduce((sum, { variable: { type }, length }) => {
      return sum + (type.kind === 'pointer' ? byteSize[type.to] * length : 0);
    }, 0),
    params: module.entry.params.map(({ name, type }) => ({ name, type: typeName(type) })),
    ...{ language, text },
  };
}

function typeName(type: IrType): string {
  if (type.kind === 'value') return type.name;
  return type.kind === 'pointer' ? `pointer(${type.to})` : 'peers';
}
