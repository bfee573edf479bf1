/** `PREFIX.h` of one's own kernels: how a host in any language launches each. */
import {
  type AbiParameter,
  dynamicSharedBytes,
  entryName,
  type IrModule,
  maxPeers,
  parameterAbi,
  sectionAlignment,
} from '../../lang/index.js';
import { inC, renamed, upper } from './header.js';

const unsigned = { 1: 'uint8_t', 2: 'uint16_t', 4: 'uint32_t', 8: 'uint64_t' } as const;
const scalars: Readonly<Record<string, string>> = { i32: 'int32_t', f32: 'float' };

/** A field of the struct of a kernel's parameters. */
function fieldOf({ name, kind, type, bytes }: AbiParameter): string {
  const field = inC(name);
  if (kind === 'peers' && type.kind === 'peers')
    return `uint64_t ${field}[${maxPeers}]; /* the window '${type.layout.name}' of each rank, as it is mapped here */`;
  if (kind === 'tensorMap')
    return `HEDDLE_MAP unsigned char ${field}[${bytes}]; /* as cuTensorMapEncodeTiled makes it */`;
  if (type.kind === 'pointer') return `uint64_t ${field}; /* address of ${type.to} */`;
  if (kind === 'rank') return `uint32_t ${field}; /* this one, as windows count */`;
  const of = type.kind === 'value' ? type.name : '';
  return `${scalars[of] ?? unsigned[bytes as 1]} ${field}; /* ${of} */`;
}

/** The sizes of a window, and where its fields lie. */
const windowsOf = (module: IrModule, name: string): string[] =>
  parameterAbi(module).flatMap(({ name: parameter, type }) => {
    if (type.kind !== 'peers') return [];
    const prefix = `HEDDLE_${name}_${upper(inC(parameter))}`;
    const fields = type.layout.fields.map(
      ({ name: field, offset, type: of, shape }) =>
        `#define ${prefix}_${upper(field)} ${offset} /* ${of}${shape.map((extent) => ` [${extent}]`).join('')} */`,
    );
    return [`#define ${prefix}_BYTES ${type.layout.bytes}`, ...fields];
  });

function printKernel(module: IrModule): string {
  const name = upper(inC(module.name.replace(/_kernel$/, '')));
  const parameters = parameterAbi(module);
  const { specialization, maxThreads, cluster } = module;
  const shared = dynamicSharedBytes(module.shared);
  const struct = `heddle_${name.toLowerCase()}`;
  const fields = parameters.map(({ name }) => `&(of)->${inC(name)}`);
  return [
    `/* ---- ${module.name}${specialization === '' ? '' : `: ${specialization}`} */`,
    '',
    `#define HEDDLE_${name}_ENTRY "${entryName(module)}"`,
    `#define HEDDLE_${name}_MAX_THREADS ${maxThreads}`,
    `#define HEDDLE_${name}_SHARED_BYTES ${shared}`,
    ...(cluster > 1 ? [`#define HEDDLE_${name}_CLUSTER ${cluster}`] : []),
    ...windowsOf(module, name),
    `struct ${struct} {`,
    ...parameters.map((of) => `  ${fieldOf(of)}`),
    '};',
    `#define HEDDLE_${name}_PARAMETERS(of) {${fields.join(', ')}}`,
  ].join('\n');
}

export function printOwnHeader(modules: readonly IrModule[], version: string, prefix: string): string {
  const text = `/*
 * Written by \`heddle export\` of Heddle ${version}. It is C11 and C++17. Of each kernel: its symbol in KERNEL.ARCHITECTURE.cubin, the most threads of a block,
 * the bytes of dynamic shared memory, which CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES must allow first, blocks of a cluster, of which the grid is a
 * multiple, and the parameters in their order. Windows begin at multiples of ${sectionAlignment} bytes, as zeros unless the program says otherwise; *_BYTES and the
 * offsets of their fields are here. Grids and blocks have one dimension:
 *
 *   struct heddle_NAME arguments = {...};
 *   void *parameters[] = HEDDLE_NAME_PARAMETERS(&arguments);
 *   cuLaunchKernel(function, grid, 1, 1, threads, 1, 1, HEDDLE_NAME_SHARED_BYTES, stream, parameters, NULL);
 */
#ifndef HEDDLE_KERNELS_H
#define HEDDLE_KERNELS_H
#include <stdint.h>

#ifdef __cplusplus
#define HEDDLE_MAP alignas(64)
#else
#define HEDDLE_MAP _Alignas(64)
#endif

${modules.map(printKernel).join('\n\n')}

#endif
`;
  return renamed(text, prefix);
}
