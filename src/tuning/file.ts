/** The files in which measured tunings are kept: what `heddle tune` writes and ExpertParallel reads. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { cacheFolder } from '../cuda/index.js';
import { ArgumentError, requireInteger } from '../errors/index.js';
import { familyNamed, requireKnobs, type Tuning } from '../kernels/index.js';
import h200 from './h200.json' with { type: 'json' };

export const tuningFormat = 'heddle-tuning/2';

/** What was best for one shape on one kind of GPU. */
export interface TunedShape {
  /** The family whose knobs these are. */
  readonly family: string;
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
  readonly format: string;
  readonly date: string;
  readonly shapes: readonly TunedShape[];
}

/** What comes with Heddle: written by `heddle tune` on 4 × H200 (docs/benchmarks.md says how to write it again). */
export const shippedTunings: TuningFile = h200;

/** Where `heddle tune` leaves what it found: $HEDDLE_TUNING, else tuning.json beside the compiled kernels. */
export const tuningPath = (): string => process.env.HEDDLE_TUNING || join(cacheFolder(), 'tuning.json');

/** Reads what `heddle tune` wrote, and refuses what it cannot have written. */
export function readTuning(path: string): TuningFile {
  try {
    const file = JSON.parse(readFileSync(path, 'utf8')) as TuningFile;
    if (file?.format !== tuningFormat || typeof file.date !== 'string' || !Array.isArray(file.shapes))
      throw new Error(`no ${tuningFormat}`);
    for (const { family, gpu, tuning, microseconds, ...numbers } of file.shapes) {
      if (typeof gpu !== 'string') throw new Error('a shape without a GPU');
      if (!(Number.isFinite(microseconds) && microseconds > 0)) throw new Error('a shape without its time');
      requireKnobs(familyNamed(family).knobs, tuning);
      for (const name of ['ranks', 'topK', 'dispatchBytes', 'combineBytes', 'maxTokens'] as const)
        requireInteger(name, numbers[name], 1, 2 ** 40);
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
