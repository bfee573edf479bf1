/**
 * Operations that blocks of a cluster do together. A kernel's header says how many blocks form one; those of cluster c are blocks c · n to
 * c · n + n − 1 of the grid, so a block's rank in its cluster is `g.blockIdx.x % n`.
 */
import type { MemoryName, Pointer, u32, ValueOf } from '../language.js';
import { like, operation, pointerIn, value } from './operation.js';
import { calls } from './parts.js';
import { accessed, load, store } from './ptx.js';

const arrives = { kind: 'update', order: 'release', scope: 'gpu', bytes: 8 } as const;

const weak = { order: 'weak', scope: 'gpu' } as const;

export const clusters = {
  cluster: {
    /** All threads of the cluster's blocks meet. Before it, others may not have begun; behind the last, they may have ended. */
    barrier: operation({
      cuda: `DEVICE void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}`,
      only: 'hopper and later',
      simulate: (_, machine) => machine.pause('cluster'),
      removable: true,
    }),
    /** Arrives at the mbarrier of block `rank` of the cluster that has the same place in shared memory as `barrier` has in this block. */
    arrive: operation({
      signature: calls<(barrier: Pointer<'u64'>, rank: u32) => void>(),
      takes: { barrier: pointerIn('shared', 'u64'), rank: value('u32') },
      cuda: `DEVICE void cluster_arrive(u64* barrier, u32 rank) {
  asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
               "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }"
               :
               : "r"(shared_address(barrier)), "r"(rank)
               : "memory");
}`,
      only: 'hopper and later',
      simulate: ({ barrier, rank }, machine) => machine.call('clusterArrive', arrives, barrier, rank),
      removable: true,
    }),
    /** A weak load of what block `rank` of the cluster has at the place in shared memory that `pointer` names in this block. */
    load: operation({
      signature: calls<<T extends MemoryName>(pointer: Pointer<T>, rank: u32) => ValueOf[T]>(),
      takes: { pointer: pointerIn('shared'), rank: value('u32') },
      returns: like('pointer'),
      named: 'loaded',
      cuda: (effect, { call }) =>
        call(load({ ...accessed({ ...effect, ...weak }), space: 'cluster' }), effect),
      only: 'hopper and later',
      simulate: ({ pointer, rank }, machine) =>
        machine.elsewhere('inBlock', pointer, [rank, machine.site], () =>
          machine.load(pointer, 'weak', 'gpu'),
        ),
      unnoticed: () => true,
    }),
    /** A weak store there. */
    store: operation({
      signature: calls<<T extends MemoryName>(pointer: Pointer<T>, value: ValueOf[T], rank: u32) => void>(),
      takes: { pointer: pointerIn('shared'), value: like('pointer'), rank: value('u32') },
      cuda: (effect, { call }) =>
        call(store({ ...accessed({ ...effect, ...weak }), space: 'cluster' }), effect),
      only: 'hopper and later',
      simulate: ({ pointer, value, rank }, machine) =>
        machine.elsewhere('inBlock', pointer, [rank, machine.site], () =>
          machine.store(pointer, value, 'weak', 'gpu'),
        ),
    }),
  },
};
