import * as lang from '../../lang/index.js';
import type { KernelSource } from './compiler.js';
import type { LineOf } from './diagnostics.js';

/** A kernel as the compiler needs it, and behind it what must be linked to it. */
export function printKernel(
  module: lang.IrModule,
): readonly [kernel: KernelSource, ...linked: KernelSource[]] {
  const linked = [...lang.foreignSources(module)].map(foreignObject);
  const kernel: KernelSource = {
    text: lang.printCuda(module),
    entry: lang.entryName(module),
    options:
      linked.length === 0 ? lang.compileOptions : (arch) => [...lang.compileOptions(arch), relocatable],
    lineOf: lineOf(module),
  };
  return [kernel, ...linked];
}

const relocatable = '--relocatable-device-code=true';

/**
 * The source that defines foreign functions of a kernel. Headers for nvcc do not mark all device code as such, hence
 * the options.
 */
function foreignObject({ name, find }: lang.ForeignSource): KernelSource {
  const { text, folders } = find();
  return {
    text,
    entry: name,
    options: (arch, compiler) => [
      `--gpu-architecture=${arch}`,
      '--std=c++17',
      relocatable,
      ...(compiler === 'nvrtc' ? ['--device-as-default-execution-space'] : []),
      ...folders.map((folder) => `--include-path=${folder}`),
    ],
  };
}

/** The lines of the kernel's own sources, which need not be on this machine as files. */
function lineOf(module: lang.IrModule): LineOf {
  return (file, line) => {
    for (const source of module.sources) {
      if (source.file !== file) continue;
      const lines = source.text.split('\n');
      const text = lines[line - source.position(0).line];
      if (text !== undefined) return text;
    }
    return null;
  };
}
