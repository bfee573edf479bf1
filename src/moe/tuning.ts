/**
 * How the kernels of a shape are spread over a device, where nobody measured this very machine: rules of thumb for
 * GPUs (docs/results holds the measurements behind them), and the cheapest spread for the simulator.
 */
import type { CombineTuning, LaunchTuning } from '../kernels/index.js';
import type { Shape } from './shape.js';

export interface Tuning {
  readonly dispatch: LaunchTuning;
  readonly combine: CombineTuning;
}

export function defaultTuning(shape: Shape, kind: 'sim' | 'cuda'): Tuning {
  return kind === 'sim' ? simTuning(shape) : gpuTuning(shape);
}

/** Simulated threads cost time and simulated latency costs nothing: few threads, whole rows. */
function simTuning({ ranks, maxTokens }: Shape): Tuning {
  const threads = wholeWarps(Math.max(32, ranks));
  const blocks = Math.min(maxTokens, 32);
  return {
    dispatch: { blocks, threads, parts: 1 },
    combine: { blocks, threads, parts: 1, way: 'push', ahead: Math.ceil(maxTokens / blocks) },
  };
}

/**
 * Small rounds are latency: each row is spread over several blocks. Large rounds are NVLink bandwidth, which about
 * 100 blocks saturate; two blocks on each of 132 multiprocessors cover each other's waits.
 */
function gpuTuning({ maxTokens, ranks }: Shape): Tuning {
  const atLeast = (threads: number) => wholeWarps(Math.max(threads, ranks));
  if (maxTokens <= 16) {
    const parts = maxTokens <= 2 ? 4 : 2;
    return {
      dispatch: { blocks: maxTokens * parts, threads: atLeast(256), parts },
      combine: { blocks: maxTokens * 7, threads: atLeast(128), parts: 7, way: 'push', ahead: 1 },
    };
  }
  if (maxTokens <= 64) {
    return {
      dispatch: { blocks: maxTokens, threads: atLeast(512), parts: 1 },
      combine: {
        blocks: Math.min(264, maxTokens * 7),
        threads: atLeast(128),
        parts: 7,
        way: 'push',
        ahead: 2,
      },
    };
  }
  if (maxTokens <= 256) {
    return {
      dispatch: { blocks: Math.min(maxTokens, 132), threads: atLeast(256), parts: 1 },
      combine: {
        blocks: Math.min(maxTokens * 2, 264),
        threads: atLeast(512),
        parts: 2,
        way: 'push',
        ahead: 2,
      },
    };
  }
  return {
    dispatch: { blocks: maxTokens <= 1024 ? 132 : 264, threads: atLeast(512), parts: 1 },
    combine: { blocks: 264, threads: atLeast(512), parts: 2, way: 'push', ahead: maxTokens <= 1024 ? 4 : 2 },
  };
}

const wholeWarps = (threads: number): number => Math.ceil(threads / 32) * 32;
