import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { kernel } from '../../src/lang/index.js';

const make = () => kernel({ name: 'empty', params: {} }, () => {});

/** Has a kernel made; in a process with simulated GPUs it would hold all of a machine. */
class Maker {
  make() {
    return make();
  }
}

function made() {
  const maker = new Maker();
  return { kernel: maker.make(), maker: new WeakRef(maker) };
}

test('a kernel that is kept keeps nobody who had it made', async () => {
  const { kernel, maker } = made();
  await turn();
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
  expect(maker.deref()).toBeUndefined();
  expect(kernel.ir().name).toBe('empty');
});
