/** Kernels of tiles on a device, simulated or not, beside plain references. */
import {
  bf16ToF32,
  type Device,
  e4m3ToF32,
  f32ToBf16,
  f32ToE4m3,
  type Stream,
} from '../../../src/gpu/index.js';
import { type Kernel, kernel, pipeline, pointer, tensorMap, tile } from '../../../src/lang/index.js';
import { type GemmShape, gemmKernel } from './gemm.js';

export interface GemmCase extends GemmShape {
  readonly m: number;
  readonly n: number;
  readonly k: number;
}

/** Whole tiles and cut ones, of every swizzle and type; steps that go round the ring, and fewer than it has stages. */
export const gemmCases: readonly GemmCase[] = [
  ...(['bf16', 'e4m3'] as const).flatMap((type) =>
    ([128, 64, 32] as const).flatMap((swizzle): GemmCase[] => [
      { type, swizzle, rows: 64, columns: 8, stages: 2, m: 64, n: 8, k: 128 },
      { type, swizzle, rows: 128, columns: 40, stages: 3, m: 200, n: 72, k: 176 },
    ]),
  ),
  { type: 'bf16', rows: 128, columns: 256, stages: 3, m: 128, n: 256, k: 64 },
  { type: 'e4m3', rows: 192, columns: 128, stages: 4, m: 192, n: 128, k: 256 },
];

export const gemmName = ({ type, swizzle = 128, rows, columns, m, n, k }: GemmCase): string =>
  `${type}, swizzle ${swizzle}, ${rows} × ${columns} of ${m} × ${n} × ${k}`;

/** Whole numbers whose products add up exactly in whatever order. */
export const wholeNumbers = (count: number, salt: number): Float32Array =>
  Float32Array.from({ length: count }, (_, i) => ((i * 7 + salt * 13 + (i >> 5)) % 15) - 7);

const formats = {
  bf16: { pack: (x: Float32Array) => new Uint8Array(Uint16Array.from(x, f32ToBf16).buffer), open: bf16ToF32 },
  e4m3: { pack: (x: Float32Array) => Uint8Array.from(x, f32ToE4m3), open: e4m3ToF32 },
};

/** What came, and what had to come. */
export interface Outcome {
  readonly result: Float32Array;
  readonly expected: Float32Array;
}

/** Multiplies whole numbers. */
export async function multiply(device: Device, { m, n, k, ...shape }: GemmCase): Promise<Outcome> {
  const { kernel, block } = gemmKernel(shape);
  const stream = device.createStream();
  const [x, y] = [wholeNumbers(m * k, 1), wholeNumbers(n * k, 2)];
  const { pack } = formats[shape.type];
  const [a, b] = [place(device, stream, pack(x)), place(device, stream, pack(y))];
  const c = device.allocate(m * n * 4, 'c');
  const grid = Math.ceil(m / shape.rows) * Math.ceil(n / shape.columns);
  const launcher = (await device.load(kernel.ir())).launcher({ grid, block, rank: 0 });
  launcher.setTensor('a', { address: a, extents: [m, k] });
  launcher.setTensor('b', { address: b, extents: [n, k] });
  for (const [name, value] of Object.entries({ c: c.address, m, n, k })) launcher.set(name, value);
  launcher.launch(stream);
  const result = new Float32Array((await stream.copyOut(c.address, c.bytes)).slice().buffer);
  const expected = new Float32Array(m * n);
  for (let i = 0; i < m; i++)
    for (let j = 0; j < n; j++)
      for (let l = 0; l < k; l++) expected[i * n + j]! += x[i * k + l]! * y[j * k + l]!;
  return { result, expected };
}

function place(device: Device, stream: Stream, bytes: Uint8Array): number {
  const { address } = device.allocate(bytes.byteLength, 'operand');
  stream.copyIn(address, bytes);
  return address;
}

/** Where a box is taken from and put to, each the outermost dimension first. */
export interface BoxCase {
  readonly swizzle: 0 | 32 | 64 | 128;
  readonly extents: readonly number[];
  readonly from: readonly number[];
  readonly to: readonly number[];
}

