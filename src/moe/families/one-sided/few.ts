/** The spread of launches that may take few multiprocessors. */
import { type Layer, sharing } from '../../layer/index.js';
import { type OneSidedTuning, oneSidedKnobs } from './knobs.js';
import { mostRows, travelsAsItLies } from './window.js';

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
  const { maxTokens } = layer;
  const most = { inFlight: oneSidedKnobs.dispatch.inFlight.max };
  const sending = Math.max(1, Math.min(16, 2 ** Math.floor(Math.log2(maxTokens / sms))));
  // Sums of many rows take the registers of more threads.
  const rows = mostRows(layer);
  const launch = { ...most, threads: rows > 4 ? 512 : 896, teams: 4, ahead: 1 };
  const mayPull = !split && travelsAsItLies(layer) && sharing(layer).replicas === 1;
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
        : { ...dispatch, ...most, blocks: sms, threads: 1024, teams: sending, parts: 1, way: 'store' },
    combine: combine.blocks < sms ? combine : { ...combine, ...launch, ...way },
  };
}

/** As measured. */
function partsPushed(maxTokens: number, split: boolean, sms: number): number {
  if (split && (maxTokens <= 256 || (sms >= 12 && sms < 24))) return 4;
  return maxTokens > 512 && sms < 24 ? 1 : 2;
}
