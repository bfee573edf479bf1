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
import { type PtxHost, type SimMachine, WrongResult } from 'heddle/check';

const [ranks, tokens, bytes] = [2, 3, 128];
const [counts, rows] = [256, 512]; // in a window, behind the flags

const host: PtxHost = (kernels) => {
  const prepare = kernels.kernel('moeA2APrepareDispatchKernel', {
    params: ['sent', 'done', 'ranks', 'flag', 'pdl'],
  });
  const dispatch = kernels.kernel('moeA2ADispatchKernel', {
    params: ['ids', 'ptrs', 'payloads', 'most', 'tokens', 'rank', 'ranks', 'experts', 'stats', 'pdl'],
    sharedBytes: 64,
  });
  async function run(machine: SimMachine) {
    const all = Array.from({ length: ranks }, (_, rank) => machine.device(rank));
    const windows = all.map(
      (device) => device.allocateWindow(rows + ranks * tokens * bytes, 'window').address,
    );
    const starts = await Promise.all(
      all.map(async (device, rank) => {
        const stream = device.createStream();
        const buffer = (name: string, content: Uint8Array) => {
          const { address } = device.allocate(content.length, name);
          stream.copyIn(address, content);
          return address;
        };
        const zeros = (words: number) => new Uint8Array(4 * words);
        const experts = Int32Array.from({ length: 8 * tokens }, (_, i) => (5 * i + rank) % 16);
        const ids = buffer('ids', new Uint8Array(experts.buffer));
        const [sent, done, flag] = [
          buffer('sent', zeros(ranks)),
          buffer('done', zeros(1)),
          buffer('flag', zeros(1)),
        ];
        const ptrs = new DataView(new ArrayBuffer(4736)); // DispatchKernelPointers
        const put = (at: number, address: number) => ptrs.setBigUint64(at, BigInt(address), true);
        ptrs.setInt32(3120, bytes, true);
        const own = {
          0: buffer('rows', new Uint8Array(tokens * bytes).fill(rank + 1)),
          3656: flag,
          3664: sent,
          4184: done,
        };
        const routes = {
          4192: buffer('targets', zeros(8 * tokens)),
          4200: buffer('places', zeros(8 * tokens)),
        };
        for (const [at, address] of Object.entries({ ...own, ...routes })) put(Number(at), address);
        for (const [r, at] of windows.entries()) {
          put(48 + 48 * r, at + rows);
          put(3144 + 8 * r, at);
          put(3672 + 8 * r, at + counts);
        }
        const first = (await device.load(prepare)).launcher({ grid: 1, block: ranks, rank });
        for (const [name, value] of Object.entries({ sent, done, ranks, flag, pdl: 0 }))
          first.set(name, value);
        const second = (await device.load(dispatch)).launcher({ grid: tokens, block: 64, rank });
        second.setBytes('ptrs', new Uint8Array(ptrs.buffer));
        const numbers = { payloads: 1, most: tokens, tokens, rank, ranks, experts: 16, stats: 0, pdl: 0 };
        for (const [name, value] of Object.entries({ ids, ...numbers })) second.set(name, value);
        await stream.synchronize();
        return async () => {
          first.launch(stream);
          second.launch(stream);
          const got = await stream.copyOut(windows[rank]! + rows, ranks * tokens * bytes);
          if (got.some((byte, i) => byte !== Math.floor(i / (tokens * bytes)) + 1))
            throw new WrongResult('a row is missing');
        };
      }),
    );
    await Promise.all(starts.map((start) => start()));
  }
  return [{ name: 'two ranks', ranks, run }];
};
export default host;
