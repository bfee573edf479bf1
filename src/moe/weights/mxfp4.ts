/** Rows of MXFP4, as gpt-oss is published, made bf16 on the GPU. */
import { callSite, type Device, type Stream } from '../../gpu/index.js';
import { kernel, pointer } from '../../lang/index.js';
import { mxfp4Block } from '../layer/index.js';

/**
 * A thread takes a block. The lower half of a byte comes first. A bf16 holds every e2m1 times its scale exactly, but those beyond the largest
 * bf16 become infinities.
 *
 * An e2m1 has a sign, two bits of exponent and one of mantissa. In the places of an f32's last bits of exponent and its first of mantissa they
 * make the same number divided by 2^126, subnormal ones too.
 */
export const mxfp4ToBf16Kernel = (threads: number) =>
  kernel(
    {
      name: 'mxfp4_to_bf16',
      maxThreads: threads,
      params: {
        /** [matrix][row][block]: 16 bytes, and their scale. */
        blocks: pointer('v16'),
        scales: pointer('u8'),
        /** [matrix][row][element] */
        to: pointer('v16'),
        /** Units of all matrices. */
        units: 'u32',
        rowBlocks: 'u32',
        /** The rows of a matrix, and how many kinds of rows come in turns. Rows of a kind go out behind each other. */
        rows: 'u32',
        turns: 'u32',
      },
      using: { UNSHIFT: 2 ** 126 },
    },
    (g, { blocks, scales, to, units, rowBlocks, rows, turns }, u) => {
      for (
        let unit = g.blockIdx.x * g.blockDim.x + g.threadIdx.x;
        unit < units;
        unit += g.gridDim.x * g.blockDim.x
      ) {
        const block = g.load(blocks.at(unit), { cache: 'stream' });
        const exponent = g.load(scales.at(unit));
        // 0 is 2^−127, which is subnormal; 255 is NaN.
        const scale = g.bits('f32', (exponent << 23) | g.select(exponent % 255 === 0, 1 << 22, g.u32(0)));
        const row = unit / rowBlocks;
        const within = row % rows;
        const place = row - within + (within % turns) * (rows / turns) + within / turns;
        const there = to.at((place * rowBlocks + (unit % rowBlocks)) * 4);
        for (const word of g.unroll(4)) {
          const some = g.lane(block, 'u32', word);
          const made = g.registers('f32', 8);
          for (const e of g.unroll(8)) {
            const bits = some >>> (4 * e);
            made[e] = g.bits('f32', ((bits & 8) << 28) | ((bits & 7) << 22)) * u.UNSHIFT * scale;
          }
          g.store(there.at(word), g.pack('bf16', made));
        }
      }
    },
  );

/** One launch for all matrices of a process. */
export const mxfp4ToBf16 = {
  sim: { kernel: mxfp4ToBf16Kernel(64), blocks: 2, threads: 64 },
  cuda: { kernel: mxfp4ToBf16Kernel(256), blocks: 1056, threads: 256 },
} as const;

/** Matrices of MXFP4 one behind the other. */
export interface Mxfp4Rows {
  /** Where all of them lie on the GPU. */
  readonly blocks: number;
  readonly scales: number;
  readonly to: number;
  readonly matrices: number;
  /** The rows of a matrix, and the elements of a row: a multiple of 32. */
  readonly rows: number;
  readonly columns: number;
  /** Rows of so many kinds come in turns: those of a kind go out behind each other. */
  readonly turns: 1 | 2;
}

/** Prepares the launch; returns a function that enqueues it. */
export async function widenMxfp4(device: Device, of: Mxfp4Rows): Promise<(stream: Stream) => void> {
  const { kernel, blocks: grid, threads } = mxfp4ToBf16[device.kind];
  const { set, launch } = await callSite(device, kernel, {
    grid,
    block: threads,
    programmatic: false,
    rank: 0,
  });
  const rowBlocks = of.columns / mxfp4Block;
  set.blocks(of.blocks);
  set.scales(of.scales);
  set.to(of.to);
  set.units(of.matrices * of.rows * rowBlocks);
  set.rowBlocks(rowBlocks);
  set.rows(of.rows);
  set.turns(of.turns);
  return launch;
}
