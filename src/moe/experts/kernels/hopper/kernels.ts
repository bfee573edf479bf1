/** The two GEMMs of experts on Hopper, made once for all layers of a process that are alike. */
import { remembered } from '../../../families/common/remembered.js';
import { scaleBlock } from '../../../formats/index.js';
import type { MlpShape } from '../gemm/kernels.js';
import { hopperGemmKernel } from './kernel.js';
import { groupRows, type HopperShape, type HopperTile, hopperSizes, madeBy } from './shape.js';

export interface HopperMlp
  extends Pick<MlpShape, 'of' | 'experts' | 'hidden' | 'inner' | 'topK' | 'rows' | 'kind'> {
  readonly dtype: 'bf16' | 'e4m3';
}

/**
 * A tile by the rows that an expert is likely to have. Few: weights are all that is read, and a unit has 64 rows. Many: as large as
 * registers allow, so that shared memory keeps up with the tensor cores.
 */
function tileFor(
  { dtype, rows, kind }: HopperMlp,
  { outputs, gated }: Pick<HopperShape, 'outputs' | 'gated'>,
): HopperTile {
  const many = rows > groupRows;
  const scaled = dtype === 'e4m3';
  // Sums that the threads scale lie in registers twice.
  const widest = kind === 'sim' ? 64 : many && !scaled ? 256 : 128;
  const tileOf = (columns: number): HopperTile => {
    const madeInPass = (columns / (gated ? 2 : 1)) * (many ? 1 : 2);
    return {
      split: many ? 'rows' : 'columns',
      columns,
      // A row that goes out rounded needs 128 elements to find their scale.
      passes: scaled && gated ? Math.max(1, scaleBlock / madeInPass) : 1,
      stages: kind === 'sim' ? 4 : many ? (scaled && !gated ? 6 : scaled ? 5 : 4) : 5,
    };
  };
  const tiles = [widest, widest / 2, widest / 4].map(tileOf);
  // Outputs are a multiple of 64, or of 128 where they are scaled: the last fits all.
  return tiles.find((tile) => outputs % madeBy(tile, gated) === 0)!;
}

/** Whether the first finds rows by their routes: copying them costs threads more than it costs the copy engine to bring many in order. */
const gathersRows = ({ of, rows }: Pick<HopperMlp, 'of' | 'rows'>): boolean =>
  of === 'plan' && rows <= groupRows;

/** Whether rows of a plan are sorted for it. */
export const sortsRows = (mlp: Pick<HopperMlp, 'of' | 'rows'>): boolean =>
  mlp.of === 'plan' && !gathersRows(mlp);

export const hopperKernels = remembered((mlp: HopperMlp) => {
  const { of, dtype, experts, hidden, inner, topK } = mlp;
  const up = { dtype, experts, topK, inputs: hidden, outputs: inner, gated: true };
  const rows = of === 'plan' ? 'sorted' : 'all';
  const down: HopperShape = { dtype, experts, topK, inputs: inner, outputs: hidden, gated: false, rows };
  const [upTile, downTile] = [tileFor(mlp, up), tileFor(mlp, down)];
  const gathers = gathersRows(mlp);
  return {
    rowUnit: hopperSizes(down, downTile).rows,
    gathers,
    gateUp: hopperGemmKernel({ ...up, rows: gathers ? 'gathered' : rows }, upTile),
    down: hopperGemmKernel(down, downTile),
  };
});
