/**
 * Operations that the threads of a block do together, and with the copy engine.
 *
 * Bulk copies run in the async proxy, a separate path to memory. Accesses of the two paths are ordered only where a
 * proxy fence (`g.proxyFence`) lies between them. In the other direction the completion (complete_tx of the mbarrier,
 * wait_group) is the fence, so waiting for it is enough.
 */
import type { bool, Pointer, u32 } from '../language.js';
import type { SimRequests } from './machine.js';
import { count, misgivenBy, operation, optional, pointerIn, value } from './operation.js';
import { calls } from './parts.js';

const global = pointerIn('global', 'v16');
const shared = pointerIn('shared', 'v16');
/** mbarriers are u64 elements of shared memory. */
const barrier = pointerIn('shared', 'u64');
/** More than an hour: as good as none, for what the copy engine or the block's own threads end. */
const noLimit = 0xffff_ffff;
const pending = count('the number of pending groups', 63);
/** The race detector's view of starting an mbarrier, and of coming to it. */
const initialises = { kind: 'write', order: 'weak', scope: 'cta', bytes: 8 } as const;
const arrives = { kind: 'update', order: 'release', scope: 'cta', bytes: 8 } as const;

/** A wait for groups of copies, of which a later one may stay unfinished. */
const groupWait = (name: string, instruction: string, engine: 'bulk' | 'async', readsOnly = false) => ({
  signature: calls<(pending: number) => void>(),
  takes: { pending },
  cuda: `template <int pending>
DEVICE void ${name}() {
  asm volatile("${instruction} %0;" ::"n"(pending) : "memory");
}`,
  simulate: ({ pending }: { readonly pending: number }, machine: SimRequests) =>
    machine.call(`${engine}.wait`, pending, readsOnly),
  removable: true as const,
});

/** Four warps, of which the first is a multiple of four, do so together; `count` is a multiple of 8 from 24 on. */
function registersOperation(direction: 'inc' | 'dec') {
  const takes = direction === 'inc';
  return operation({
    signature: calls<(count: number) => void>(),
    takes: { count: count('the number of registers', 256) },
    cuda: `template <int count>
DEVICE void ${takes ? 'take' : 'give'}_registers() {
  asm volatile("setmaxnreg.${direction}.sync.aligned.u32 %0;" ::"n"(count));
}`,
    refuses: ({ count }) =>
      count >= 24 && count % 8 === 0
        ? undefined
        : `${count} registers; it must be a multiple of 8, at least 24`,
    only: 'hopper and later',
    simulate: ({ count }, machine) => machine.check('keepRegisters', count, takes, machine.site),
  });
}

