/** The two GEMMs of experts, made once for all layers of a process that are alike. */
import { memoized } from '../../../families/family.js';
import type { Activation } from '../../../layer/index.js';
import { groupRows } from '../hopper/shape.js';
import type { Chip } from '../shape.js';
import { gemmKernel } from './gemm.js';
import type { GemmShape, GemmTile } from './shape.js';

export interface MlpShape extends Chip {
  /** The rows that come in: those of a plan, or all of one expert. */
  readonly of: 'plan' | 'all';
  readonly dtype: GemmShape['dtype'];
  /** Whether weights are MXFP4. Default false. */
  readonly packed?: boolean;
  readonly experts: number;
  readonly hidden: number;
  readonly inner: number;
  readonly topK: number;
  /** That an expert is likely to have. */
  readonly rows: number;
  /** Whether the first GEMM finds rows of a plan by their routes. Default: where they are few. */
  readonly gathers?: boolean;
  /** Default 'swiglu'. */
  readonly activation?: Activation;
  /** Whether gate and up have biases, and whether down has. Default false. */
  readonly gateUpBias?: boolean;
  readonly downBias?: boolean;
  /** A row's bits do not depend on how many rows there are, nor on the experts beside its own. Default false. */
  readonly invariant?: boolean;
}

/** The two GEMMs: from rows that come in to what the activation makes, and from that, of type `between`, to rows that go out. */
export function gemmsOf(mlp: MlpShape, between: GemmShape['dtype']) {
  const { of, dtype, packed = false, experts, hidden, inner, topK } = mlp;
  const { activation = 'swiglu', gateUpBias = false, downBias = false } = mlp;
  const all = { packed, experts, topK, activation, rows: of === 'plan' ? 'sorted' : 'all' } as const;
  return {
    gateUp: { ...all, dtype, inputs: hidden, outputs: inner, gated: true, bias: gateUpBias },
    down: { ...all, dtype: between, inputs: inner, outputs: hidden, gated: false, bias: downBias },
  } satisfies Record<string, GemmShape>;
}

/**
 * A tile by the rows that an expert is likely to have. Few: as many as come in nearly every round, since rows beyond a tile
 * read the weights again. Many: as large as the registers of a block allow, so that shared memory keeps up with the tensor
 * cores.
 */
export function gemmTile(
  rows: number,
  { outputs, gated, dtype, packed }: Pick<GemmShape, 'outputs' | 'gated' | 'dtype' | 'packed'>,
  kind: 'sim' | 'cuda',
): GemmTile {
  const fitting = packed && kind === 'cuda' ? [256, 192, 128] : [256, 128];
  const [fits = 64] = fitting.filter((columns) => outputs % (columns / (gated ? 2 : 1)) === 0);
  if (kind === 'sim') {
    const few = {
      rows: 32,
      columns: 64,
      warpRows: 1,
      warpColumns: 4,
      few: true,
      stages: 3,
      resident: 1,
      cuts: 1,
    };
    if (rows <= 8) return few;
    // As on GPUs, the last tiles are cut for four where they are wide enough.
    const columns = Math.min(fits, 128);
    return { ...few, few: false, columns, cuts: packed ? 1 : columns / 32 };
  }
  // Weights of MXFP4 are so short that rows of a narrow tile would be as many bytes.
  if (packed && rows <= groupRows)
    return {
      ...{ warpRows: 1, warpColumns: 4, few: true, resident: 2, cuts: 1, columns: fits },
      ...(rows <= 20 ? { rows: 32, stages: 5 } : { rows: 64, stages: 4 }),
    };
  if (rows <= 48) {
    const shape = { warpRows: 1, warpColumns: 4, few: true, resident: 2, cuts: 1 };
    if (rows <= 20) return { ...shape, rows: 32, columns: 64, stages: 8 };
    return { ...shape, rows: 64, columns: Math.min(fits, 128), stages: 4 };
  }
  return {
    rows: 128,
    columns: fits,
    warpRows: 2,
    warpColumns: 4,
    few: false,
    stages: 4,
    resident: 1,
    // Scales beside rows, or beside weights, leave no registers for cut tiles.
    cuts: dtype === 'e4m3' || packed ? 1 : fits / 64,
  };
}

export const mlpKernels = memoized((mlp: MlpShape) => {
  const { of, rows, kind, multiprocessors } = mlp;
  const make = (shape: GemmShape) => {
    const tile = gemmTile(rows, shape, kind);
    const blocks = kind === 'sim' ? 4 : multiprocessors * tile.resident;
    const { resident, warpRows, warpColumns } = tile;
    return { kernel: gemmKernel(shape, tile), blocks, resident, threads: 32 * warpRows * warpColumns };
  };
  const { gateUp, down } = gemmsOf(mlp, 'bf16');
  const { few, rows: tileRows } = gemmTile(rows, { ...down, dtype: mlp.dtype }, kind);
  return {
    /** Rows that are multiplied are a multiple of it: fragments of 16 that hold none are skipped only where rows are few. */
    rowUnit: few ? 16 : tileRows,
    gateUp: make({ ...gateUp, rows: of === 'plan' ? 'gathered' : 'all' }),
    down: make(down),
  };
});
