/** Opens a GPU, or a world of GPUs that share a window, and prints what came of it. */
import { CudaDevice } from '../../../src/gpu/cuda/index.js';
import { World } from '../../../src/net/world/index.js';

const [what, number] = [process.argv[2], Number(process.argv[3])];
try {
  if (what === 'world') {
    await World.local({ ranks: number, device: 'cuda' }, async (world) => {
      (await world.createWindow(1 << 20, 'receive window')).close();
    });
  } else {
    CudaDevice.open(number);
  }
  console.log('opened');
} catch (error) {
  console.log(error instanceof Error ? `${error.name}: ${error.message}` : error);
}
