/** `PREFIX.c`: a launch plan and its compiled kernels as tables, and the host that carries it out. */
import { createHash } from 'node:crypto';
import { phases, unitBytes, widestUnit } from '../../moe/families/index.js';
import { outputRowBytes } from '../../moe/layer/index.js';
import type { Architecture } from './architecture.js';
import { renamed, upper } from './header.js';
import { hostSource } from './host.js';
import type { LaunchParameter, LaunchPlan, PlacedTensor, PlannedLaunch } from './launch-plan.js';
import type { Source } from './recorder.js';

/** Kernels by name, each as a list of images in the order of the architectures. */
export interface Images {
  readonly architectures: readonly Architecture[];
  readonly images: ReadonlyMap<string, readonly Uint8Array[]>;
}

/** Sources of parameters in the order of C's enum: a round's own come first, up to `window`. */
const froms: readonly Source['from'][] = [
  ...(['rows', 'tokens', 'topkIds', 'topkWeights', 'out'] as const),
  ...(['window', 'buffer', 'limit', 'rank', 'constant'] as const),
];

/** The pointers in `struct PREFIX_received`; payloads are bytes. */
const pointers: Readonly<Record<string, string>> = {
  experts: 'const int32_t *',
  weights: 'const float *',
  counts: 'const uint32_t *',
  output: 'void *',
};

const list = (items: readonly string[]): string => items.map((item) => `  ${item},`).join('\n');
/** C has no arrays of nothing: `none` stands in for what is not there. */
const table = (type: string, name: string, rows: readonly string[], none: string): string =>
  `static const ${type} heddle_${name}[] = {\n${list(rows.length === 0 ? [none] : rows)}\n};`;
const numbers = (type: string, name: string, values: readonly number[]): string =>
  table(type, name, values.map(String), '0');
const alignmentOf = (rowBytes: number): number => unitBytes[widestUnit(rowBytes)];

const opening = (prefix: string, { family, heddle }: LaunchPlan): string => `
/* Written by \`heddle export ${family}\` of Heddle ${heddle}: ${prefix}.h says how to call it. Link it with -ldl before glibc 2.34. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "${prefix}.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __cplusplus
#define HEDDLE_THREAD_LOCAL thread_local
#else
#define HEDDLE_THREAD_LOCAL _Thread_local
#endif`;

const types = `
/* ---- The plan. */

enum heddle_phase {
${list(phases.map((phase) => `HEDDLE_${upper(phase)}`))}
};

/* Where the value of a parameter comes from; \`index\` says which window, buffer or payload, or is the constant itself. */
enum heddle_from {
${list(froms.map((from) => `HEDDLE_FROM_${upper(from)}`))}
};

struct heddle_parameter {
  enum heddle_from from;
  uint32_t index, offset, bytes;
};

struct heddle_launch {
  int phase, kernel;
  uint32_t grid, block, dynamic_shared_bytes, programmatic, parameter_bytes, parameter_count;
  const struct heddle_parameter *parameters;
};

/* The GPUs that take the images of an architecture, by compute capability: 10 * major + minor. */
struct heddle_range {
  int oldest, newest;
};

/* What every byte of a range is before the first launch; all others are 0. */
struct heddle_fill {
  uint32_t window;
  uint64_t offset, bytes;
  uint8_t value;
};

/* A tensor in a window, or in a buffer of the rank. */
struct heddle_place {
  uint32_t in_buffer, index;
  uint64_t offset;
};`;

function imageTables({ architectures, images }: Images, kernels: readonly string[]): string[] {
  const words = (image: Uint8Array): string[] => {
    // PTX ends in a zero.
    const padded = Buffer.alloc(Math.ceil((image.length + 1) / 8) * 8);
    padded.set(image);
    return Array.from(
      { length: padded.length / 8 },
      (_, i) => `0x${padded.readBigUInt64LE(8 * i).toString(16)}`,
    );
  };
  const perLine = 6;
  const all = kernels.map((name) => images.get(name) ?? []);
  return [
    ...all.flatMap((made, k) =>
      made.map((image, a) => {
        const found = words(image);
        const lines = Array.from({ length: Math.ceil(found.length / perLine) }, (_, i) =>
          found.slice(i * perLine, (i + 1) * perLine).join(', '),
        );
        return table('uint64_t', `image_${k}_${a}`, lines, '0');
      }),
    ),
    `static const void *const heddle_images[][${Math.max(1, architectures.length)}] = {\n${list(
      all.map((made, k) => `{${made.map((_, a) => `heddle_image_${k}_${a}`).join(', ') || 'NULL'}}`),
    )}\n};`,
  ];
}

