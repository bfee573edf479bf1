/** A layer's figures as lines of a table. */
import { flopsCells } from './flops.js';
import { type LayerPoint, layerParts, layerWays } from './layer.js';
import type { Spread, Unit } from './statistics.js';

const line = (cells: readonly string[]): string => cells.map((cell) => cell.padStart(10)).join('');
const names = {
  ...{
    router: 'router',
    'rows to fp8': 'to fp8',
    'dispatch + combine': 'd + c',
    plan: 'plan',
    reduce: 'reduce',
  },
  ...{ experts: 'experts', shared: 'shared', add: 'add' },
  ...{ 'in a row': 'in a row', split: 'split', 'two micro-batches': 'two' },
  ...{ 'one-sided, in a row': 'one-sided', 'NCCL, in a row': 'NCCL' },
} as const;

/** Parts, then the whole layer in its ways; then what the experts compute. */
export const layerHead = (unit: Unit): string =>
  line([
    'tokens',
    ...[...layerParts, ...layerWays].map((name) => names[name]),
    ...(unit === 'steps' ? [] : ['tokens/s']),
    'exposed',
    'GFLOP',
    'padded',
  ]);

export function layerLine(unit: Unit, point: LayerPoint): string {
  const { tokens, parts, ways, tokensPerSecond, exposed, usefulFlops, paddedFlops } = point;
  const time = (spread: Spread | undefined): string =>
    spread === undefined ? '–' : spread.median.toFixed(1);
  return line([
    String(tokens),
    ...layerParts.map((part) => time(parts[part])),
    ...layerWays.map((way) => time(ways[way])),
    ...(unit === 'steps' ? [] : [tokensPerSecond.toExponential(2)]),
    `${(100 * exposed).toFixed(0)} %`,
    ...flopsCells(usefulFlops, paddedFlops),
  ]);
}
