import { HeddleError } from '../../base/errors.js';
import {
  compileOptions,
  dynamicSharedBytes,
  entryName,
  type ForeignSource,
  foreignSources,
  type IrModule,
  type IrType,
  parameterAbi,
  printCuda,
} from '../../lang/index.js';
import type { KernelSource } from './compiler.js';
import type { LineOf } from './diagnostics.js';
import type { Parameter, ParameterBlock } from './program.js';

/** A kernel of the language as the compiler and the launcher need it. */
export function printKernel(module: IrModule): {
  kernel: KernelSource;
  parameters: ParameterBlock;
  /** Shared memory that its launches must ask for. */
  sharedBytes: number;
} {
  const linked = [...foreignSources(module)].map(foreignObject);
  const kernel: KernelSource = {
    text: printCuda(module),
    entry: entryName(module),
    options: linked.length === 0 ? compileOptions : (arch) => [...compileOptions(arch), relocatable],
    linked,
    lineOf: lineOf(module),
  };
  return { kernel, parameters: parameterBlock(module), sharedBytes: dynamicSharedBytes(module.shared) };
}

const relocatable = '--relocatable-device-code=true';

/**
 * The source that defines foreign functions of a kernel. Headers for nvcc do not mark all device code as such, hence
 * the options.
 */
function foreignObject({ name, find }: ForeignSource): KernelSource {
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
function lineOf(module: IrModule): LineOf {
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

function parameterBlock(module: IrModule): ParameterBlock {
  const types = new Map(
    module.entry.params.map(({ name, index, variable }) => [flat(name, index), variable.type]),
  );
  const parameters: Parameter[] = [];
  let rankOffset: number | null = null;
  let end = 0;
  for (const { name, kind, offset, bytes } of parameterAbi(module)) {
    end = offset + bytes;
    if (kind === 'rank') rankOffset = offset;
    else {
      const type = types.get(name);
      const boxes = type?.kind === 'tensorMap' ? { boxes: type } : {};
      parameters.push({ name, kind: kind === 'scalar' ? scalarKind(type) : kind, offset, bytes, ...boxes });
    }
  }
  return { parameters, rankOffset, bytes: end };
}

const flat = (name: string, index: number | null) => (index === null ? name : `${name}_${index}`);

const scalars = ['i32', 'u32', 'u64', 'f32', 'bool'] as const;

function scalarKind(type: IrType | undefined): Parameter['kind'] {
  const found = type?.kind === 'value' ? scalars.find((name) => name === type.name) : undefined;
  if (found === undefined)
    throw new HeddleError(
      'HEDDLE_PRINT',
      `a scalar parameter of type ${JSON.stringify(type)} cannot be passed`,
    );
  return found;
}