export const block = {
  /** All threads of the block meet; orders their accesses at block scope. Never under divergence. */
  barrier: operation({
    cuda: () => '__syncthreads()',
    simulate: (_, machine) => machine.pause('barrier'),
    removable: true,
  }),

  /** Groups: some warps of a block, which have a part of their own in it. */
  group: {
    /** The block's barrier `id` (1 to 15; 0 is `g.barrier`) for as many threads, a multiple of 32, as come to it. */
    barrier: operation({
      signature: calls<(id: u32, threads: u32) => void>(),
      takes: { id: value('u32'), threads: value('u32') },
      cuda: `DEVICE void group_barrier(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}`,
      refuses: ({ id, threads }) => {
        if (id.kind === 'const' && (Number(id.value) < 1 || Number(id.value) > 15))
          return `barrier ${id.value}; a group has one of 1 to 15`;
        if (threads.kind === 'const' && (Number(threads.value) < 32 || Number(threads.value) % 32 !== 0))
          return `${threads.value} threads; a group is of whole warps, so a multiple of 32`;
        return undefined;
      },
      simulate: ({ id, threads }, machine) =>
        machine.pause('group', 'joinGroup', id, threads, machine.site, 1),
      removable: true,
    }),
    /** A warp group takes more registers, `count` a thread: it waits until others of the block have given so many. */
    takeRegisters: registersOperation('inc'),
    /** A warp group keeps only `count` registers a thread; the others are the block's, for `takeRegisters`. */
    giveRegisters: registersOperation('dec'),
  },

  /** Bulk asynchronous copies by one thread (TMA); addresses and sizes are multiples of 16 bytes. */
  bulk: {
    load: operation({
      signature:
        calls<(to: Pointer<'v16'>, from: Pointer<'v16'>, bytes: u32, mbarrier: Pointer<'u64'>) => void>(),
      takes: { to: shared, from: global, bytes: value('u32'), barrier },
      cuda: `DEVICE void bulk_load(v16* to, const v16* from, u32 bytes, u64* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :
               : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}`,
      only: 'hopper and later',
      simulate: ({ to, from, bytes, barrier }, machine) =>
        machine.call('bulk.load', to, from, bytes, barrier, machine.site),
    }),
    store: operation({
      signature: calls<(to: Pointer<'v16'>, from: Pointer<'v16'>, bytes: u32) => void>(),
      takes: { to: global, from: shared, bytes: value('u32') },
      cuda: `DEVICE void bulk_store(v16* to, const v16* from, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               :
               : "l"(__cvta_generic_to_global(to)), "r"(shared_address(from)), "r"(bytes)
               : "memory");
}`,
      only: 'hopper and later',
      simulate: ({ to, from, bytes }, machine) => machine.call('bulk.post', to, from, bytes, machine.site),
    }),
    commit: operation({
      cuda: 'DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }',
      simulate: (_, machine) => machine.call('bulk.commit'),
      removable: true,
    }),
    /** Waits until at most `pending` groups of this thread are unfinished. The others are complete and visible to it. */
    wait: operation({
      ...groupWait('bulk_wait', 'cp.async.bulk.wait_group', 'bulk'),
      weaker: { op: 'bulk.waitReads', description: 'waits for reads only' },
    }),
    /** Waits until the sources of all but `pending` groups, in shared memory, may be overwritten. */
    waitReads: operation({
      ...groupWait('bulk_wait_reads', 'cp.async.bulk.wait_group.read', 'bulk', true),
    }),
  },

  /** Asynchronous copies of 16 bytes from global to shared memory, in groups. */
  async: {
    // By the path of ordinary accesses: nothing to fence.
    load: operation({
      signature: calls<(to: Pointer<'v16'>, from: Pointer<'v16'>) => void>(),
      takes: { to: shared, from: global },
      cuda: `DEVICE void async_load(v16* to, const v16* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
               :
               : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from))
               : "memory");
}`,
      simulate: ({ to, from }, machine) => machine.call('async.post', to, from, 16, machine.site),
    }),
    /** The loads of this thread since the last commit become a group. */
    commit: operation({
      cuda: 'DEVICE void async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }',
      simulate: (_, machine) => machine.call('async.commit'),
      removable: true,
    }),
    /** Waits until at most `pending` groups of this thread are unfinished. Other threads see what came behind a barrier. */
    wait: operation({
      ...groupWait('async_wait', 'cp.async.wait_group', 'async'),
      misgiven: [{ operand: 'pending', description: 'pending + 1', count: (was) => was + 1 }],
    }),
  },

  mbarrier: {
    // The fences make it known to the block's cluster and to the copy engine; other threads learn of it at a barrier. A kernel
    // could not fence for itself with less: an mbarrier is there for both, and is initialised once.
    init: operation({
      signature: calls<(barrier: Pointer<'u64'>, count: u32) => void>(),
      takes: { barrier, count: value('u32') },
      cuda: `DEVICE void mbarrier_init(u64* barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}`,
      only: 'hopper and later',
      simulate: ({ barrier, count }, machine) => machine.call('mbarrierInit', initialises, barrier, count),
      removable: true,
      misgiven: [misgivenBy('count', 1)],
    }),
    /** Arrives, and announces the bytes that copies will bring. */
    expect: operation({
      signature: calls<(barrier: Pointer<'u64'>, bytes: u32) => void>(),
      takes: { barrier, bytes: value('u32') },
      cuda: `DEVICE void mbarrier_expect(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}`,
      only: 'hopper and later',
      simulate: ({ barrier, bytes }, machine) => machine.call('mbarrierExpect', arrives, barrier, bytes),
      removable: true,
      // Bytes come in vectors.
      misgiven: [misgivenBy('bytes', 16), misgivenBy('bytes', -16)],
    }),
    arrive: operation({
      signature: calls<(barrier: Pointer<'u64'>) => void>(),
      takes: { barrier },
      cuda: `DEVICE void mbarrier_arrive(u64* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}`,
      simulate: ({ barrier }, machine) => machine.call('mbarrierExpect', arrives, barrier, 0),
      removable: true,
    }),
    /** Waits until the phase of that parity is over; false where a limit (microseconds) ran out before. */
    await: operation({
      signature: calls<(barrier: Pointer<'u64'>, parity: u32, options?: { readonly limit: u32 }) => bool>(),
      takes: { barrier, parity: value('u32') },
      options: { limit: optional('u32', noLimit) },
      returns: 'bool',
      named: 'over',
      cuda(effect, { prelude, args, call, inCluster }, used) {
        const { barrier, parity, limit } = effect;
        const endless = limit.kind === 'const' && limit.value === noLimit && !used;
        if (!endless) return call(mbarrierAwaitFor(inCluster), effect);
        return `${prelude.add(mbarrierAwait(inCluster))}(${args(barrier, parity)})`;
      },
      only: 'hopper and later',
      simulate: ({ barrier, parity, limit }, machine) => machine.awaitPhase(barrier, parity, limit),
      removable: true,
    }),
  },
};

/** Suspends the thread for a while in hardware; has acquire order at block scope by default. */
const tryWait = (
  inCluster: boolean,
) => `asm volatile("{ .reg .pred complete; mbarrier.try_wait.parity${inCluster ? '.acquire.cluster' : ''}.shared::cta.b64 complete, [%1], %2; "
                 "selp.u32 %0, 1, 0, complete; }"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");`;

const awaitName = (inCluster: boolean): string => `mbarrier_await${inCluster ? '_of_cluster' : ''}`;

const mbarrierAwait = (inCluster: boolean) => `DEVICE void ${awaitName(inCluster)}(u64* barrier, u32 parity) {
  u32 done = 0u;
  while (done == 0u) {
    ${tryWait(inCluster)}
  }
}`;

const mbarrierAwaitFor = (
  inCluster: boolean,
) => `DEVICE bool ${awaitName(inCluster)}_for(u64* barrier, u32 parity, u32 limit_us) {
  u64 start = 0u;
  for (u32 done = 0u;;) {
    ${tryWait(inCluster)}
    if (done != 0u) return true;
    if (limit_us == 0u || past_limit(start, limit_us)) return false;
  }
}`;
