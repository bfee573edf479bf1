/** Opens a GPU, or a world of GPUs that share a window, or loads kernels, and says what came of it. */
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { CudaDevice } from '../../../src/gpu/cuda/index.js';
import { kernel } from '../../../src/lang/index.js';
import { World } from '../../../src/net/world/index.js';

const [what, number] = [process.argv[2], Number(process.argv[3])];
try {
  if (what === 'world') {
    await World.local({ ranks: number, device: 'cuda' }, async (world) => {
      (await world.createWindow(1 << 20, 'receive window')).close();
    });
  } else if (what === 'load') {
    const cache = process.env.HEDDLE_CACHE!;
    const weave = kernel({ name: 'weave', params: {} }, () => {});
    const [one, other] = [CudaDevice.open(number), CudaDevice.open(number)];
    const [first, beside] = await Promise.all([one.load(weave.ir()), one.load(weave.ir())]);
    await other.load(weave.ir());
    for (const name of readdirSync(cache)) rmSync(join(cache, name));
    const later = await one.load(weave.ir());
    console.error('loaded', first === beside && first === later, readdirSync(cache).length);
    await one.dispose();
    console.error('disposed');
    await other.dispose();
  } else {
    CudaDevice.open(number);
  }
  if (what !== 'load') console.log('opened');
} catch (error) {
  console.log(error instanceof Error ? `${error.name}: ${error.message}` : error);
}