export function printSource(plan: LaunchPlan, prefix: string, compiled: Images): string {
  const { layer, windows, buffers, kernels, launches, received, failure } = plan;
  const { architectures } = compiled;
  const at = (names: readonly { readonly name: string }[], wanted: string): number =>
    names.findIndex(({ name }) => name === wanted);
  const indexOf = (source: Source): number => {
    switch (source.from) {
      case 'window':
        return at(windows, source.window);
      case 'buffer':
        return at(buffers, source.buffer);
      case 'rows':
        return plan.rows.findIndex(({ payload }) => payload === source.payload);
      case 'constant':
        return source.value;
      default:
        return 0;
    }
  };
  const parameter = ({ name, value, offset, bytes }: LaunchParameter): string =>
    `{HEDDLE_FROM_${upper(value.from)}, ${indexOf(value)}, ${offset}, ${bytes}}, /* ${name} */`;
  const launch = ({ phase, kernel, grid, block, ...of }: PlannedLaunch, i: number): string => {
    const sizes = [of.dynamicSharedBytes, of.programmatic ? 1 : 0, of.parameterBytes, of.parameters.length];
    const numbers = [at(kernels, kernel), grid, block, ...sizes].join(', ');
    return `{HEDDLE_${upper(phase)}, ${numbers}, heddle_parameters_${i}}`;
  };
  const fills = windows.flatMap(({ sections }, window) =>
    sections
      .filter(({ start }) => start !== 0)
      .map(({ offset, bytes, start }) => `{${window}, ${offset}, ${bytes}, ${start}}`),
  );
  const place = ({ in: name, offset }: PlacedTensor): string => {
    const window = at(windows, name);
    return window >= 0 ? `{0, ${window}, ${offset}}` : `{1, ${at(buffers, name)}, ${offset}}`;
  };
  const fields = Object.entries(received).map(([name, tensor], i) => {
    const [field = name, payload] = name.split('.');
    const type = payload === undefined ? pointers[field]! : 'const void *';
    const index = payload === undefined ? '' : `[${at(layer.payloads, payload)}]`;
    return { i, tensor, point: `POINT(${field}${index}, ${type}, heddle_place_${i})` };
  });
  const constants = {
    ARCHITECTURES: architectures.length,
    KERNELS: kernels.length,
    WINDOWS: windows.length,
    BUFFERS: buffers.length,
    FILLS: fills.length,
    LAUNCHES: launches.length,
    MOST_PARAMETER_BYTES: Math.max(...launches.map(({ parameterBytes }) => parameterBytes)),
    OUT_ALIGNMENT: alignmentOf(outputRowBytes(layer)),
    WEIGHTS: layer.weights ? 1 : 0,
    SPLIT: plan.split ? 1 : 0,
    OPERATION_DISPATCH: failure.operations.dispatch,
  };
  const names = kernels.map(({ name }) => name);
  const entries = kernels.map(({ entry }) => `"${entry}"`);
  const bytesOf = ({ bytes }: { readonly bytes: number }): number => bytes;
  const alignments = plan.rows.map(({ rowBytes }) => alignmentOf(rowBytes));
  // Options that must be the same on all ranks.
  const digest = createHash('sha256').update(JSON.stringify(plan)).digest('hex').slice(0, 16);
  const parts = [
    opening(prefix, plan).trim(),
    Object.entries(constants)
      .map(([name, value]) => `#define HEDDLE_${name} ${value}`)
      .join('\n'),
    types.trim(),
    `static const uint64_t heddle_plan = 0x${digest};`,
    `static const char heddle_architectures[] = "${architectures.map(({ name }) => name).join(', ') || 'none'}";`,
    table(
      'struct heddle_range',
      'gpus',
      architectures.map(({ gpus }) => `{${gpus.join(', ')}}`),
      '{0, 0}',
    ),
    table('char *const', 'entries', entries, ''),
    ...imageTables(compiled, names),
    numbers('uint64_t', 'window_bytes', windows.map(bytesOf)),
    numbers('uint64_t', 'buffer_bytes', buffers.map(bytesOf)),
    numbers('uint32_t', 'row_alignment', alignments),
    table('struct heddle_fill', 'fills', fills, '{0, 0, 0, 0}'),
    ...launches.map(
      ({ parameters }, i) =>
        `static const struct heddle_parameter heddle_parameters_${i}[] = {\n${parameters.map((of) => `  ${parameter(of)}`).join('\n')}\n};`,
    ),
    table('struct heddle_launch', 'launches', launches.map(launch), ''),
    ...fields.map(
      ({ i, tensor }) => `static const struct heddle_place heddle_place_${i} = ${place(tensor)};`,
    ),
    `static const struct heddle_place heddle_failure_words = ${place(failure)};`,
    `#define HEDDLE_RECEIVED(POINT) \\\n  ${fields.map(({ point }) => point).join(' \\\n  ')}`,
    hostSource.trim(),
  ];
  return renamed(`${parts.join('\n\n')}\n`, prefix);
}
