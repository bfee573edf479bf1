/** The kernels of a shape, made once: ranks of one process and runs of one check share them, compiled code included. */
import type { IrModule } from '../../lang/index.js';
import { combineKernel } from './combine.js';
import { combineE4m3Kernel } from './combine-e4m3.js';
import { dispatchKernel } from './dispatch.js';
import { weighKernel } from './weigh.js';
import { type OneSidedShape, type OneSidedWindow, oneSidedWindow } from './window.js';

export interface OneSidedKernels {
  readonly window: OneSidedWindow;
  readonly dispatch: IrModule;
  /** Runs before combine, where that applies the router weights. */
  readonly weigh: IrModule | null;
  readonly combine: IrModule;
}

/** A process rarely has more layers of different shapes at a time; what falls out is only made again. */
const mostKept = 64;
const kept = new Map<string, OneSidedKernels>();

export function oneSidedKernels(shape: OneSidedShape): OneSidedKernels {
  const key = JSON.stringify(shape);
  let made = kept.get(key);
  if (made === undefined) {
    const window = oneSidedWindow(shape);
    made = {
      window,
      dispatch: dispatchKernel(shape, window).ir(),
      weigh: shape.output.weighting === 'combine' ? weighKernel(shape, window).ir() : null,
      combine: (shape.output.transport === 'e4m3' ? combineE4m3Kernel : combineKernel)(shape, window).ir(),
    };
    const [oldest] = kept.keys();
    if (kept.size === mostKept) kept.delete(oldest!);
    kept.set(key, made);
  }
  return made;
}
