import { ArgumentError } from '../base/errors.js';
import type { IrModule } from '../lang/index.js';
import { families, familyNamed } from '../moe/families/index.js';
import { tunedFor } from '../moe/index.js';
import { activations, alignments, expertForms } from '../moe/layer/index.js';
import {
  architectureNamed,
  expertWeights,
  exportPlan,
  writeExport,
  writeKernels,
  writeShape,
} from '../tools/export/index.js';
import { loadOwnModule } from '../verify/check/index.js';
import { familyKeys, familyShape } from '../verify/kernels/index.js';
import type { Command, FlagsOf } from './commander.js';
import {
  choice,
  elements,
  isModule,
  multiprocessors,
  parseShape,
  requireOutputFolder,
  shapeHelp,
} from './options.js';
import { version } from './start.js';

/** The machine on which Heddle's own tunings were measured. */
const tunedOn = { kind: 'cuda', model: 'NVIDIA H200' } as const;

const define = (command: Command) =>
  command
    .argument(
      '<family>',
      `of kernels: ${families.map(({ name }) => name).join(', ')}; or a module that exports kernels of one’s own: ./mine.ts`,
    )
    .option('--shape <key=value,…>', 'the layer, and the family’s knobs', '')
    .requiredOption('--out <folder>', 'where to write; made if it is not there')
    .option(
      '--arch <names>',
      'architectures to compile for, and compute_90 for PTX; none writes sources only',
      'sm_90a,sm_100a,sm_103a,compute_90',
    )
    .option(
      '--prefix <name>',
      'name of the .h and .c file, and prefix of every C name in them; several plans can then share a program',
      'heddle',
    )
    .option('--split', 'sends and receives as launches of their own', false)
    .option('--sms <n>', 'the most multiprocessors that a launch takes', multiprocessors.one)
    .option(
      '--multiprocessors <n>',
      'of the GPUs, over which kernels are spread (default: 132)',
      multiprocessors.one,
    )
    .option(
      '--experts <inner>',
      'experts run between dispatch and combine: elements of a row between their GEMMs',
      elements,
    )
    .addOption(choice('--weights <type>', 'of experts', expertWeights, 'bf16'))
    .addOption(choice('--activation <name>', 'of experts', activations, 'swiglu'))
    .option('--biases', 'experts have biases', false)
    .addOption(choice('--sort <form>', 'rows by expert, for experts of the host', expertForms))
    .addOption(choice('--alignment <n>', 'of each expert’s first row', alignments.map(String), '1'))
    .option('--capacity <n>', 'rows of all experts, or of each with --sort masked', elements)
    .addOption(
      choice('--format <name>', 'c, or shape: the file that the Python package takes', ['c', 'shape'], 'c'),
    )
    .option('--json', 'print what was written as JSON')
    .addHelpText(
      'after',
      () => `
Writes PREFIX.h and PREFIX.c, a host with the kernels in it, in C11 and C++17 and on nothing but the driver: create,
dispatch, combine, failure, destroy. And for hosts of one's own plan.json (memory, its start values, every launch and what
each of its arguments is), and of each kernel its CUDA C++ and a cubin (or PTX) for each architecture. docs/export.md says how to
call them; examples/export has an engine in C++, one in Rust, and one in Python with PyTorch.

Of kernels of one's own it writes PREFIX.h, which says how to launch each, their CUDA C++ and their cubins.

${shapeHelp(families.map((family) => ({ name: family.name, shape: familyKeys(family) })))}

Exit code: 0; 1 when a kernel does not compile, 2 for a mistake in the arguments or where there is no compiler.

Examples:
  $ heddle export one-sided --shape ranks=8,tokens=128,hidden=7168 --out decode/
  $ heddle export one-sided --shape format=fp8 --split --sms 24 --prefix prefill --out prefill/
  $ gcc -O2 -shared -fPIC prefill/prefill.c -o prefill/prefill.so -ldl
  $ heddle export portable --shape ranks=4 --arch sm_90a --out prefill/ --json
  $ heddle export ./mine.ts --arch sm_90a --prefix mine --out mine/`,
    );

export const register = (command: Command) => define(command).action(exportFamily);

async function exportFamily(name: string, flags: FlagsOf<typeof define>): Promise<void> {
  const { shape, out, prefix, arch, split, sms, multiprocessors, format, experts: inner } = flags;
  requireOutputFolder('--out', out);
  const architectures = arch === 'none' ? [] : arch.split(',').map((of) => architectureNamed('--arch', of));
  if (!/^[A-Za-z]\w*$/.test(prefix))
    throw new ArgumentError('--prefix', prefix, 'a letter, then letters, digits and underscores');
  const compiling = (file: string): void => void process.stderr.write(`heddle export: compiling ${file} …\n`);
  const to = { folder: out, prefix, architectures, compiling };
  if (isModule(name)) {
    const kernels = await ownKernels(name);
    report(flags, await writeKernels(kernels, version(), to));
    return;
  }
  const family = familyNamed(name);
  const asked = familyShape(
    family,
    parseShape(shape),
    { split, sms: sms ?? null, ...(multiprocessors && { multiprocessors }) },
    (layer, place) => {
      const tuned = tunedFor(family, layer, tunedOn);
      return tuned === null ? family.defaults(layer, place) : family.adapt(tuned, layer, place);
    },
  );
  const { weights, activation, biases } = flags;
  const { sort, alignment, capacity } = flags;
  const sorted = sort && { form: sort, alignment: Number(alignment) as 1, ...(capacity && { capacity }) };
  const experts = sorted ?? (inner === undefined ? null : { inner, weights, activation, biases });
  const [first] = architectures;
  if (sort !== undefined && format === 'c')
    throw new ArgumentError(
      '--sort',
      sort,
      'left out with --format c, whose experts take slots as they arrive',
    );
  if (experts !== null && architectures.length > 1)
    throw new ArgumentError('--arch', arch, 'one architecture, for which experts choose their instructions');
  const options = { experts, ...(first && { capability: first.capability }) };
  const exported = await exportPlan(family, asked, version(), options);
  const write = format === 'shape' ? writeShape : writeExport;
  report(flags, await write(exported, to));
}

async function ownKernels(path: string): Promise<Map<string, IrModule>> {
  const { kernels } = await loadOwnModule(path);
  const found = new Map(kernels.map((kernel) => [kernel.name, kernel.ir()]));
  if (found.size === 0)
    throw new ArgumentError(
      'family',
      path,
      'a module that exports a kernel itself, not a function that makes one',
    );
  if (found.size < kernels.length)
    throw new ArgumentError('family', path, 'a module whose kernels have names of their own');
  return found;
}

function report(
  { out, json }: Pick<FlagsOf<typeof define>, 'out' | 'json'>,
  written: readonly { readonly file: string; readonly bytes: number }[],
): void {
  if (json === true) process.stdout.write(`${JSON.stringify({ folder: out, written }, null, 2)}\n`);
  else {
    const width = Math.max(...written.map(({ file }) => file.length));
    for (const { file, bytes } of written)
      process.stdout.write(`${file.padEnd(width)}  ${String(bytes).padStart(8)} bytes\n`);
  }
}