export const boxCases: readonly BoxCase[] = ([0, 32, 64, 128] as const).flatMap((swizzle): BoxCase[] => {
  const columns = swizzle === 0 ? 24 : swizzle / 2;
  return [
    { swizzle, extents: [40, 80], from: [3, 8], to: [9, 16] },
    { swizzle, extents: [40, 80], from: [-5, -8], to: [30, 80 - columns + 8] },
    { swizzle, extents: [40, 72], from: [36, 64], to: [33, 64] },
    { swizzle, extents: [3, 24, 80], from: [1, 20, -8], to: [2, 20, 72] },
    { swizzle, extents: [3, 24, 80], from: [3, 0, 0], to: [0, 0, 0] },
  ];
});

export const boxName = ({ swizzle, extents, from, to }: BoxCase): string =>
  `swizzle ${swizzle}, from ${from} to ${to} of ${extents.join(' × ')}`;

const boxRows = 16;
const boxTile = (swizzle: BoxCase['swizzle']) =>
  tile('bf16', [boxRows, swizzle === 0 ? 24 : swizzle / 2], { swizzle });

/** Takes a box, adds 1 to each element where it lies, and puts it elsewhere. */
export function boxKernel(swizzle: BoxCase['swizzle'], rank: 2 | 3): Kernel {
  const T = boxTile(swizzle);
  const indices = { i0: 'i32', i1: 'i32', i2: 'i32', o0: 'i32', o1: 'i32', o2: 'i32' } as const;
  return kernel(
    {
      name: `box_${swizzle}_${rank}d`,
      params: { source: tensorMap(T, rank), target: tensorMap(T, rank), ...indices },
      using: { T },
      maxThreads: 32,
    },
    (g, { source, target, i0, i1, i2, o0, o1, o2 }, { T }) => {
      const boxes = g.shared(T, 2);
      const box = boxes.at(1);
      const full = g.shared('u64', 1);
      if (g.threadIdx.x === 0) {
        g.tensor.prefetch(source);
        g.mbarrier.init(full, 1);
      }
      g.barrier();
      if (g.threadIdx.x === 0) {
        g.mbarrier.expect(full, T.bytes);
        if (source.rank === 2) g.tensor.load(box, source, [i1, i2], full);
        else g.tensor.load(box, source, [i0, i1, i2], full);
      }
      g.mbarrier.await(full, 0);
      for (let i = g.threadIdx.x; i < T.rows * T.columns; i += g.blockDim.x) {
        const element = box.element(i / T.columns, i % T.columns);
        g.store(element, g.bf16(g.f32(g.load(element)) + 1));
      }
      g.barrier();
      if (g.threadIdx.x === 0) {
        g.proxyFence('shared');
        if (target.rank === 2) g.tensor.store(target, [o1, o2], box);
        else g.tensor.store(target, [o0, o1, o2], box);
        g.bulk.commit();
        g.bulk.waitReads(0);
      }
    },
  );
}

/** Moves a box into a tensor of 99s. */
export async function moveBox(device: Device, { swizzle, extents, from, to }: BoxCase): Promise<Outcome> {
  const rank = extents.length === 2 ? 2 : 3;
  const stream = device.createStream();
  const count = extents.reduce((product, extent) => product * extent);
  const values = Float32Array.from({ length: count }, (_, i) => i % 200);
  const expected = new Float32Array(count).fill(99);
  const [source, target] = [values, expected].map((x) => place(device, stream, formats.bf16.pack(x)));
  const launcher = (await device.load(boxKernel(swizzle, rank).ir())).launcher({
    grid: 1,
    block: 32,
    rank: 0,
  });
  launcher.setTensor('source', { address: source!, extents });
  launcher.setTensor('target', { address: target!, extents });
  const three = (of: readonly number[]) => (rank === 3 ? of : [0, ...of]);
  three(from).forEach((index, i) => {
    launcher.set(`i${i}`, index);
  });
  three(to).forEach((index, i) => {
    launcher.set(`o${i}`, index);
  });
  launcher.launch(stream);
  const bits = new Uint16Array((await stream.copyOut(target!, 2 * count)).slice().buffer);
  const { columns } = boxTile(swizzle);
  const [matrices, rows, width] = three(extents).map((extent) => extent || 1) as [number, number, number];
  const at = ([matrix, row, column]: readonly number[], r: number, c: number): number | null => {
    const [y, x] = [row! + r, column! + c];
    const inside = matrix! >= 0 && matrix! < matrices && y >= 0 && y < rows && x >= 0 && x < width;
    return inside ? (matrix! * rows + y) * width + x : null;
  };
  for (let r = 0; r < boxRows; r++) {
    for (let c = 0; c < columns; c++) {
      const [read, written] = [at(three(from), r, c), at(three(to), r, c)];
      if (written !== null) expected[written] = (read === null ? 0 : values[read]!) + 1;
    }
  }
  return { result: Float32Array.from(bits, bf16ToF32), expected };
}

