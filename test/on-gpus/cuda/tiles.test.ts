import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { CudaDevice } from '../../../src/gpu/cuda/index.js';
import {
  boxCases,
  boxName,
  gemmCases,
  gemmName,
  moveBox,
  multiply,
  shareBoxes,
} from '../../lang/hopper/cases.js';

let device: CudaDevice;
before(() => {
  device = CudaDevice.open(0);
});
after(() => device.dispose());

for (const one of boxCases) {
  test(`a box, ${boxName(one)}`, async () => {
    const { result, expected } = await moveBox(device, one);
    assert.deepEqual(result, expected);
  });
}

test('boxes for both blocks of a cluster', async () => {
  const { result, expected } = await shareBoxes(device);
  assert.deepEqual(result, expected);
});

for (const one of gemmCases) {
  test(`a GEMM of ${gemmName(one)}`, async (t) => {
    if (device.gpu.capability[0] !== 9) {
      await assert.rejects(multiply(device, one), /compute capability 9\.0 \(Hopper\) alone/);
      t.skip('only Hopper has wgmma');
      return;
    }
    // The numbers are whole and small: whatever the order of adding, and with 14 bits too, they come out exactly.
    const { result, expected } = await multiply(device, one);
    assert.deepEqual(result, expected);
  });
}
