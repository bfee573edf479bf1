/** A shape's kernels, over each of the transports. */
import { remembered } from '../common/remembered.js';
import { weighKernel } from '../common/weigh.js';
import type { TransportName } from '../family.js';
import { combineRecvKernel } from './combine-recv.js';
import { combineSendKernel } from './combine-send.js';
import { dispatchRecvKernel } from './dispatch-recv.js';
import { dispatchSendKernel } from './dispatch-send.js';
import { nvshmem } from './nvshmem.js';
import { proxied } from './proxied.js';
import { stageKernel } from './stage.js';
import { type Transport, windows } from './transport.js';
import { type PortableShape, portableWindow } from './window.js';

/** Made once for a shape: ranks of one process and runs of one check share them, compiled code included. */
function kernelsOf(transport: Transport, shape: PortableShape) {
  const layout = portableWindow(shape);
  return {
    layout,
    stage: shape.commands > 0 ? stageKernel(shape, layout) : null,
    dispatchSend: dispatchSendKernel(shape, layout, transport),
    dispatchRecv: dispatchRecvKernel(shape, layout, transport),
    weigh: shape.weigh && weighKernel('portable_weigh', shape, layout, shape.weigh),
    combineSend: combineSendKernel(shape, layout, transport),
    combineRecv: combineRecvKernel(shape, layout, transport),
  };
}
export type Kernels = ReturnType<typeof kernelsOf>;

export const kernelsOver: Readonly<Record<TransportName, (shape: PortableShape) => Kernels>> = {
  windows: remembered((shape: PortableShape) => kernelsOf(windows, shape)),
  nvshmem: remembered((shape: PortableShape) => kernelsOf(nvshmem, shape)),
  proxy: remembered((shape: PortableShape) => kernelsOf(proxied, shape)),
};
