/** Opens a GPU and prints what came of it. */
import { CudaDevice } from '../../src/cuda/index.js';

try {
  CudaDevice.open(Number(process.argv[2]));
  console.log('opened');
} catch (error) {
  console.log(error instanceof Error ? `${error.name}: ${error.message}` : error);
}
