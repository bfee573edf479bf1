import { expect, test } from 'vitest';
import { ArgumentError } from '../../../src/base/errors.js';
import {
  KernelError,
  kernel,
  offsetInTile,
  pointer,
  printCuda,
  type Swizzle,
  tensorMap,
  tile,
} from '../../../src/lang/index.js';
import { machineOf } from '../../gpu/sim/harness.js';

test.each([128, 64, 32] as const)(
  'under a swizzle of %d pieces of 16 bytes change places as PTX says',
  (swizzle) => {
    const of = tile('e4m3', [24, swizzle], { swizzle });
    const pieces = swizzle / 16;
    for (let row = 0; row < of.rows; row++) {
      for (let column = 0; column < of.columns; column++) {
        // The pattern counts lines of 128 bytes, of which a row of 64 or 32 is a part.
        const line = Math.floor((row * swizzle) / 128);
        const piece = Math.floor(column / 16) ^ (line % pieces);
        expect(offsetInTile(of, row, column)).toBe(row * swizzle + piece * 16 + (column % 16));
      }
    }
    expect(of).toMatchObject({ bytes: 24 * swizzle, alignment: 8 * swizzle });
  },
);

test('without a swizzle rows lie one behind the other', () => {
  const of = tile('f32', [8, 12], { swizzle: 0 });
  expect(offsetInTile(of, 3, 5)).toBe((3 * 12 + 5) * 4);
  expect(of).toMatchObject({ bytes: 384, alignment: 128 });
});

test.each<[Parameters<typeof tile>[0], readonly [number, number], Swizzle, RegExp]>([
  ['bf16', [64, 32], 128, /columns is 32; it must be 64: under a swizzle of 128 bytes a row of bf16 has 64/],
  ['bf16', [64, 128], 128, /columns is 128; it must be 64/],
  ['e4m3', [64, 64], 32, /a row of e4m3 has 32 elements/],
  ['bf16', [12, 64], 128, /rows is 12; it must be a multiple of 8/],
  ['bf16', [264, 64], 128, /rows is 264; it must be an integer from 1 to 256/],
  ['u8', [8, 300], 0, /columns is 300/],
  ['bf16', [16, 12], 0, /multiples of 16 bytes/],
  ['bf16', [3, 8], 0, /a multiple of 128 bytes in all \(3 × 8 bf16 are 48\)/],
  ['bf16', [8, 64], 96 as Swizzle, /swizzle is 96; it must be one of 0, 32, 64, 128 bytes/],
])('%s %j with a swizzle of %d is refused', (type, shape, swizzle, message) => {
  expect(() => tile(type, shape, { swizzle })).toThrow(ArgumentError);
  expect(() => tile(type, shape, { swizzle })).toThrow(message);
});

test.each([0, 32, 64, 128] as const)('.element is where the host says, swizzle %d', async (swizzle) => {
  const T = tile('u16', [16, swizzle === 0 ? 40 : swizzle / 2], { swizzle });
  const copies = kernel(
    { name: 'copies', params: { out: pointer('u16') }, using: { T } },
    (g, { out }, { T }) => {
      const all = g.shared(T, 2);
      const lies = all.at(1).as('u16');
      for (let row = g.u32(0); row < T.rows; row++)
        for (const column of g.unroll(T.columns)) g.store(all.at(1).element(row, column), row * 256 + column);
      for (let i = g.u32(0); i < T.rows * T.columns; i++) g.store(out.at(i), g.load(lies.at(i)));
      g.store(out.at(T.rows * T.columns), g.load(all.at(1).rows(8, 8).element(3, 5)));
    },
  );
  const { machine, ranks } = machineOf({ ranks: 1, mode: 'checked' });
  const [{ device, stream }] = ranks as [(typeof ranks)[0]];
  const out = device.allocate(T.bytes + 2, 'out');
  const launcher = (await device.load(copies.ir())).launcher({ grid: 1, block: 1, rank: 0 });
  launcher.set('out', out.address);
  launcher.launch(stream);
  const words = new Uint16Array((await stream.copyOut(out.address, out.bytes)).slice().buffer);
  expect(machine.findings).toEqual([]);
  for (let row = 0; row < T.rows; row++)
    for (let column = 0; column < T.columns; column++)
      expect(words[offsetInTile(T, row, column) / 2]).toBe(row * 256 + column);
  expect(words.at(-1)).toBe(11 * 256 + 5);
});

