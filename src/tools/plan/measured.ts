/** What Heddle itself was measured to need, in the form of the published tables; docs/results has the runs. */
import type { PublishedTable } from './published.js';

// biome-ignore format: a line for each EP
export const heddleTables: readonly PublishedTable[] = [
  {
    set: 'heddle', lib: 'heddle', mode: 'one_sided', hw: 'H200', fabric: 'nvlink', domain: 8,
    phase: 'dispatch', dtype: 'bf16',
    src: 'docs/results/2026-11-21-4xh200-bench-deepseek_v3-bf16.json',
    cells: {
      4: { 1: 3.33, 2: 3.6, 4: 3.78, 8: 4.26, 16: 5.28, 32: 7.08, 64: 10.78, 128: 17.95, 256: 32.28, 512: 60.98, 1024: 118.12, 2048: 233.33, 4096: 456.86 },
    },
  },
  {
    set: 'heddle', lib: 'heddle', mode: 'one_sided', hw: 'H200', fabric: 'nvlink', domain: 8,
    phase: 'combine', dtype: 'bf16',
    src: 'docs/results/2026-11-21-4xh200-bench-deepseek_v3-bf16.json',
    cells: {
      4: { 1: 3.24, 2: 3.28, 4: 3.4, 8: 3.73, 16: 4.78, 32: 6.76, 64: 11.99, 128: 17.93, 256: 33.7, 512: 64.81, 1024: 128.36, 2048: 233.88, 4096: 461.35 },
    },
  },
  {
    set: 'heddle', lib: 'heddle', mode: 'one_sided', hw: 'H200', fabric: 'nvlink', domain: 8,
    phase: 'both', dtype: 'bf16',
    src: 'docs/results/2026-11-21-4xh200-bench-deepseek_v3-bf16.json',
    cells: {
      4: { 1: 6.56, 2: 6.88, 4: 7.19, 8: 7.99, 16: 10.07, 32: 13.84, 64: 22.77, 128: 35.89, 256: 65.98, 512: 125.79, 1024: 246.49, 2048: 467.2, 4096: 918.21 },
    },
  },
  {
    set: 'heddle', lib: 'heddle', mode: 'one_sided', hw: 'H200', fabric: 'nvlink', domain: 8,
    phase: 'dispatch', dtype: 'fp8',
    src: 'docs/results/2026-11-21-4xh200-bench-deepseek_v3-fp8.json',
    cells: {
      4: { 8: 4.05, 128: 11.53, 2048: 125.31 },
    },
  },
  {
    set: 'heddle', lib: 'heddle', mode: 'one_sided', hw: 'H200', fabric: 'nvlink', domain: 8,
    phase: 'both', dtype: 'bf16',
    src: 'docs/results/2026-11-21-2xh200-rounds.json',
    cells: {
      2: { 1: 5.5, 8: 6.0, 32: 8.5, 128: 16.9, 512: 52.1, 2048: 174, 4096: 338 },
    },
  },
];
