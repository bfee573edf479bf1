/** Written by `heddle tune` on 4 × H200; docs/benchmarks.md says how to write it again. */
import type { TuningFile } from './tuning-file.js';

export const tunedH200: TuningFile = {
  format: 'heddle-tuning/1',
  date: '2026-11-20',
  shapes: [],
};
