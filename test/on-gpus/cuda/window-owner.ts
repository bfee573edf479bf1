/** Another rank, as a process or a thread: owns a window, hands out its handle, says on demand what lies in it. */
import { parentPort, workerData } from 'node:worker_threads';
import { CudaDevice } from '../../../src/gpu/cuda/index.js';

const answer = (message: object) => {
  if (parentPort !== null) parentPort.postMessage(message);
  else process.send!(message);
};

const device = CudaDevice.open(Number(workerData ?? process.argv[2]));
const stream = device.createStream();
const window = device.allocateWindow(1 << 20, 'test window');
(parentPort ?? process).on('message', async (request: 'read' | 'free') => {
  if (request === 'free') {
    window.free();
    answer({ freed: true });
    return;
  }
  const bytes = await stream.copyOut(window.address, 32);
  answer({ words: [...new Uint32Array(bytes.buffer)] });
});
answer({ handle: Buffer.from(window.handle).toString('base64') });
