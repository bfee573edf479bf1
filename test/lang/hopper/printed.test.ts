/** Kernels of tiles as they are printed, without a compiler. */
import { expect, test } from 'vitest';
import { hardwareOf, kernel, pointer, printCuda, tile } from '../../../src/lang/index.js';
import { boxKernel, clusterKernel } from './cases.js';
import { gemmKernel } from './gemm.js';

test('which GPUs have what a kernel uses is known before it is compiled', () => {
  const gemm = gemmKernel({ type: 'bf16', rows: 128, columns: 256, stages: 4 }).kernel;
  expect(hardwareOf(gemm.ir())).toEqual({ only: 'hopper', because: 'g.wgmma.fence' });
  const box = boxKernel(0, 2).ir();
  expect(hardwareOf(box)).toEqual({ only: 'hopper and later', because: 'g.tensor.prefetch' });
  expect(hardwareOf(clusterKernel().ir())).toEqual({
    only: 'hopper and later',
    because: 'clusters of blocks',
  });
  const barrier = kernel({ name: 'barrier', params: {} }, (g) => {
    const arrived = g.shared('u64', 1);
    g.mbarrier.init(arrived, 1);
  });
  expect(hardwareOf(barrier.ir())).toEqual({ only: 'hopper and later', because: 'g.mbarrier.init' });
  const rounded = kernel({ name: 'rounded', params: { to: pointer('e4m3') } }, (g, { to }) => {
    g.store(to, g.e4m3(1));
  });
  expect(hardwareOf(rounded.ir())).toEqual({ only: 'ada and later', because: 'conversions of e4m3' });
  const moved = kernel({ name: 'moved', params: { to: pointer('e4m3') } }, (g, { to }) => {
    g.store(to.at(1), g.load(to));
  });
  expect(hardwareOf(moved.ir())).toBeNull();
});

test('a fence and a wait hold the sums that they hand over, and none that is under way', () => {
  const operand = tile('bf16', [64, 64], { swizzle: 128 });
  const twoSets = kernel(
    { name: 'two_sets', params: { to: pointer('f32') }, using: { operand } },
    (g, { to }, { operand }) => {
      const tiles = g.shared(operand, 2);
      const even = g.registers('f32', 32);
      const odd = g.registers('f32', 32);
      const other = g.registers('f32', 8);
      g.wgmma.fence();
      g.wgmma.multiply(even, tiles.at(0), tiles.at(1), true);
      g.wgmma.commit();
      g.wgmma.hold(other);
      g.wgmma.fence();
      g.wgmma.multiply(odd, tiles.at(0), tiles.at(1), true);
      g.wgmma.commit();
      g.wgmma.wait(1);
      g.store(to.at(g.threadIdx.x), even[0]!);
      g.wgmma.wait(0);
      g.store(to.at(128 + g.threadIdx.x), odd[0]!);
    },
  );
  const calls = printCuda(twoSets.ir()).match(/\b(wgmma_(fence|wait<\d>)|hold)\([a-z]+\);/g);
  expect(calls).toEqual([
    ...[
      'wgmma_fence(even);',
      'hold(other);',
      'wgmma_fence(odd);',
      'wgmma_wait<1>(even);',
      'wgmma_wait<0>(odd);',
    ],
  ]);
});
