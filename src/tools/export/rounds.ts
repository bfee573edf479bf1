/** What a round launches: Heddle's own classes make it on a recording device. */
import { loadStep, type Plan, type PlanTarget, phases, type Round } from '../../moe/families/index.js';
import { areScales, type Layer } from '../../moe/layer/index.js';
import { type Recorded, type RecordedBuffer, Recorder } from './recorder.js';

/** What a host enqueues by name, in the order of a stream. */
export const stages = [
  'dispatchSend',
  'dispatchRecv',
  'plan',
  'experts',
  'combineSend',
  'combineRecv',
] as const;
export type Stage = (typeof stages)[number];

export interface PhaseLaunch extends Recorded {
  readonly phase: Stage;
}

/** The launches of a round in the order of the stream, and the memory that they name beside windows. */
export async function recordRounds(
  plan: Plan,
  layer: Layer,
  { multiprocessors }: Pick<PlanTarget, 'multiprocessors'>,
): Promise<{ readonly launches: readonly PhaseLaunch[]; readonly buffers: readonly RecordedBuffer[] }> {
  const recorder = new Recorder({ multiprocessors, capability: [9, 0] });
  const windows = new Map(plan.windows.map((of) => [of, recorder.window(of)]));
  const buffers = new Map(plan.buffers.map((of) => [of, recorder.device.allocate(of.bytes, of.purpose)]));
  const memory = {
    ...{ rank: 0, limit: recorder.name({ from: 'limit' }) },
    window: (of: object) => [...windows].find(([plan]) => plan === of)![1].window,
    address: (of: object) => [...buffers].find(([plan]) => plan === of)![1].address,
  };
  const round: Round = {
    tokens: recorder.name({ from: 'tokens' }),
    topkIds: recorder.name({ from: 'topkIds' }),
    topkWeights: recorder.name({ from: 'topkWeights' }),
    // Nobody brings scales that dispatch makes: its kernels are given the rows that it makes them of.
    rows: layer.payloads.map((_, p) =>
      recorder.name({ from: 'rows', payload: layer.payloads[areScales(layer, p) ? p - 1 : p]!.name }),
    ),
    out: recorder.name({ from: 'out' }),
    ...{ made: 0, madeRows: 0, scatter: 0, routeWeights: 0, placing: [] },
  };
  const launches: PhaseLaunch[] = [];
  for (const phase of phases) {
    for (const step of plan.phases[phase]) {
      const loaded = await loadStep(step, recorder.device, memory);
      loaded.take(round);
      const made = recorder.launched(() => loaded.launch(recorder.stream));
      launches.push(...made.map((one) => ({ ...one, phase })));
    }
  }
  return { launches, buffers: recorder.buffers };
}
