/**
 * What others have published about DeepSeek-V3's layer (hidden 7168, top-8 of 256 experts): 410 cells, each with its
 * source. Figures as printed, so sources may disagree.
 */

import type { FormatName } from '../../moe/layer/index.js';

/** Cells of one source, system, machine, phase and format. */
export interface PublishedTable {
  /** Cells of one set come from one harness. */
  readonly set: string;
  readonly lib: string;
  readonly mode: string;
  readonly hw: string;
  readonly fabric: string;
  /** GPUs that share NVLink. */
  readonly domain: number;
  readonly dtype: FormatName;
  readonly phase: 'dispatch' | 'combine' | 'both';
  readonly src: string;
  /** Where the source prints GB/s instead of µs: what it counts. */
  readonly gbps?: string;
  readonly note?: string;
  /** EP, tokens a rank → µs, or GB/s. */
  readonly cells: Readonly<Record<number, Readonly<Record<number, number>>>>;
}

// biome-ignore format: a line for each EP
export const publishedTables: readonly PublishedTable[] = [
  {
    set: 'trtllm', lib: 'trtllm', mode: 'one_sided', hw: 'GB200', fabric: 'nvl72', domain: 72,
    phase: 'dispatch', dtype: 'bf16',
    src: 'TensorRT-LLM, Optimizing MoE Communication with One-Sided AlltoAll Over NVLink',
    cells: {
      8: { 1: 18.9, 2: 18.4, 4: 18.1, 8: 17.6, 16: 18.5, 32: 18.2, 64: 22.3, 128: 31.7, 256: 50.8, 512: 89.5, 1024: 166.3, 2048: 311.8 },
      16: { 1: 18.8, 2: 19.1, 4: 18.5, 8: 18.9, 16: 18.4, 32: 20.2, 64: 24.1, 128: 34.6, 256: 54.8, 512: 97.1, 1024: 181.2, 2048: 343.3 },
      32: { 1: 19.8, 2: 19.7, 4: 19.6, 8: 19.4, 16: 18.9, 32: 21.1, 64: 26.2, 128: 37.8, 256: 61.5, 512: 109.6, 1024: 197.5, 2048: 373.7 },
      64: { 1: 27.8, 2: 24.8, 4: 29.1, 8: 20.4, 16: 20.6, 32: 23.1, 64: 28.8, 128: 41.6, 256: 65.3, 512: 115.7, 1024: 209.4, 2048: 399.2 },
    },
  },
  {
    set: 'trtllm', lib: 'trtllm', mode: 'one_sided', hw: 'GB200', fabric: 'nvl72', domain: 72,
    phase: 'combine', dtype: 'bf16',
    src: 'TensorRT-LLM, Optimizing MoE Communication with One-Sided AlltoAll Over NVLink',
    cells: {
      8: { 1: 31.0, 2: 31.1, 4: 31.4, 8: 31.4, 16: 32.6, 32: 32.7, 64: 34.1, 128: 38.1, 256: 53.0, 512: 91.7, 1024: 175.6, 2048: 322.6 },
      16: { 1: 30.8, 2: 31.4, 4: 31.6, 8: 31.8, 16: 33.0, 32: 34.2, 64: 35.6, 128: 39.9, 256: 57.0, 512: 98.2, 1024: 188.2, 2048: 348.4 },
      32: { 1: 31.4, 2: 31.3, 4: 31.4, 8: 32.2, 16: 33.4, 32: 34.6, 64: 36.4, 128: 41.1, 256: 59.7, 512: 102.5, 1024: 197.5, 2048: 369.5 },
      64: { 1: 32.6, 2: 32.2, 4: 33.0, 8: 33.3, 16: 35.0, 32: 36.1, 64: 37.7, 128: 44.5, 256: 62.9, 512: 106.7, 1024: 199.2, 2048: 372.1 },
    },
  },
  {
    set: 'garden_deepep', lib: 'deepep_v1', mode: 'll', hw: 'H100/H200+CX7', fabric: 'cx7', domain: 8,
    phase: 'dispatch', dtype: 'fp8',
    src: 'perplexityai/pplx-garden docs/fabric-lib.md',
    cells: {
      64: { 128: 177.9 },
      32: { 128: 159.1 },
      16: { 128: 123.9 },
      8: { 128: 42.6 },
    },
  },
  {
    set: 'garden_deepep', lib: 'deepep_v1', mode: 'll', hw: 'H100/H200+CX7', fabric: 'cx7', domain: 8,
    phase: 'combine', dtype: 'bf16',
    src: 'perplexityai/pplx-garden docs/fabric-lib.md',
    cells: {
      64: { 128: 325.0 },
      32: { 128: 285.0 },
      16: { 128: 203.0 },
      8: { 128: 72.0 },
    },
  },
  {
    set: 'garden', lib: 'pplx-garden', mode: 'hybrid', hw: 'H100/H200+EFA', fabric: 'efa', domain: 8,
    phase: 'dispatch', dtype: 'fp8',
    src: 'perplexityai/pplx-garden docs/fabric-lib.md',
    cells: {
      64: { 128: 267, 4096: 5334 },
      32: { 128: 229.1, 4096: 4619.0 },
      16: { 128: 214.8, 4096: 3196.7 },
      8: { 128: 49.7, 4096: 1052.4 },
    },
  },
  {
    set: 'garden', lib: 'pplx-garden', mode: 'hybrid', hw: 'H100/H200+CX7', fabric: 'cx7', domain: 8,
    phase: 'dispatch', dtype: 'fp8',
    src: 'perplexityai/pplx-garden docs/fabric-lib.md',
    note: 'EP8, 4096 tokens: printed swapped with the other cell; restored',
    cells: {
      64: { 128: 188, 4096: 4665 },
      32: { 128: 153.9, 4096: 4011.8 },
      16: { 128: 110.2, 4096: 2734.8 },
      8: { 128: 50.5, 4096: 1062.2 },
    },
  },
  {
    set: 'garden', lib: 'pplx-garden', mode: 'hybrid', hw: 'H100/H200+EFA', fabric: 'efa', domain: 8,
    phase: 'combine', dtype: 'bf16',
    src: 'perplexityai/pplx-garden docs/fabric-lib.md',
    cells: {
      64: { 128: 391, 4096: 9779 },
      32: { 128: 335.0, 4096: 8271.5 },
      16: { 128: 241.5, 4096: 5379.1 },
      8: { 128: 64.2, 4096: 1396.7 },
    },
  },
  {
    set: 'garden', lib: 'pplx-garden', mode: 'hybrid', hw: 'H100/H200+CX7', fabric: 'cx7', domain: 8,
    phase: 'combine', dtype: 'bf16',
    src: 'perplexityai/pplx-garden docs/fabric-lib.md',
    note: 'EP16, 4096 tokens: printed swapped with the other cell; restored',
    cells: {
      64: { 128: 309, 4096: 8771 },
      32: { 128: 266.3, 4096: 7526.8 },
      16: { 128: 185.5, 4096: 5071.1 },
      8: { 128: 65.3, 4096: 1405.1 },
    },
  },
  {
    set: 'garden_deepep', lib: 'deepep_v1', mode: 'normal', hw: 'H100/H200+CX7', fabric: 'cx7', domain: 8,
    phase: 'dispatch', dtype: 'fp8',
    src: 'perplexityai/pplx-garden docs/fabric-lib.md',
    cells: {
      64: { 4096: 5071.6 },
      32: { 4096: 3680.2 },
      16: { 4096: 2481.9 },
      8: { 4096: 1810.3 },
    },
  },
  {
    set: 'garden_deepep', lib: 'deepep_v1', mode: 'normal', hw: 'H100/H200+CX7', fabric: 'cx7', domain: 8,
    phase: 'combine', dtype: 'bf16',
    src: 'perplexityai/pplx-garden docs/fabric-lib.md',
    cells: {
      64: { 4096: 5922.7 },
      32: { 4096: 3565.4 },
      16: { 4096: 1863.9 },
      8: { 4096: 962.9 },
    },
  },
  {
    set: 'deepep_normal_h800', lib: 'deepep_v1', mode: 'normal', hw: 'H800+CX7', fabric: 'cx7', domain: 8,
    phase: 'dispatch', dtype: 'fp8', gbps: 'nvlink',
    src: 'deepseek-ai/DeepEP V1 README',
    cells: {
      8: { 4096: 153 },
    },
  },
  {
    set: 'deepep_normal_h800', lib: 'deepep_v1', mode: 'normal', hw: 'H800+CX7', fabric: 'cx7', domain: 8,
    phase: 'combine', dtype: 'bf16', gbps: 'nvlink',
    src: 'deepseek-ai/DeepEP V1 README',
    cells: {
      8: { 4096: 158 },
    },
  },
  {
    set: 'deepep_normal_h800', lib: 'deepep_v1', mode: 'normal', hw: 'H800+CX7', fabric: 'cx7', domain: 8,
    phase: 'dispatch', dtype: 'fp8', gbps: 'rdma',
    src: 'deepseek-ai/DeepEP V1 README',
    cells: {
      16: { 4096: 43 },
      32: { 4096: 58 },
      64: { 4096: 51 },
    },
  },
  {
    set: 'deepep_normal_h800', lib: 'deepep_v1', mode: 'normal', hw: 'H800+CX7', fabric: 'cx7', domain: 8,
    phase: 'combine', dtype: 'bf16', gbps: 'rdma',
    src: 'deepseek-ai/DeepEP V1 README',
    cells: {
      16: { 4096: 43 },
      32: { 4096: 57 },
      64: { 4096: 50 },
    },
  },
  {
    set: 'deepep_v2', lib: 'deepep_v2', mode: 'elastic', hw: 'H800/H100+CX7', fabric: 'cx7', domain: 8,
    phase: 'dispatch', dtype: 'fp8', gbps: 'rdma',
    src: 'DeepEP main README',
    cells: {
      16: { 8192: 90 },
      32: { 8192: 61 },
    },
  },
  {
    set: 'deepep_v2', lib: 'deepep_v2', mode: 'elastic', hw: 'H800/H100+CX7', fabric: 'cx7', domain: 8,
    phase: 'combine', dtype: 'bf16', gbps: 'rdma',
    src: 'DeepEP main README',
    cells: {
      16: { 8192: 81 },
      32: { 8192: 61 },
    },
  },
  {
    set: 'deepep_v2', lib: 'deepep_v2', mode: 'elastic', hw: 'SM100+CX7', fabric: 'cx7', domain: 8,
    phase: 'dispatch', dtype: 'fp8', gbps: 'rdma',
    src: 'DeepEP main README',
    cells: {
      16: { 8192: 90 },
    },
  },
  {
    set: 'deepep_v2', lib: 'deepep_v2', mode: 'elastic', hw: 'SM100+CX7', fabric: 'cx7', domain: 8,
    phase: 'combine', dtype: 'bf16', gbps: 'rdma',
    src: 'DeepEP main README',
    cells: {
      16: { 8192: 91 },
    },
  },
  {
    set: 'deepep_v2', lib: 'deepep_v2', mode: 'elastic', hw: 'SM100', fabric: 'nvlink', domain: 8,
    phase: 'dispatch', dtype: 'fp8', gbps: 'nvlink logical 64 SM',
    src: 'DeepEP main README',
    cells: {
      8: { 8192: 726 },
    },
  },
  {
    set: 'deepep_v2', lib: 'deepep_v2', mode: 'elastic', hw: 'SM100', fabric: 'nvlink', domain: 8,
    phase: 'combine', dtype: 'bf16', gbps: 'nvlink logical 64 SM',
    src: 'DeepEP main README',
    cells: {
      8: { 8192: 740 },
    },
  },
  {
    set: 'deepep_v2', lib: 'deepep_v2', mode: 'elastic', hw: 'SM100', fabric: 'nvlink', domain: 8,
    phase: 'dispatch', dtype: 'fp8', gbps: 'nvlink logical 24 SM',
    src: 'DeepEP main README',
    cells: {
      8: { 8192: 643 },
    },
  },
  {
    set: 'deepep_v2', lib: 'deepep_v2', mode: 'elastic', hw: 'SM100', fabric: 'nvlink', domain: 8,
    phase: 'combine', dtype: 'bf16', gbps: 'nvlink logical 24 SM',
    src: 'DeepEP main README',
    cells: {
      8: { 8192: 675 },
    },
  },
  {
    set: 'pplx_kernels', lib: 'pplx-kernels', mode: 'ibgda', hw: 'H100+CX7', fabric: 'cx7', domain: 8,
    phase: 'dispatch', dtype: 'fp8',
    src: 'pplx-kernels README',
    cells: {
      128: { 1: 125.9, 128: 307.7 },
      64: { 1: 121.0, 128: 317.4 },
      32: { 1: 115.7, 128: 427.6 },
      16: { 1: 102.7, 128: 622.4 },
    },
  },
  {
    set: 'pplx_kernels', lib: 'pplx-kernels', mode: 'ibgda', hw: 'H100+CX7', fabric: 'cx7', domain: 8,
    phase: 'combine', dtype: 'bf16',
    src: 'pplx-kernels README',
    cells: {
      128: { 1: 63.2, 128: 593.9 },
      64: { 1: 58.6, 128: 529.9 },
      32: { 1: 55.4, 128: 481.4 },
      16: { 1: 62.7, 128: 668.1 },
    },
  },
  {
    set: 'pplx_kernels', lib: 'pplx-kernels', mode: 'ibrc', hw: 'H100+CX7', fabric: 'cx7', domain: 8,
    phase: 'dispatch', dtype: 'fp8',
    src: 'pplx-kernels README',
    cells: {
      128: { 1: 488.4, 128: 2038.5 },
      64: { 1: 525.0, 128: 1669.3 },
      32: { 1: 421.2, 128: 973.5 },
      16: { 1: 290.5, 128: 687.1 },
    },
  },
  {
    set: 'pplx_kernels', lib: 'pplx-kernels', mode: 'ibrc', hw: 'H100+CX7', fabric: 'cx7', domain: 8,
    phase: 'combine', dtype: 'bf16',
    src: 'pplx-kernels README',
    cells: {
      128: { 1: 786.8, 128: 1184.8 },
      64: { 1: 400.0, 128: 1058.5 },
      32: { 1: 122.1, 128: 916.5 },
      16: { 1: 85.9, 128: 633.4 },
    },
  },
  {
    set: 'pplx_kernels', lib: 'pplx-kernels', mode: 'nvlink', hw: 'H100', fabric: 'nvlink', domain: 8,
    phase: 'dispatch', dtype: 'fp8',
    src: 'pplx-kernels README',
    cells: {
      8: { 1: 41.6, 128: 83.6 },
    },
  },
  {
    set: 'pplx_kernels', lib: 'pplx-kernels', mode: 'nvlink', hw: 'H100', fabric: 'nvlink', domain: 8,
    phase: 'combine', dtype: 'bf16',
    src: 'pplx-kernels README',
    cells: {
      8: { 1: 41.7, 128: 102.3 },
    },
  },
  {
    set: 'uccl_ll', lib: 'uccl', mode: 'll', hw: 'H200 p5en', fabric: 'efa', domain: 8,
    phase: 'dispatch', dtype: 'fp8',
    src: 'uccl-project/uccl ep/README.md',
    cells: {
      16: { 128: 226 },
      24: { 128: 386 },
      32: { 128: 465 },
    },
  },
  {
    set: 'uccl_ll', lib: 'uccl', mode: 'll', hw: 'H200 p5en', fabric: 'efa', domain: 8,
    phase: 'combine', dtype: 'bf16',
    src: 'uccl-project/uccl ep/README.md',
    cells: {
      16: { 128: 293 },
      24: { 128: 580 },
      32: { 128: 694 },
    },
  },
  {
    set: 'uccl_ll', lib: 'uccl', mode: 'll', hw: 'B200 p6', fabric: 'efa', domain: 8,
    phase: 'dispatch', dtype: 'fp8',
    src: 'uccl-project/uccl ep/README.md',
    cells: {
      16: { 128: 228 },
      24: { 128: 448 },
      32: { 128: 406 },
    },
  },
  {
    set: 'uccl_ll', lib: 'uccl', mode: 'll', hw: 'B200 p6', fabric: 'efa', domain: 8,
    phase: 'combine', dtype: 'bf16',
    src: 'uccl-project/uccl ep/README.md',
    cells: {
      16: { 128: 318 },
      24: { 128: 566 },
      32: { 128: 617 },
    },
  },
  {
    set: 'uccl_ll', lib: 'uccl', mode: 'll', hw: 'MI300X+CX7', fabric: 'cx7', domain: 8,
    phase: 'dispatch', dtype: 'fp8',
    src: 'uccl-project/uccl ep/README.md',
    cells: {
      8: { 128: 65 },
      16: { 128: 136 },
      32: { 128: 224 },
    },
  },
  {
    set: 'uccl_ll', lib: 'uccl', mode: 'll', hw: 'MI300X+CX7', fabric: 'cx7', domain: 8,
    phase: 'combine', dtype: 'bf16',
    src: 'uccl-project/uccl ep/README.md',
    cells: {
      8: { 128: 92 },
      16: { 128: 207 },
      32: { 128: 341 },
    },
  },
  {
    set: 'uccl_normal', lib: 'uccl', mode: 'normal', hw: 'H200 p5en', fabric: 'efa', domain: 8,
    phase: 'dispatch', dtype: 'fp8',
    src: 'uccl-project/uccl ep/README.md',
    cells: {
      8: { 4096: 500 },
      16: { 4096: 1196 },
      24: { 4096: 1633 },
      32: { 4096: 2022 },
    },
  },
  {
    set: 'uccl_normal', lib: 'uccl', mode: 'normal', hw: 'H200 p5en', fabric: 'efa', domain: 8,
    phase: 'combine', dtype: 'bf16',
    src: 'uccl-project/uccl ep/README.md',
    cells: {
      8: { 4096: 973 },
      16: { 4096: 6379 },
      24: { 4096: 6365 },
      32: { 4096: 4899 },
    },
  },
  {
    set: 'uccl_normal', lib: 'uccl', mode: 'normal', hw: 'B200 p6', fabric: 'efa', domain: 8,
    phase: 'dispatch', dtype: 'fp8',
    src: 'uccl-project/uccl ep/README.md',
    cells: {
      8: { 4096: 571 },
      16: { 4096: 1141 },
      24: { 4096: 1637 },
      32: { 4096: 2072 },
    },
  },
  {
    set: 'uccl_normal', lib: 'uccl', mode: 'normal', hw: 'B200 p6', fabric: 'efa', domain: 8,
    phase: 'combine', dtype: 'bf16',
    src: 'uccl-project/uccl ep/README.md',
    cells: {
      8: { 4096: 727 },
      16: { 4096: 1965 },
      24: { 4096: 2887 },
      32: { 4096: 3724 },
    },
  },
  {
    set: 'nccl_ep', lib: 'nccl_ep', mode: 'll', hw: 'H100+CX7', fabric: 'cx7', domain: 8,
    phase: 'dispatch', dtype: 'bf16', gbps: 'per-rank algorithmic',
    src: 'NVIDIA/nccl contrib/nccl_ep README',
    cells: {
      8: { 128: 224.3 },
      16: { 128: 76.7 },
      32: { 128: 53.6 },
      64: { 128: 48.8 },
    },
  },
  {
    set: 'nccl_ep', lib: 'nccl_ep', mode: 'll', hw: 'H100+CX7', fabric: 'cx7', domain: 8,
    phase: 'combine', dtype: 'bf16', gbps: 'per-rank algorithmic',
    src: 'NVIDIA/nccl contrib/nccl_ep README',
    cells: {
      8: { 128: 185.2 },
      16: { 128: 73.0 },
      32: { 128: 50.0 },
      64: { 128: 43.8 },
    },
  },
  {
    set: 'aic_h100_ll', lib: 'deepep_v1', mode: 'll', hw: 'H100+CX7', fabric: 'cx7', domain: 8,
    phase: 'dispatch', dtype: 'fp8',
    src: 'ai-dynamo/aiconfigurator systems data h100_sxm sglang 0.5.6',
    cells: {
      8: { 1: 16.28, 2: 15.43, 4: 15.75, 8: 16.05, 12: 16.76, 16: 17.63, 24: 19.51, 32: 20.5, 48: 24.78, 64: 27.84, 96: 33.38, 128: 39.83, 160: 47.21, 256: 67.02, 512: 122.64 },
      16: { 2: 22.57, 4: 21.93, 8: 23.6, 12: 26.37, 16: 30.1, 24: 35.43, 32: 40.07, 48: 48.87, 64: 58.07, 96: 81.2, 128: 102.1, 160: 122.87, 256: 183.03 },
      32: { 2: 27.13, 4: 29.07, 8: 32.0, 12: 36.3, 16: 40.2, 24: 48.5, 32: 55.23, 48: 70.27, 64: 82.93, 96: 112.57, 128: 142.97, 160: 172.37, 256: 264.47 },
    },
  },
  {
    set: 'aic_h100_ll', lib: 'deepep_v1', mode: 'll', hw: 'H100+CX7', fabric: 'cx7', domain: 8,
    phase: 'combine', dtype: 'bf16',
    src: 'ai-dynamo/aiconfigurator systems data h100_sxm sglang 0.5.6',
    cells: {
      8: { 1: 12.2, 2: 13.28, 4: 14.05, 8: 14.37, 12: 16.03, 16: 18.28, 24: 21.64, 32: 24.64, 48: 33.43, 64: 40.91, 96: 55.99, 128: 72.38, 160: 90.36, 256: 136.08, 512: 269.28 },
      16: { 2: 25.9, 4: 29.8, 8: 36.23, 12: 42.63, 16: 45.93, 24: 52.5, 32: 60.93, 48: 83.43, 64: 102.17, 96: 145.83, 128: 186.17, 160: 226.77, 256: 337.47 },
      32: { 2: 28.43, 4: 32.3, 8: 41.77, 12: 48.8, 16: 56.67, 24: 69.97, 32: 85.57, 48: 116.03, 64: 151.67, 96: 203.6, 128: 263.27, 160: 329.33, 256: 500.2 },
    },
  },
  {
    set: 'aic_ll_ep8', lib: 'deepep_v1', mode: 'll', hw: 'H100', fabric: 'nvlink', domain: 8,
    phase: 'dispatch', dtype: 'fp8',
    src: 'ai-dynamo/aiconfigurator sglang 0.5.12',
    cells: {
      8: { 1: 13.19, 2: 13.65, 4: 13.93, 8: 14.79, 16: 15.62, 32: 18.0, 64: 24.57, 128: 36.72, 256: 62.56, 512: 115.52, 1024: 224.06 },
    },
  },
  {
    set: 'aic_ll_ep8', lib: 'deepep_v1', mode: 'll', hw: 'H100', fabric: 'nvlink', domain: 8,
    phase: 'combine', dtype: 'bf16',
    src: 'ai-dynamo/aiconfigurator sglang 0.5.12',
    cells: {
      8: { 1: 14.4, 2: 14.17, 4: 14.95, 8: 16.49, 16: 20.53, 32: 26.26, 64: 39.73, 128: 66.98, 256: 129.51, 512: 259.23, 1024: 489.43 },
    },
  },
  {
    set: 'aic_ll_ep8', lib: 'deepep_v1', mode: 'll', hw: 'H200', fabric: 'nvlink', domain: 8,
    phase: 'dispatch', dtype: 'fp8',
    src: 'ai-dynamo/aiconfigurator sglang 0.5.12',
    cells: {
      8: { 1: 11.9, 2: 11.88, 4: 12.02, 8: 12.32, 16: 14.24, 32: 16.49, 64: 22.99, 128: 35.12, 256: 60.52, 512: 112.36, 1024: 211.1 },
    },
  },
  {
    set: 'aic_ll_ep8', lib: 'deepep_v1', mode: 'll', hw: 'H200', fabric: 'nvlink', domain: 8,
    phase: 'combine', dtype: 'bf16',
    src: 'ai-dynamo/aiconfigurator sglang 0.5.12',
    cells: {
      8: { 1: 12.56, 2: 12.75, 4: 13.09, 8: 15.03, 16: 18.27, 32: 24.55, 64: 38.76, 128: 67.75, 256: 124.47, 512: 244.08, 1024: 480.97 },
    },
  },
  {
    set: 'aic_ll_ep8', lib: 'deepep_v1', mode: 'll', hw: 'B200', fabric: 'nvlink', domain: 8,
    phase: 'dispatch', dtype: 'fp8',
    src: 'ai-dynamo/aiconfigurator sglang 0.5.12',
    cells: {
      8: { 1: 22.08, 2: 21.7, 4: 21.13, 8: 22.28, 16: 23.29, 32: 24.4, 64: 26.61, 128: 32.95, 256: 44.5, 512: 72.51, 1024: 129.63 },
    },
  },
  {
    set: 'aic_ll_ep8', lib: 'deepep_v1', mode: 'll', hw: 'B200', fabric: 'nvlink', domain: 8,
    phase: 'combine', dtype: 'bf16',
    src: 'ai-dynamo/aiconfigurator sglang 0.5.12',
    cells: {
      8: { 1: 22.06, 2: 22.37, 4: 23.64, 8: 22.78, 16: 23.11, 32: 26.27, 64: 31.45, 128: 40.88, 256: 62.91, 512: 105.29, 1024: 189.29 },
    },
  },
  {
    set: 'aic_ll_ep8', lib: 'deepep_v1', mode: 'll', hw: 'GB200', fabric: 'nvlink', domain: 8,
    phase: 'dispatch', dtype: 'fp8',
    src: 'ai-dynamo/aiconfigurator sglang 0.5.12',
    cells: {
      8: { 1: 16.57, 2: 16.84, 4: 17.06, 8: 17.44, 16: 17.97, 32: 19.18, 64: 21.64, 128: 26.86, 256: 37.49, 512: 62.57, 1024: 112.92 },
    },
  },
  {
    set: 'aic_ll_ep8', lib: 'deepep_v1', mode: 'll', hw: 'GB200', fabric: 'nvlink', domain: 8,
    phase: 'combine', dtype: 'bf16',
    src: 'ai-dynamo/aiconfigurator sglang 0.5.12',
    cells: {
      8: { 1: 18.13, 2: 17.61, 4: 18.08, 8: 18.65, 16: 18.59, 32: 19.4, 64: 25.97, 128: 36.23, 256: 54.76, 512: 91.98, 1024: 168.29 },
    },
  },
];
