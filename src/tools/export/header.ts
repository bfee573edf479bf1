/** `plan.h`: what a C or C++ host needs of a launch plan, as constants and tables. `plan.json` has the rest, and says what it means. */
import { phases } from '../../moe/families/index.js';
import { outputRowBytes } from '../../moe/layer/index.js';
import type { Source } from './binding.js';
import type { LaunchParameter, LaunchPlan, PlacedTensor, PlannedLaunch } from './launch-plan.js';

const froms: readonly Source['from'][] = [
  'window',
  'buffer',
  'rows',
  'tokens',
  'topkIds',
  'topkWeights',
  'out',
  'limit',
  'rank',
  'constant',
];

/** `topkIds` → `TOPK_IDS` */
const upper = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();
const list = (items: readonly string[]): string => items.map((item) => `  ${item},`).join('\n');

/** `prefix`: of types and tables; `PREFIX`: of constants. */
const types = (prefix: string, PREFIX: string): string => `
enum ${prefix}_phase {
${list(phases.map((phase) => `${PREFIX}_${upper(phase)}`))}
};

/* Where the value of a parameter comes from; \`index\` says which window, buffer or payload, or is the constant itself. */
enum ${prefix}_from {
${list(froms.map((from) => `${PREFIX}_FROM_${upper(from)}`))}
};

struct ${prefix}_parameter {
  const char *name;
  enum ${prefix}_from from;
  uint32_t index, offset, bytes;
};

struct ${prefix}_launch {
  enum ${prefix}_phase phase;
  const char *kernel, *entry;
  /* \`programmatic\`: 1 where it may be launched with programmatic stream serialization, else 0. */
  uint32_t grid, block, dynamic_shared_bytes, programmatic, parameter_bytes, parameter_count;
  const struct ${prefix}_parameter *parameters;
};

/* What every byte of a range is before the first launch; all others are 0. */
struct ${prefix}_fill {
  uint32_t window;
  uint64_t offset, bytes;
  uint8_t value;
};

/* A tensor in a window, or in a buffer of the rank. */
struct ${prefix}_place {
  uint32_t in_buffer, index;
  uint64_t offset, bytes;
};
`;

/** Plans with different prefixes may be included together. */
export function printHeader(plan: LaunchPlan, prefix: string): string {
  const PREFIX = upper(prefix);
  const { family, layer, windows, buffers, kernels, launches, received, failure } = plan;
  const at = (names: readonly { readonly name: string }[], wanted: string): number =>
    names.findIndex(({ name }) => name === wanted);
  const indexOf = (source: Source): number => {
    switch (source.from) {
      case 'window':
        return at(windows, source.window);
      case 'buffer':
        return at(buffers, source.buffer);
      case 'rows':
        return at(layer.payloads, source.payload);
      case 'constant':
        return source.value;
      default:
        return 0;
    }
  };
  const parameter = ({ name, value, offset, bytes }: LaunchParameter): string =>
    `{"${name}", ${PREFIX}_FROM_${upper(value.from)}, ${indexOf(value)}, ${offset}, ${bytes}}`;
  const launch = ({ phase, kernel, grid, block, ...of }: PlannedLaunch, i: number): string => {
    const { entry } = kernels.find(({ name }) => name === kernel)!;
    const programmatic = of.programmatic ? 1 : 0;
    const sizes = [of.dynamicSharedBytes, programmatic, of.parameterBytes, of.parameters.length];
    const numbers = [grid, block, ...sizes].join(', ');
    return `{${PREFIX}_${upper(phase)}, "${kernel}", "${entry}", ${numbers}, ${prefix}_parameters_${i}}`;
  };
  const fills = windows.flatMap(({ sections }, window) =>
    sections
      .filter(({ start }) => start !== 0)
      .map(({ offset, bytes, start }) => `{${window}, ${offset}, ${bytes}, ${start}}`),
  );
  const place = ({ in: name, offset, bytes }: PlacedTensor): string => {
    const window = at(windows, name);
    return window >= 0
      ? `{0, ${window}, ${offset}, ${bytes}}`
      : `{1, ${at(buffers, name)}, ${offset}, ${bytes}}`;
  };
  const table = (type: string, name: string, rows: readonly string[]): string =>
    `static const ${type} ${prefix}_${name}[] = {\n${list(rows)}\n};`;
  const constants = {
    VERSION: `"${plan.heddle}"`,
    RANKS: layer.ranks,
    EXPERTS: layer.experts,
    TOP_K: layer.topK,
    MAX_TOKENS: layer.maxTokens,
    PAYLOADS: layer.payloads.length,
    OUT_ROW_BYTES: outputRowBytes(layer),
    MOST_PARAMETER_BYTES: Math.max(...launches.map(({ parameterBytes }) => parameterBytes)),
    WINDOWS: windows.length,
    BUFFERS: buffers.length,
    FILLS: fills.length,
    LAUNCHES: launches.length,
  };
  const parts = [
    `/* Written by \`heddle export ${family}\` of Heddle ${plan.heddle}. plan.json says what each value means. */`,
    `#ifndef ${PREFIX}_PLAN_H\n#define ${PREFIX}_PLAN_H\n#include <stdint.h>`,
    Object.entries(constants)
      .map(([name, value]) => `#define ${PREFIX}_${name} ${value}`)
      .join('\n'),
    types(prefix, PREFIX).trim(),
    `/* C has no arrays of nothing: one element more, of zeros, ends those that may be empty. */`,
    table('uint64_t', 'window_bytes', [...windows.map(({ bytes }) => `${bytes}`), '0']),
    table('uint64_t', 'buffer_bytes', [...buffers.map(({ bytes }) => `${bytes}`), '0']),
    table('uint64_t', 'row_bytes', [...layer.payloads.map(({ rowBytes }) => `${rowBytes}`), '0']),
    table(`struct ${prefix}_fill`, 'fills', [...fills, '{0, 0, 0, 0}']),
    ...launches.map(({ parameters }, i) =>
      table(`struct ${prefix}_parameter`, `parameters_${i}`, parameters.map(parameter)),
    ),
    table(`struct ${prefix}_launch`, 'launches', launches.map(launch)),
    ...Object.entries({ ...received, failure }).map(
      ([name, view]) =>
        `static const struct ${prefix}_place ${prefix}_${name.replaceAll(/\W/g, '_')} = ${place(view)};`,
    ),
    '#endif',
  ];
  return `${parts.join('\n\n')}\n`;
}
