/** Kernels in TypeScript as nvcc compiles them: printed as CUDA, compiled to PTX, and launched alike. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isPtx, type KernelModule } from '../../../../src/gpu/sim/index.js';
import {
  compileOptions,
  dynamicSharedBytes,
  entryName,
  parameterAbi,
  printCuda,
  ptx,
} from '../../../../src/lang/index.js';
import { cudaTool } from '../../../needs.js';

/** Gives of each kernel its PTX, for `substitute` of a machine; files are left in `folder`, and taken from there. */
export function compiledBy(folder: string): (module: KernelModule) => KernelModule {
  const known = new Map<KernelModule, KernelModule>();
  return (module) => {
    if (isPtx(module)) return module;
    let kernel = known.get(module);
    if (kernel !== undefined) return kernel;
    const cuda = printCuda(module);
    const beside = join(folder, createHash('sha256').update(cuda).digest('hex').slice(0, 16));
    const file = join(beside, `${module.name}.ptx`);
    if (!existsSync(file)) {
      mkdirSync(beside, { recursive: true });
      const source = join(beside, `${module.name}.cu`);
      writeFileSync(source, cuda);
      const options = ['-ptx', ...compileOptions('sm_90a'), '-o', file, source];
      const { status, stderr } = spawnSync(cudaTool('nvcc')!, options, { encoding: 'utf8' });
      if (status !== 0) throw new Error(`nvcc did not compile ${module.name}: ${stderr}`);
    }
    const program = ptx(readFileSync(file, 'utf8'), `${module.name}.ptx`);
    const { entry, ...rest } = program.kernel(entryName(module), {
      params: parameterAbi(module).map(({ name }) => name),
      rankParameter: 'rank',
      sharedBytes: dynamicSharedBytes(module.shared),
      name: module.name,
      tensors: Object.fromEntries(
        module.entry.params.flatMap(({ name, type }) => (type.kind === 'tensorMap' ? [[name, type]] : [])),
      ),
    });
    // A helper that the printer adds, or the toolkit has, stands in another line in each shape of a kernel: the line that calls it
    // counts, and all that the compiler made of one line is one.
    const instructions = entry.instructions.map((one) => {
      let { source } = one;
      while (source?.inlinedAt && !program.module.sources.get(source.file)?.endsWith('.ts'))
        source = source.inlinedAt;
      return { ...one, source: source && { ...source, column: 0 } };
    });
    kernel = { ...rest, entry: { ...entry, instructions } };
    known.set(module, kernel);
    return kernel;
  };
}
