/** Runs a kernel that faults: a process of its own, because its GPU state is lost afterwards. */
import { CudaDevice } from '../../../src/gpu/cuda/index.js';
import { crash, prepared } from './kernels.js';

const device = CudaDevice.open(0);
const stream = device.createStream();
device.allocate(4096, 'memory');
device.allocateWindow(4096, 'window');
const launcher = await prepared(device, crash, { nowhere: 64 });
launcher.launch(stream);
await stream.synchronize().catch((error: Error) => console.log(error.message));
await device.dispose();
console.log('disposed');