test('an element outside its tile is a finding', async () => {
  const T = tile('u16', [8, 64], { swizzle: 128 });
  const wild = kernel({ name: 'wild', params: { row: 'u32' }, using: { T } }, (g, { row }, { T }) => {
    const tiles = g.shared(T, 2);
    g.store(tiles.element(row, 1), 7);
  });
  const { machine, ranks } = machineOf({ ranks: 1, mode: 'checked' });
  const [{ device, stream }] = ranks as [(typeof ranks)[0]];
  const launcher = (await device.load(wild.ir())).launcher({ grid: 1, block: 1, rank: 0 });
  launcher.set('row', 8);
  launcher.launch(stream);
  await stream.synchronize();
  expect(machine.findings).toMatchObject([
    { kind: 'out-of-bounds', location: 'u16 8×64, swizzle 128[row 8 of 8][column 1]' },
  ]);
});

const Wide = tile('bf16', [128, 64], { swizzle: 128 });

test('a tensor keeps its name under another', () => {
  const named = kernel({ name: 'named', params: { tensor: tensorMap(Wide) } }, (g, { tensor }) => {
    const other = tensor;
    g.tensor.prefetch(other);
  });
  expect(printCuda(named.ir())).toContain('tensor_prefetch(tensor);');
});

const Other = tile('bf16', [64, 64], { swizzle: 128 });
const Narrow = tile('bf16', [64, 32], { swizzle: 64 });
const Bytes = tile('e4m3', [64, 128], { swizzle: 128 });
const Plain = tile('bf16', [64, 64], { swizzle: 0 });

test.each([
  ['wide.element(128, 0)', /row of the tile bf16 128×64, swizzle 128 is 128; it must be from 0 to 127/],
  ['wide.rows(4, 64)', /multiples of 8/],
  ['wide.rows(72, 64)', /rows 72 to 135 are not all of the 128/],
  ['wide.rows(u, u)', /the number of rows must be a constant/],
  ['wide.row(0)', /has no member row.*it has at, element, rows, as/],
  ['g.load(wide.at(0))', /`wide\.at\(0\)` is a tile; write \.element/],
  [
    'g.tensor.load(other, tensor, [0, 0], full)',
    /boxes of this tensor are bf16 128×64.*but the tile is bf16 64×64/,
  ],
  ['g.tensor.load(wide, tensor, [0], full)', /must be 2 coordinates, \[row, column\]/],
  ['g.tensor.load(wide, tensor, [0, f], full)', /a coordinate is f32; it must be u32 or i32/],
  [
    'g.tensor.load(wide.as("bf16"), tensor, [0, 0], full)',
    /argument 1 of g\.tensor\.load must be a tile, but it is shared<bf16>/,
  ],
  ['g.tensor.store(out, [0, 0], wide)', /argument 1 of g\.tensor\.store must be a tensorMap parameter/],
  [
    'g.wgmma.multiply(sums, wide, other, true)',
    /multiplies 64 rows, but a has 128; take \.rows\(first, 64\)/,
  ],
  ['g.wgmma.multiply(sums, other, wide, true)', /the sums of 128 columns are 64 registers a thread, not 32/],
  ['g.wgmma.multiply(sums, other, narrow, true)', /equally wide/],
  ['g.wgmma.multiply(sums, other, bytes, true)', /both bf16 or both e4m3, not bf16 and e4m3/],
  ['g.wgmma.multiply(sums, plain, plain, true)', /use a tile with a swizzle/],
  ['g.wgmma.multiply(wrong, other, other, true)', /must be registers of f32/],
  ['g.wgmma.multiplyHeld(sums, wrong, other, true)', /as wide as b are 16 registers a thread, not 32/],
  ['g.wgmma.multiplyHeld(sums, wrong, bytes, true)', /registers hold pairs of bf16, so b is bf16, not e4m3/],
  ['g.wgmma.multiplyHeld(sums, wrong, plain, true)', /use a tile with a swizzle/],
  ['let t = tensor', /the tensor tensor is used as a run-time value/],
  ['g.tensor.prefetch(u > 1 ? tensor : tensor)', /the tensor tensor is used as a run-time value/],
  ['g.group.takeRegisters(100)', /100 registers; it must be a multiple of 8/],
])('%s is refused', (text, message) => {
  const body = `(g, { tensor, out, u, f }, { Wide, Other, Narrow, Bytes, Plain }) => {
    const wide = g.shared(Wide, 2), other = g.shared(Other), narrow = g.shared(Narrow), bytes = g.shared(Bytes);
    const plain = g.shared(Plain), full = g.shared('u64', 1);
    const sums = g.registers('f32', 32), wrong = g.registers('u32', 32);
    ${text};
  }`;
  const made = kernel(
    {
      name: 'wrong',
      params: { tensor: tensorMap(Wide), out: pointer('bf16'), u: 'u32', f: 'f32' },
      using: { Wide, Other, Narrow, Bytes, Plain },
    },
    new Function(`return ${body}`)(),
  );
  expect(() => made.ir()).toThrow(KernelError);
  expect(() => made.ir()).toThrow(message);
});