/** Column sums of a tensor by two blocks of a cluster: each brings half of the rows to both of them. */
export function clusterKernel() {
  const T = tile('u32', [8, 32], { swizzle: 128 });
  return kernel(
    {
      name: 'shared_boxes',
      params: { source: tensorMap(T), out: pointer('u32'), steps: 'u32' },
      // Of each block the consumers say when a stage is empty.
      using: { T, ring: pipeline({ stages: 2, empties: 2 }) },
      maxThreads: 64,
      cluster: 2,
    },
    (g, { source, out, steps }, { T, ring }) => {
      const boxes = g.shared(T, 2 * ring.stages);
      const full = g.shared('u64', ring.stages);
      const empty = g.shared('u64', ring.stages);
      const gates = { full, empty };
      const rank = g.blockIdx.x % 2;
      if (g.threadIdx.x === 0) ring.start({ gates });
      g.cluster.barrier();
      if (g.warpId === 0) {
        if (g.laneId === 0) {
          for (let step = g.u32(0); step < steps; step += 1) {
            const stage = ring.acquire({ gates, step });
            // Threads have read what the copies overwrite.
            g.proxyFence('shared');
            g.mbarrier.expect(full.at(stage), 2 * T.bytes);
            const row = (2 * step + rank) * T.rows;
            g.tensor.multicast(boxes.at(2 * stage + rank), source, [row, 0], full.at(stage), 3);
          }
        }
      } else {
        let sum = g.u32(0);
        for (let step = g.u32(0); step < steps; step += 1) {
          const stage = ring.wait({ gates, step });
          for (const half of g.unroll(2))
            for (const row of g.unroll(T.rows))
              sum += g.load(boxes.at(2 * stage + half).element(row, g.laneId));
          g.warp.barrier();
          // The copies of both blocks come here: both have to know.
          if (g.laneId < 2) g.cluster.arrive(empty.at(stage), g.laneId);
        }
        g.store(out.at(g.blockIdx.x * 32 + g.laneId), sum);
      }
      g.cluster.barrier();
    },
  );
}

export async function shareBoxes(device: Device): Promise<Outcome> {
  const stream = device.createStream();
  const [steps, grid] = [5, 4];
  const values = Uint32Array.from({ length: steps * 16 * 32 }, (_, i) => (i * 7919) % 1000);
  const source = place(device, stream, new Uint8Array(values.buffer));
  const out = device.allocate(grid * 32 * 4, 'out');
  const launcher = (await device.load(clusterKernel().ir())).launcher({ grid, block: 64, rank: 0 });
  launcher.setTensor('source', { address: source, extents: [steps * 16, 32] });
  launcher.set('out', out.address);
  launcher.set('steps', steps);
  launcher.launch(stream);
  const words = new Uint32Array((await stream.copyOut(out.address, out.bytes)).slice().buffer);
  const expected = new Float32Array(grid * 32);
  for (const [i, value] of values.entries())
    for (let block = 0; block < grid; block++) expected[block * 32 + (i % 32)]! += value;
  return { result: Float32Array.from(words), expected };
}
