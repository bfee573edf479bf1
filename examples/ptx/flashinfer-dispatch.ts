/**
 * How FlashInfer's `moeA2ADispatchKernel` is launched, for the race detector. Two ranks send each other rows of a byte by routes to 8
 * of 16 experts.
 *
 * FlashInfer has the kernel in one file with 740 other instances. The part in front of the launches, with one instance behind it,
 * compiles in seconds:
 *
 *     cd flashinfer
 *     { sed '/^void moe_a2a_prepare_dispatch_launch/,$d' csrc/nv_internal/tensorrt_llm/kernels/communicationKernels/moeAlltoAllKernels.cu
 *       echo 'template __global__ void moeA2ADispatchKernel<8, false, false, false>(int32_t const*, DispatchKernelPointers,
 *             int, int, int, int, int, int, int, bool); }'; } > dispatch.cu
 *     nvcc -ptx -arch=sm_90 -std=c++17 -lineinfo --expt-relaxed-constexpr -Iinclude -Icsrc/nv_internal -Icsrc/nv_internal/include dispatch.cu
 *     npx heddle check --ptx dispatch.ptx --host flashinfer-dispatch.ts --seeds 20
 */
import { everyRank, type PtxHost, struct, WrongResult } from 'heddle/check';

const [ranks, tokens, bytes] = [2, 3, 128];

const Payloads = struct({ of: ['pointer', 6] });
const DispatchKernelPointers = struct({
  src_data_ptrs: Payloads,
  recv_buffers: [Payloads, 64],
  payload_bytes_per_token: ['i32', 6],
  completion_flags: ['pointer', 64],
  flag_val: 'pointer',
  send_counters: 'pointer',
  recv_counters: ['pointer', 64],
  local_token_counter: 'pointer',
  topk_target_ranks: 'pointer',
  topk_send_indices: 'pointer',
  eplb_local_stats: 'pointer',
  eplb_gathered_stats: ['pointer', 64],
  active_rank_mask: ['u64', 1],
});

const host: PtxHost = (kernels) => {
  const prepare = kernels.kernel('moeA2APrepareDispatchKernel', {
    params: ['sent', 'done', 'ranks', 'flag', 'pdl'],
  });
  const dispatch = kernels.kernel('moeA2ADispatchKernel', {
    params: ['ids', 'ptrs', 'payloads', 'most', 'tokens', 'rank', 'ranks', 'experts', 'stats', 'pdl'],
    sharedBytes: 64,
  });
  return [
    everyRank('two ranks', { ranks }, async (host) => {
      const { rank } = host;
      const flags = await host.windows('flags', 'u32', ranks);
      const counts = await host.windows('counts', 'i32', ranks);
      const rows = await host.windows('rows', 'u8', ranks * tokens * bytes);
      const zeros = (name: string, count: number) => host.buffer(name, 'i32', new Array(count).fill(0));
      const experts = Array.from({ length: 8 * tokens }, (_, i) => (5 * i + rank) % 16);
      const ids = host.buffer('ids', 'i32', experts);
      const own = host.buffer('own rows', 'u8', new Array(tokens * bytes).fill(rank + 1));
      const [sent, done, flag] = [zeros('sent', ranks), zeros('done', 1), zeros('flag', 1)];
      const ptrs = DispatchKernelPointers.of({
        src_data_ptrs: { of: [own] },
        recv_buffers: rows.map((at) => ({ of: [at] })),
        payload_bytes_per_token: [bytes],
        completion_flags: flags,
        flag_val: flag,
        send_counters: sent,
        recv_counters: counts,
        local_token_counter: done,
        topk_target_ranks: zeros('targets', 8 * tokens),
        topk_send_indices: zeros('places', 8 * tokens),
      });
      await host.meet();
      host.launch(prepare, { grid: 1, block: ranks }, { sent, done, ranks, flag, pdl: 0 });
      const numbers = { payloads: 1, most: tokens, tokens, rank, ranks, experts: 16, stats: 0, pdl: 0 };
      host.launch(dispatch, { grid: tokens, block: 64 }, { ids, ptrs, ...numbers });
      const got = await host.read(rows[rank]!);
      if (got.some((byte, i) => byte !== Math.floor(i / (tokens * bytes)) + 1))
        throw new WrongResult('a row is missing');
    }),
  ];
};
export default host;
