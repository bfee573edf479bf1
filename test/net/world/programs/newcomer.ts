// A process that comes to a world as a newcomer, and may fall at a point that it passes.
import { HeddleError } from '../../../../src/base/errors.js';
import { onPassing } from '../../../../src/net/world/circle.js';
import { World } from '../../../../src/net/world/index.js';
import type { Coming } from '../newcomer-falls.js';

process.on('message', async ({ join, fall }: Coming) => {
  const passed: string[] = [];
  onPassing((what, step) => {
    const name = `${what}, ${step}`;
    const times = passed.filter((point) => point.startsWith(name)).length;
    passed.push(times === 0 ? name : `${name} (${times + 1})`);
    if (fall !== null && passed.at(-1) === fall.point) process.kill(process.pid, fall.signal);
  });
  try {
    await World.join({ device: 'sim', ...join }, async (world) => {
      await world.createWindow(64, 'window');
      await world.barrier('all is made');
    });
  } catch (error) {
    if (!(error instanceof HeddleError)) throw error;
  }
  process.send!(passed, () => process.disconnect());
});
