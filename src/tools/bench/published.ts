/** What others' kernels were measured to need for the same round, on one kind of machine. */
import type { BenchReport } from './report.js';

export interface Published {
  readonly name: string;
  /** Where and how it was measured. */
  readonly source: string;
  /** Tokens a rank → microseconds of dispatch + combine back to back. */
  readonly microseconds: Readonly<Record<number, number>>;
}

const bestOpen: Published = {
  name: 'best open one-sided kernels',
  source:
    'FlashInfer’s build of TensorRT-LLM’s one-sided all-to-all, commit fb28d724; ' +
    '4 × H200, DeepSeek-V3 shape, bf16 both ways, uniform routes, in a graph; measured 2026-11-20',
  microseconds: { 1: 18.3, 8: 18.8, 32: 21.8, 128: 41.0, 512: 136, 2048: 497 },
};

/** Those that are comparable with a run: the same layer, formats, routes, ranks and GPU. */
export function publishedFor({ workload: of, machine, unit }: BenchReport): readonly Published[] {
  const comparable =
    unit === 'µs' &&
    of.hidden === 7168 &&
    of.experts === 256 &&
    of.topK === 8 &&
    of.ranks === 4 &&
    of.dtype === 'bf16' &&
    of.combineDtype === 'bf16' &&
    of.router.kind === 'uniform' &&
    machine.gpus.every((name) => name.includes('H200'));
  return comparable ? [bestOpen] : [];
}
