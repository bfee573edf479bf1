/**
 * Boxes of tensors, which the copy engine (TMA) brings to tiles in shared memory and back. It knows the tensor from a map that
 * the host has made: what lies outside the tensor reads as zeros, and is not written.
 */
import type { Expr } from '../expression.js';
import type { i32, Pointer, TensorMap, Tiles, u32 } from '../language.js';
import { showTile } from '../tile.js';
import type { Tile, TileName } from '../types.js';
import { coordinates, map, operation, pointerIn, tiles, value } from './operation.js';
import { calls } from './parts.js';

/** The first element of a box, the outermost dimension first. */
type At<R> = R extends 3
  ? readonly [matrix: u32 | i32, row: u32 | i32, column: u32 | i32]
  : readonly [row: u32 | i32, column: u32 | i32];

/** The operands of an instruction for so many coordinates, which it wants innermost first. */
function indices(rank: number, first: number): string {
  return Array.from({ length: rank }, (_, i) => `%${first + rank - 1 - i}`).join(', ');
}
const parameters = (rank: number): string => Array.from({ length: rank }, (_, i) => `u32 i${i}`).join(', ');
const operandsOf = (rank: number): string => Array.from({ length: rank }, (_, i) => `"r"(i${i})`).join(', ');

const load = (
  rank: number,
): string => `DEVICE void tensor_load_${rank}d(void* to, const HeddleTensorMap& map, ${parameters(rank)}, u64* barrier) {
  asm volatile("cp.async.bulk.tensor.${rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {${indices(rank, 3)}}], [%2];"
               :
               : "r"(shared_address(to)), "l"(&map), "r"(shared_address(barrier)), ${operandsOf(rank)}
               : "memory");
}`;

const multicast = (
  rank: number,
): string => `DEVICE void tensor_multicast_${rank}d(void* to, const HeddleTensorMap& map, ${parameters(rank)}, u64* barrier,
                                        u32 blocks) {
  asm volatile("cp.async.bulk.tensor.${rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {${indices(rank, 4)}}], [%2], %3;"
               :
               : "r"(shared_address(to)), "l"(&map), "r"(shared_address(barrier)), "h"(u16(blocks)), ${operandsOf(rank)}
               : "memory");
}`;

const store = (
  rank: number,
): string => `DEVICE void tensor_store_${rank}d(const HeddleTensorMap& map, ${parameters(rank)}, const void* from) {
  asm volatile("cp.async.bulk.tensor.${rank}d.global.shared::cta.tile.bulk_group [%0, {${indices(rank, 2)}}], [%1];"
               :
               : "l"(&map), "r"(shared_address(from)), ${operandsOf(rank)}
               : "memory");
}`;

/** The error where a tile is not one of the boxes that the tensor map was made for. */
function differ(of: Expr, { type }: Expr): string | undefined {
  const tile = tileOf(of);
  if (type.kind !== 'tensorMap' || showTile(type.tile) === showTile(tile)) return undefined;
  return `boxes of this tensor are ${showTile(type.tile)}, but the tile is ${showTile(tile)}`;
}

export function tileOf({ type }: Expr): Tile {
  if (type.kind === 'pointer' && type.tile !== undefined) return type.tile;
  throw new Error(`${type.kind} is no pointer to tiles`);
}

export const tensors = {
  tensor: {
    /** A box to a tile; its bytes complete on the mbarrier. */
    load: operation({
      signature:
        calls<
          <T extends TileName, R extends 2 | 3>(
            to: Tiles<T>,
            map: TensorMap<T, R>,
            at: At<R>,
            mbarrier: Pointer<'u64'>,
          ) => void
        >(),
      takes: { to: tiles, map, at: coordinates, barrier: pointerIn('shared', 'u64') },
      cuda: (effect, { call }) => call(load(effect.at.length), effect),
      refuses: ({ to, map }) => differ(to, map),
      only: 'hopper and later',
      simulate: ({ to, map, at, barrier }, machine) =>
        machine.call('bulk.loadBox', to, map, at, barrier, machine.site),
    }),
    /**
     * A box to the tiles that lie, in several blocks of the cluster, where `to` does here; bit r of `blocks`: block r of the
     * cluster. In each, its bytes complete on the mbarrier that lies where `mbarrier` does.
     */
    multicast: operation({
      signature:
        calls<
          <T extends TileName, R extends 2 | 3>(
            to: Tiles<T>,
            map: TensorMap<T, R>,
            at: At<R>,
            mbarrier: Pointer<'u64'>,
            blocks: u32,
          ) => void
        >(),
      takes: { to: tiles, map, at: coordinates, barrier: pointerIn('shared', 'u64'), blocks: value('u32') },
      cuda: (effect, { call }) => call(multicast(effect.at.length), effect),
      refuses: ({ to, map }) => differ(to, map),
      only: 'hopper and later',
      simulate: ({ to, map, at, barrier, blocks }, machine) =>
        machine.call('multicastBox', to, map, at, barrier, blocks, machine.site),
    }),
    /** A tile to a box, as part of the thread's bulk group: `g.bulk.commit` and `.wait` know when it is done. */
    store: operation({
      signature:
        calls<
          <T extends TileName, R extends 2 | 3>(map: TensorMap<T, R>, at: At<R>, from: Tiles<T>) => void
        >(),
      takes: { map, at: coordinates, from: tiles },
      cuda: (effect, { call }) => call(store(effect.at.length), effect),
      refuses: ({ from, map }) => differ(from, map),
      only: 'hopper and later',
      simulate: ({ map, at, from }, machine) => machine.call('bulk.postBox', map, at, from, machine.site),
    }),
    /** Brings the map to where the copy engine looks for it. It is no access, and only saves time. */
    prefetch: operation({
      signature: calls<<T extends TileName, R extends 2 | 3>(map: TensorMap<T, R>) => void>(),
      takes: { map },
      cuda: `DEVICE void tensor_prefetch(const HeddleTensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}`,
      only: 'hopper and later',
      simulate: () => {},
    }),
  },
};
