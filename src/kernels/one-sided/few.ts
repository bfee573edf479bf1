/** The spread of launches that may take few multiprocessors. */
import { type Layer, outputRowBytes, sharing } from '../../layer/index.js';
import { type OneSidedTuning, oneSidedKnobs } from './knobs.js';
import { mostRows } from './window.js';

/**
 * Few multiprocessors carry the links only where each has much in flight: all the threads of one, in teams, so that many
 * rows are. A push moves more than twice the bytes of a pull through each; but links carry stores faster than loads, which
 * counts where there are multiprocessors enough, and rows enough for them.
 */
export function onFew(
  { dispatch, combine }: OneSidedTuning,
  layer: Layer,
  split: boolean,
  sms: number,
): OneSidedTuning {
  const { maxTokens, output } = layer;
  const most = { inFlight: oneSidedKnobs.dispatch.inFlight.max };
  const sending = Math.max(1, Math.min(16, 2 ** Math.floor(Math.log2(maxTokens / sms))));
  const e4m3 = output.wire === 'e4m3';
  // Sums of many rows take the registers of more threads.
  const threads = mostRows(layer) > 4 || e4m3 ? 512 : 896;
  const mayPull = !split && !e4m3 && sharing(layer).replicas === 1;
  const pulls = mayPull && (sms < 32 || maxTokens <= 256);
  const pulled = {
    ...{ way: 'pull', blocks: sms, teams: 4 },
    // Whole rows bring more of a thread's loads together; where a team has few of them, parts come out more even.
    parts: maxTokens < 16 * sms ? 4 : 1,
  } as const;
  // Pushed, a thread has one vector of each piece; more of them at a time were slower (docs/results).
  const teams = split && maxTokens > 512 ? 4 : threads / 128;
  const vectors = outputRowBytes(layer) / 16;
  const pushed = { blocks: sms - 1, teams, parts: Math.ceil((vectors * teams) / threads) };
  const launch = { ...most, threads, ahead: 1, ...(pulls ? pulled : pushed) };
  return {
    dispatch:
      dispatch.blocks <= sms
        ? dispatch
        : { ...dispatch, ...most, blocks: sms, threads: 1024, teams: sending, parts: 1, way: 'store' },
    combine: combine.blocks < sms ? combine : { ...combine, ...launch },
  };
}
