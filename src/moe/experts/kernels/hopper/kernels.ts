/** The two GEMMs of experts on Hopper, made once for all layers of a process that are alike. */
import { memoized } from '../../../families/family.js';
import { scaleBlock } from '../../../formats/index.js';
import { gemmsOf, type MlpShape } from '../gemm/kernels.js';
import type { GemmShape } from '../gemm/shape.js';
import { hopperGemmKernel } from './kernel.js';
import { hopperKit } from './kit.js';
import { packedGemmKernel } from './packed.js';
import { addPartsKernel } from './parts.js';
import { groupRows, groups, type HopperTile, madeBy, stageDepth } from './shape.js';

/** More rows than this keep all multiprocessors busy for longer than anything beside them takes. */
export const mostBeside = 512;

/**
 * Multiprocessors for an expert that takes all rows, beside the routed ones: as many as it needs to be ready before they are, and no
 * more, since these wait for them. Measured with DeepSeek-V3's (docs/results/2026-11-23-h200-experts.md).
 */
export function multiprocessorsBeside(rows: number, all: number): number {
  if (rows > mostBeside) return all;
  return Math.max(1, Math.floor(rows <= groupRows ? all / 4 : all / 2));
}

/** The numbers of rows for which an expert that takes all of them has kernels of their own, the most first: up to each, rows are spread alike. */
export const rowsOfForms = (most: number): readonly number[] => [
  most,
  ...[mostBeside, groupRows].filter((rows) => rows < most),
];

/**
 * A tile by the rows that an expert is likely to have. Few: weights are all that is read, and a unit has 64 rows. Many: as large as
 * registers allow, so that shared memory keeps up with the tensor cores. Where all units together leave half of the blocks
 * idle, blocks share them: then sums are cut into parts. With `invariant` no sum is cut, and units become narrower instead, which
 * changes no sum.
 */
function tileFor(mlp: MlpShape, gemm: Pick<GemmShape, 'inputs' | 'outputs' | 'gated'>): HopperTile {
  const { outputs, gated } = gemm;
  const { of, dtype, experts, rows, kind, multiprocessors, invariant = false } = mlp;
  const many = rows > groupRows;
  const scaled = dtype === 'e4m3';
  const narrows = scaled && gated;
  const widest = kind === 'sim' && !(scaled && many) && !narrows ? 64 : many ? 256 : 128;
  const tileOf = (columns: number): HopperTile => {
    // Sums that the threads scale lie in registers beside their products.
    const products = scaled && columns > 128 ? 2 : 1;
    const stages = kind === 'sim' || products === 2 ? 4 : !many ? 5 : !scaled ? 4 : gated ? 5 : 6;
    return { groupsDivide: many ? 'rows' : 'columns', columns, products, stages, parts: 1 };
  };
  // Outputs are a multiple of 64, or of 128 where they are scaled: the last fits all.
  const divides = (tile: HopperTile): boolean => outputs % madeBy(tile, gated) === 0;
  // A row that goes out rounded needs 128 elements to find their scale.
  const fitting = (tile: HopperTile): boolean =>
    divides(tile) && (!narrows || madeBy(tile, gated) % scaleBlock === 0);
  // Three quarters are for gpt-oss: 2880 = 15 · 192. Scales belong to 128 elements, so no tile may have 96.
  const shares = scaled ? [1, 1 / 2, 1 / 4] : [1, 3 / 4, 1 / 2, 1 / 4];
  const widths = shares.map((share) => tileOf(share * widest));
  const shared = widths.find((tile) => tile.products === 1 && divides(tile))!;
  const rowTiles = experts * Math.ceil(rows / ((many ? groups : 1) * groupRows));
  const unitsOf = (tile: HopperTile): number => rowTiles * (outputs / madeBy(tile, gated));
  const units = unitsOf(shared);
  // However few multiprocessors a launch takes: so its sums are the same.
  const blocks =
    of === 'all' && kind === 'cuda' ? multiprocessorsBeside(rows, multiprocessors) : multiprocessors;
  if (invariant) {
    const [usual, ...narrower] = widths.filter(fitting) as [HopperTile, ...HopperTile[]];
    // A store takes no less than 32 elements of a row.
    const possible = narrower.filter(({ columns }) => columns >= (gated ? 64 : 32));
    return [usual, ...possible].find((tile) => 2 * unitsOf(tile) > blocks) ?? possible.at(-1) ?? usual;
  }
  const stages = gemm.inputs / stageDepth(dtype);
  const parts = [16, 8, 7, 6, 5, 4, 3, 2].find((some) => stages % some === 0 && units * some <= blocks);
  if (parts !== undefined) return { ...shared, parts };
  const [first, second = first] = widths.filter(fitting) as [HopperTile, ...HopperTile[]];
  // A unit of two products takes a tenth less than two units of one. Where units are few, the last that a block takes can cost more.
  const productsOf = (tile: HopperTile): number => tile.products * Math.ceil(unitsOf(tile) / blocks);
  return first.products === 2 && productsOf(first) > 1.1 * productsOf(second) ? second : first;
}

