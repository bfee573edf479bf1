/** What the plans of a shape share. */
import { remembered } from '../common/remembered.js';
import { weighKernel } from '../common/weigh.js';
import { combineRecvKernel } from './combine-recv.js';
import { combineSendKernel } from './combine-send.js';
import { dispatchRecvKernel } from './dispatch-recv.js';
import { dispatchSendKernel } from './dispatch-send.js';
import type { HybridShape } from './shape.js';
import { hybridWindow } from './window.js';
import { hybridWire } from './wire.js';

/** The kernels of a shape, made once: ranks of one process and runs of one check share them, compiled code included. */
export const kernelsOf = remembered((shape: HybridShape) => {
  const window = hybridWindow(shape);
  const wire = hybridWire(shape);
  return {
    window,
    wire,
    dispatchSend: dispatchSendKernel(shape, window, wire),
    dispatchRecv: dispatchRecvKernel(shape, window, wire),
    weigh: shape.weigh && weighKernel('hybrid_weigh', shape, window, shape.weigh),
    combineSend: combineSendKernel(shape, window, wire),
    combineRecv: combineRecvKernel(shape, window, wire),
  };
});
export type HybridKernels = ReturnType<typeof kernelsOf>;
