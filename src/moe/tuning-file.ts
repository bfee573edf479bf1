/** The files in which measured tunings are kept: what `heddle tune` writes and ExpertParallel reads. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { cacheFolder } from '../cuda/index.js';
import { ArgumentError, requireInteger } from '../errors/index.js';
import { type CombineTuning, type DispatchTuning, mostInFlight } from '../kernels/index.js';
import type { Tuning } from './tuning.js';

export const tuningFormat = 'heddle-tuning/1';

/** What was best for one shape on one kind of GPU. */
export interface TunedShape {
  /** As the driver names it: 'NVIDIA H200'. */
  readonly gpu: string;
  readonly ranks: number;
  readonly topK: number;
  /** All payloads of a token. */
  readonly dispatchBytes: number;
  readonly combineBytes: number;
  readonly maxTokens: number;
  readonly tuning: Tuning;
  /** Of a round with it, when it was found. */
  readonly microseconds: number;
}

export interface TuningFile {
  readonly format: typeof tuningFormat;
  readonly date: string;
  readonly shapes: readonly TunedShape[];
}

/** Where `heddle tune` leaves what it found: $HEDDLE_TUNING, else tuning.json beside the compiled kernels. */
export const tuningPath = (): string => process.env.HEDDLE_TUNING || join(cacheFolder(), 'tuning.json');

/** Reads what `heddle tune` wrote, and refuses what it cannot have written. */
export function readTuning(path: string): TuningFile {
  try {
    const file = JSON.parse(readFileSync(path, 'utf8')) as TuningFile;
    if (file?.format !== tuningFormat || !Array.isArray(file.shapes)) throw new Error(`no ${tuningFormat}`);
    for (const { gpu, ranks, topK, dispatchBytes, combineBytes, maxTokens, tuning } of file.shapes) {
      if (typeof gpu !== 'string') throw new Error('a shape without a GPU');
      for (const [name, value] of Object.entries({ ranks, topK, dispatchBytes, combineBytes, maxTokens }))
        requireInteger(name, value, 1, 2 ** 40);
      requireDispatch(tuning.dispatch);
      requireCombine(tuning.combine);
    }
    return file;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ArgumentError(
      'tuning file',
      path,
      `as \`heddle tune\` writes it (${reason}); delete it, or tune again`,
    );
  }
}

function requireLaunch({ blocks, threads, parts, inFlight }: DispatchTuning | CombineTuning): void {
  requireInteger('blocks', blocks, 1, 2 ** 16);
  requireInteger('threads / 32', threads / 32, 1, 32);
  requireInteger('parts', parts, 1, 1024);
  requireInteger('inFlight', inFlight, 1, mostInFlight);
}

function requireDispatch(tuning: DispatchTuning): void {
  requireLaunch(tuning);
  if (tuning.way !== 'store' && tuning.way !== 'bulk')
    throw new Error('a dispatch that neither stores rows nor copies them in bulk');
}

function requireCombine(tuning: CombineTuning): void {
  requireLaunch(tuning);
  requireInteger('ahead', tuning.ahead, 0, 1024);
  if (tuning.way !== 'push' && tuning.way !== 'pull')
    throw new Error('a combine that neither pushes nor pulls');
}
