import { expect, it } from 'vitest';
import { SimMachine } from '../../../src/gpu/sim/index.js';

it('hosts that wait for something outside of a machine go on in the order in which they came', async () => {
  const machine = SimMachine.create({ ranks: 1 });
  const order: string[] = [];
  let come = (): void => {};
  const late = new Promise<void>((resolve) => {
    come = resolve;
  });
  const first = machine.standStill(late).then(() => order.push('first'));
  const failed = machine
    .standStill(Promise.reject(new Error('nothing there')))
    .catch(() => order.push('failed'));
  const last = machine.standStill(Promise.resolve()).then(() => order.push('last'));
  setImmediate(come);
  await Promise.all([first, failed, last]);
  expect(order).toEqual(['first', 'failed', 'last']);
});
