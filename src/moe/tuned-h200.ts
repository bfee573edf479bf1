/** Written by `heddle tune` on 4 × H200; docs/benchmarks.md says how to write it again. */
import type { TuningFile } from './tuning-file.js';

export const tunedH200: TuningFile = {
  format: 'heddle-tuning/1',
  date: '2026-11-20',
  shapes: [
    {
      gpu: 'NVIDIA H200',
      ranks: 4,
      topK: 8,
      dispatchBytes: 14336,
      combineBytes: 14336,
      maxTokens: 8,
      tuning: {
        dispatch: {
          blocks: 32,
          threads: 224,
          parts: 4,
        },
        combine: {
          blocks: 56,
          threads: 128,
          parts: 7,
          way: 'push',
          ahead: 1,
        },
      },
      microseconds: 8.74,
    },
    {
      gpu: 'NVIDIA H200',
      ranks: 4,
      topK: 8,
      dispatchBytes: 14336,
      combineBytes: 14336,
      maxTokens: 32,
      tuning: {
        dispatch: {
          blocks: 64,
          threads: 512,
          parts: 4,
        },
        combine: {
          blocks: 112,
          threads: 128,
          parts: 7,
          way: 'push',
          ahead: 2,
        },
      },
      microseconds: 14.75,
    },
    {
      gpu: 'NVIDIA H200',
      ranks: 4,
      topK: 8,
      dispatchBytes: 14336,
      combineBytes: 14336,
      maxTokens: 128,
      tuning: {
        dispatch: {
          blocks: 128,
          threads: 896,
          parts: 1,
        },
        combine: {
          blocks: 256,
          threads: 256,
          parts: 4,
          way: 'push',
          ahead: 1,
        },
      },
      microseconds: 36.87,
    },
    {
      gpu: 'NVIDIA H200',
      ranks: 4,
      topK: 8,
      dispatchBytes: 14336,
      combineBytes: 14336,
      maxTokens: 512,
      tuning: {
        dispatch: {
          blocks: 132,
          threads: 256,
          parts: 1,
        },
        combine: {
          blocks: 264,
          threads: 512,
          parts: 1,
          way: 'push',
          ahead: 2,
        },
      },
      microseconds: 126.52,
    },
    {
      gpu: 'NVIDIA H200',
      ranks: 4,
      topK: 8,
      dispatchBytes: 14336,
      combineBytes: 14336,
      maxTokens: 2048,
      tuning: {
        dispatch: {
          blocks: 264,
          threads: 512,
          parts: 1,
        },
        combine: {
          blocks: 264,
          threads: 448,
          parts: 2,
          way: 'push',
          ahead: 1,
        },
      },
      microseconds: 468.12,
    },
  ],
};
