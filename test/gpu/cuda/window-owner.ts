/** Another rank's process: owns a window, hands out its handle, and says on demand what lies in it. */
import { CudaDevice } from '../../../src/cuda/index.js';

const device = CudaDevice.open(Number(process.argv[2]));
const stream = device.createStream();
const window = device.allocateWindow(1 << 20, 'test window');
process.send!({ handle: Buffer.from(window.handle).toString('base64') });
process.on('message', async (request: 'read' | 'free') => {
  if (request === 'free') {
    window.free();
    process.send!({ freed: true });
    return;
  }
  const bytes = await stream.copyOut(window.address, 32);
  process.send!({ words: [...new Uint32Array(bytes.buffer)] });
});
