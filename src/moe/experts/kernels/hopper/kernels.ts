/** The two GEMMs of experts on Hopper, made once for all layers of a process that are alike. */
import { remembered } from '../../../families/common/remembered.js';
import { scaleBlock } from '../../../formats/index.js';
import type { MlpShape } from '../gemm/kernels.js';
import { gatheredGemmKernel, tiledGemmKernel } from './kernel.js';
import { groupRows, type HopperShape, type HopperTile, hopperSizes } from './shape.js';

export interface HopperMlp
  extends Pick<MlpShape, 'of' | 'experts' | 'hidden' | 'inner' | 'topK' | 'rows' | 'kind'> {
  readonly dtype: 'bf16' | 'e4m3';
}

/**
 * A tile by the rows that an expert is likely to have; null where the weights cannot be cut into such tiles. Few rows: weights are all
 * that is read, and a unit has 64 rows. Many: as large as registers allow, so that shared memory keeps up with the tensor cores.
 */
function tileFor(
  { dtype, rows, kind }: HopperMlp,
  shape: Pick<HopperShape, 'inputs' | 'outputs' | 'gated'>,
): HopperTile | null {
  const { outputs, gated, inputs } = shape;
  const many = rows > groupRows;
  const scaled = dtype === 'e4m3';
  const block = scaled ? scaleBlock : 64;
  if (inputs % block !== 0) return null;
  // Sums that the threads scale lie in registers twice.
  const widest = kind === 'sim' ? 64 : many && !scaled ? 256 : 128;
  for (const columns of [widest, widest / 2]) {
    const split = many ? 'rows' : 'columns';
    const madeInPass = (columns / (gated ? 2 : 1)) * (many ? 1 : 2);
    // A row that goes out rounded needs 128 elements to find their scale.
    const passes = scaled && gated ? Math.max(1, scaleBlock / madeInPass) : 1;
    const stages = kind === 'sim' ? 4 : many ? (scaled ? 6 : 4) : 5;
    if (outputs % (madeInPass * passes) === 0) return { split, columns, passes, stages };
  }
  return null;
}

/** Null where the shape does not fit the tensor cores of Hopper in this way. */
export const hopperKernels = remembered((mlp: HopperMlp) => {
  const { of, dtype, experts, hidden, inner, topK, rows } = mlp;
  const up = { inputs: hidden, outputs: inner, gated: true };
  const back = { inputs: inner, outputs: hidden, gated: false };
  const [upTile, backTile] = [tileFor(mlp, up), tileFor(mlp, back)];
  if (upTile === null || backTile === null) return null;
  // Copying rows by their routes costs the threads more than the copy engine, which many rows are then brought by in order.
  const gathers = of === 'plan' && rows <= groupRows;
  const order = of === 'plan' ? 'sorted' : 'all';
  const common = { dtype, experts, topK };
  const down: HopperShape = { ...common, ...back, rows: order };
  return {
    rowUnit: hopperSizes(down, backTile).rows,
    gateUp: gathers
      ? { gathers, kernel: gatheredGemmKernel({ ...common, ...up, rows: 'gathered' }, upTile) }
      : { gathers, kernel: tiledGemmKernel({ ...common, ...up, rows: order }, upTile) },
    down: tiledGemmKernel(down, backTile),
  } as const;
});
