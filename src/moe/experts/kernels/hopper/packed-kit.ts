/** What the parts of a grouped GEMM with weights of MXFP4 are made of, beside what those of any on Hopper are (kit.ts). */
import {
  list,
  mostShared,
  pipeline,
  pointer,
  record,
  tensorMap,
  tile,
  tiles,
} from '../../../../lang/index.js';
import type { GemmShape } from '../gemm/shape.js';
import { hopperKit } from './kit.js';
import { groupRows, groups, groupThreads, stageBytes, stageDepth } from './shape.js';

/** Stages that the weights of a fetch are for: a row of them has 128 bytes, a line of memory. */
const fetched = 4;
/** Most rows that pass through shared memory at a time on their way out. */
const mostSent = 64;
const mostStages = 12;

export type PackedKit = ReturnType<typeof packedKit>;

/** `rows`: those of an expert that a unit multiplies, at most 256. */
export function packedKit(shape: GemmShape, rows: number, kind: 'sim' | 'cuda') {
  const { inputs, gated, experts } = shape;
  const halves = gated ? 2 : 1;
  // A warp group multiplies 64 rows of weights, half of them gates.
  const made = (groups * groupRows) / halves;
  const packedTile = tile('u8', [made, fetched * (stageDepth('bf16') / 2)], { swizzle: 128 });
  const scalesTile = tile('u8', [fetched * 2, made], { swizzle: 0 });
  const rowsTile = tile('bf16', [rows, stageDepth('bf16')], { swizzle: stageBytes });
  const sent = rows % mostSent === 0 ? mostSent : Math.min(mostSent / 2, rows);
  const sentVectors = made / groups / 8;
  const passage = sent * (sentVectors + 1);
  const fetches = kind === 'sim' ? 2 : 3;
  const left =
    mostShared -
    1024 - // gates, and tiles that begin at a multiple
    12 * experts -
    16 * groups * passage -
    fetches * halves * (packedTile.bytes + scalesTile.bytes);
  const stages = kind === 'sim' ? 3 : Math.min(mostStages, Math.floor(left / rowsTile.bytes));
  const base = hopperKit(shape, {
    groupsDivide: 'columns',
    columns: groupRows,
    products: 1,
    stages,
    parts: 1,
    rows,
  });
  const ring = pipeline({ stages: fetches, empties: (groups * groupThreads) / 32 });
  return {
    ...{ base, rows, made, stages, fetches, halves, packedTile, scalesTile },
    ...{ passage, sentVectors, sentRows: sent },
    ring: record({
      ...{ weights: tiles(packedTile), scales: tiles(scalesTile) },
      gates: record({ full: pointer('u64'), empty: pointer('u64') }),
    }),
    /** [expert][out][in], two a byte; and [expert][32 in][out]. */
    sources: record({ weights: list(tensorMap(packedTile), 1), scales: list(tensorMap(scalesTile), 1) }),
    u: {
      ...{ ...base.u, FETCHED: fetched, BLOCKS: inputs / 32 },
      BYTES: halves * (packedTile.bytes + scalesTile.bytes),
      ...{ acquirePacked: ring.acquire, waitPacked: ring.wait },
      ...{ releasePacked: ring.release, startPacked: ring.start },
    },
  };
}
