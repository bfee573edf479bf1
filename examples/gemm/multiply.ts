/** What the host does for a GEMM of docs/gemm.md, whichever step it is: c = a · bᵀ, all three of bf16 and row after row. */
import type { Device, Launcher } from 'heddle';
import type { Kernel } from 'heddle/lang';

/** a is m × k, b is n × k, c is m × n. */
export interface Sizes {
  readonly m: number;
  readonly n: number;
  readonly k: number;
}

/** A kernel with parameters `a`, `b`, `c`, `m`, `n` and `k`, and what its launches look like. */
export interface Gemm {
  readonly kernel: Kernel;
  readonly threads: number;
  /** What a block makes of c at a time, and how much of a row it takes in one step. */
  readonly tile: { readonly rows: number; readonly columns: number; readonly depth: number };
  /** Whether sizes must be multiples of the tile's. */
  readonly whole: boolean;
  /** Parameters that are tensor maps; the others are pointers. */
  readonly maps: readonly ('a' | 'b' | 'c')[];
  /** Blocks stay and make tile after tile; otherwise each makes one. */
  readonly persistent: boolean;
}

/** Ready to launch; a, b and c are addresses on the device. */
export async function prepare(
  device: Device,
  { kernel, threads, tile, whole, maps, persistent }: Gemm,
  { a, b, c, m, n, k }: Sizes & Readonly<Record<'a' | 'b' | 'c', number>>,
): Promise<Launcher> {
  if (whole && (m % tile.rows !== 0 || n % tile.columns !== 0 || k % tile.depth !== 0))
    throw new RangeError(
      `${m} × ${n} × ${k} are not multiples of ${tile.rows} × ${tile.columns} × ${tile.depth}`,
    );
  const tiles = Math.ceil(m / tile.rows) * Math.ceil(n / tile.columns);
  const grid = persistent ? Math.min(tiles, device.multiprocessors) : tiles;
  const launcher = (await device.load(kernel.ir())).launcher({ grid, block: threads, rank: 0 });
  const matrices = { a: [a, m, k], b: [b, n, k], c: [c, m, n] } as const;
  for (const name of ['a', 'b', 'c'] as const) {
    const [address, ...extents] = matrices[name];
    if (maps.includes(name)) launcher.setTensor(name, { address, extents });
    else launcher.set(name, address);
  }
  for (const [name, value] of Object.entries({ m, n, k })) launcher.set(name, value);
  return launcher;
}
