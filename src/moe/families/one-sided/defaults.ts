/**
 * How the kernels of a layer are spread over a device, where nobody measured this very machine: rules of thumb for
 * GPUs (docs/results holds the measurements behind them), and the cheapest spread for the simulator.
 */
import { type Layer, outputRowBytes, sharing, sourceWeighs } from '../../layer/index.js';
import { mostRows } from '../common/owners.js';
import { type Spread, wholeWarps } from '../common/parts.js';
import type { PlanTarget } from '../family.js';
import { type CombineTuning, type DispatchTuning, type OneSidedTuning, oneSidedKnobs } from './knobs.js';
import { travelsAsItLies } from './window.js';

/** The tuning that a layer has unless it is told another, where nothing was measured. */
export function defaultTuning(
  layer: Layer,
  { kind, multiprocessors }: Pick<PlanTarget, 'kind' | 'multiprocessors'>,
): OneSidedTuning {
  return kind === 'sim' ? simTuning(layer) : gpuTuning(layer, multiprocessors);
}

/** Simulated threads cost time and simulated latency costs nothing: few threads, whole rows. */
function simTuning({ ranks, maxTokens }: Layer): OneSidedTuning {
  const threads = wholeWarps(Math.max(32, ranks));
  const blocks = Math.min(maxTokens, 32);
  // Many ranks: windows without `returned` are a third smaller, and the race detector has no atomic access for every 16 bytes
  // to remember.
  const way = ranks > 16 ? 'pull' : 'push';
  const launch = { blocks, threads, parts: 1 };
  return {
    dispatch: stored(launch),
    combine: { ...pushed({ ...launch, ahead: Math.ceil(maxTokens / blocks) }), way },
  };
}

/**
 * Small rounds are latency: each row is spread over several blocks. Large rounds are NVLink bandwidth, which about
 * 100 blocks saturate; from there on two or three smaller blocks on each multiprocessor, with some 800 threads, cover each
 * other's waits. In between a thread for every 16 bytes of a row is best: all of a token's loads leave at once.
 */
function gpuTuning(shape: Layer, multiprocessors: number): OneSidedTuning {
  const twoOnEach = 2 * multiprocessors;
  const fitting = (blocks: number) => Math.min(blocks, twoOnEach);
  const { maxTokens, ranks } = shape;
  const sent = Math.max(1, ...shape.payloads.map(({ rowBytes }) => rowBytes / 16));
  const returned = outputRowBytes(shape) / 16;
  /** One thread for each vector, within the limits of a block, and enough for the flags of all ranks. */
  const threads = (vectors: number, most = 896) =>
    wholeWarps(Math.max(ranks, Math.min(most, Math.max(128, vectors))));
  if (maxTokens <= 16) {
    const parts = maxTokens <= 2 ? 7 : 4;
    return {
      dispatch: stored({ blocks: fitting(maxTokens * parts), threads: threads(sent / parts), parts }),
      combine: pushed({ blocks: fitting(maxTokens * 7), threads: threads(returned / 7), parts: 7, ahead: 1 }),
    };
  }
  if (maxTokens <= 64) {
    return {
      dispatch: stored({ blocks: fitting(maxTokens), threads: threads(sent, 512), parts: 1 }),
      combine: pushed({
        blocks: fitting(Math.ceil(maxTokens * 3.5)),
        threads: threads(returned / 7),
        parts: 7,
        ahead: 2,
      }),
    };
  }
  if (maxTokens <= 256) {
    const parts = returned > 512 ? 4 : 2;
    return {
      dispatch: stored({ blocks: Math.min(maxTokens, multiprocessors), threads: threads(sent), parts: 1 }),
      combine: pushed({
        blocks: fitting(maxTokens * 2),
        threads: threads(returned / parts),
        parts,
        ahead: 1,
      }),
    };
  }
  const parts = returned < 512 ? 1 : 2;
  const adding = threads(returned / parts, 512);
  return {
    dispatch:
      maxTokens <= 1024
        ? stored({ blocks: multiprocessors, threads: threads(sent), parts: 1 })
        : stored({ blocks: twoOnEach, threads: threads(sent, 512), parts: 1 }),
    combine: pushed({
      blocks: adding <= 256 ? 3 * multiprocessors : twoOnEach,
      threads: adding,
      parts,
      ahead: parts === 1 && maxTokens <= 1024 ? 2 : 1,
    }),
  };
}

/** By default a thread has up to four vectors of a row in flight. */
const stored = (launch: Spread): DispatchTuning => ({ ...launch, teams: 1, inFlight: 4 });
const pushed = (launch: Spread & Pick<CombineTuning, 'ahead'>): CombineTuning => ({
  ...launch,
  way: 'push',
  teams: 1,
  inFlight: 4,
});

/**
 * Few multiprocessors carry the links only where each has much in flight: all the threads of one, in teams, so that many
 * rows are. A push moves more than twice the bytes of a pull through each; but links carry stores faster than loads, which
 * counts where there are multiprocessors enough, and rows enough for them.
 */
export function onFewMultiprocessors(
  { dispatch, combine }: OneSidedTuning,
  layer: Layer,
  split: boolean,
  sms: number,
): OneSidedTuning {
  const { maxTokens } = layer;
  const most = { inFlight: oneSidedKnobs.dispatch.inFlight.max };
  // Measured on H200s: dispatch on 24 blocks is slower than on 16, on 32 it is not. So a budget between takes the smaller one's.
  const sendingBlocks = 2 ** Math.floor(Math.log2(sms));
  const sending = Math.max(1, Math.min(16, 2 ** Math.floor(Math.log2(maxTokens / sendingBlocks))));
  // Sums of many rows take the registers of more threads.
  const rows = mostRows(layer);
  const launch = { ...most, threads: rows > 4 ? 512 : 896, teams: 4, ahead: 1 };
  const mayPull = !split && travelsAsItLies(layer) && !sourceWeighs(layer) && sharing(layer).replicas === 1;
  const pulls = mayPull && (sms < 32 || maxTokens <= 256);
  // Whole rows bring more of a thread's loads together; where a team has few of them, parts come out more even. Not more parts
  // than rows: a thread has the same vector of each under way, and too little with few rows and small parts.
  const partsPulled = maxTokens < 4 * sms * launch.teams ? 4 : 1;
  const way = pulls
    ? ({ way: 'pull', blocks: sms, parts: Math.min(partsPulled, rows) } as const)
    : { blocks: sms - 1, parts: Math.min(partsPushed(maxTokens, split, sms), rows) };
  return {
    dispatch:
      dispatch.blocks <= sms
        ? dispatch
        : { ...dispatch, ...most, blocks: sendingBlocks, threads: 1024, teams: sending, parts: 1 },
    combine: combine.blocks < sms ? combine : { ...combine, ...launch, ...way },
  };
}

/** As measured. */
function partsPushed(maxTokens: number, split: boolean, sms: number): number {
  if (split && (maxTokens <= 256 || (sms >= 12 && sms < 24))) return 4;
  return maxTokens > 512 && sms < 24 ? 1 : 2;
}