/** Up to so many rows an expert, warps' own products of MXFP4 are faster (docs/results/2026-11-27-h200-four-bits.md). */
export const rowsOfWarps = 20;

/** Rows of an expert that weights of MXFP4 meet while they are unpacked once: what nearly every expert has where routes are drawn. */
function rowsOfPacked({ rows, kind }: MlpShape): number {
  if (kind === 'sim') return rows <= groupRows ? 16 : 64;
  return Math.min(256, 32 * Math.ceil((rows + 2.5 * Math.sqrt(rows)) / 32));
}

/** Threads of a block that adds parts up. */
export const addingThreads = { sim: 64, cuda: 256 } as const;

/** Whether the first finds rows by their routes: copying them costs threads more than it costs the copy engine to bring many in order. */
const gathersRows = ({ of, rows, gathers = rows <= groupRows }: Pick<MlpShape, 'of' | 'rows' | 'gathers'>) =>
  of === 'plan' && gathers;

/** Whether rows of a plan are sorted for it. */
export const sortsRows = (mlp: Pick<MlpShape, 'of' | 'rows'>): boolean =>
  mlp.of === 'plan' && !gathersRows(mlp);

/** Bytes a row of the partial sums that blocks leave in memory where several of them share a unit of work. */
export function sumsOfParts(mlp: MlpShape): number {
  if (mlp.packed) return 0;
  const { gateUp, down } = gemmsOf(mlp, mlp.dtype);
  const bytes = (gemm: GemmShape, columns: number): number => {
    const { parts } = tileFor(mlp, gemm);
    return parts === 1 ? 0 : 4 * parts * columns;
  };
  return bytes(gateUp, 2 * mlp.inner) + bytes(down, mlp.hidden);
}

export const hopperKernels = memoized((mlp: MlpShape) => {
  const { gateUp, down } = gemmsOf(mlp, mlp.dtype);
  const gathers = gathersRows(mlp);
  const first = { ...gateUp, rows: gathers ? 'gathered' : gateUp.rows } as const;
  if (mlp.packed) {
    const rowUnit = rowsOfPacked(mlp);
    const of = (shape: GemmShape) => packedGemmKernel(shape, rowUnit, mlp.kind);
    return { rowUnit, gathers, gateUp: of(first), down: of(down), parts: { gateUp: null, down: null } };
  }
  const [upTile, downTile] = [tileFor(mlp, gateUp), tileFor(mlp, down)];
  const partsOf = (shape: GemmShape, { parts }: HopperTile) =>
    parts === 1 ? null : { parts, add: addPartsKernel(shape, parts, addingThreads[mlp.kind]) };
  return {
    rowUnit: hopperKit(down, downTile).rows,
    gathers,
    gateUp: hopperGemmKernel(first, upTile),
    down: hopperGemmKernel(down, downTile),
    /** Where blocks share units: how many, and the kernel that adds their sums up. */
    parts: { gateUp: partsOf(gateUp, upTile), down: partsOf(down, downTile) },
  };
});
