/** How kernels are spread over a device, as it was measured: the files that keep it, and the nearest shape in them. */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { ArgumentError, messageOf, requireInteger } from '../../base/errors.js';
import { makeFolder, readRegular, warnOnce, writeWhole } from '../../base/files/index.js';
import { cacheFolder } from '../../gpu/cuda/index.js';
import type { Device } from '../../gpu/index.js';
import { type Family, familyNamed, requireKnobs, type Tuning } from '../families/index.js';
import { combineRowBytes, dispatchRowBytes, type Shape } from '../layer/index.js';
import h200 from './h200.json' with { type: 'json' };

export const tuningFormat = 'heddle-tuning/2';

/** The best settings for one shape on one kind of GPU. */
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
  /** How long a round took with it when it was found. */
  readonly microseconds: number;
}

export interface TuningFile {
  readonly format: string;
  readonly date: string;
  readonly shapes: readonly TunedShape[];
}

/** The tunings that come with Heddle: written by `heddle tune` on 4 × H200 (docs/benchmarks.md says how to write it again). */
export const shippedTunings: TuningFile = h200;

/** Where `heddle tune` leaves what it found: $HEDDLE_TUNING, else tuning.json beside the compiled kernels. */
export const tuningPath = (): string => process.env.HEDDLE_TUNING || join(cacheFolder(), 'tuning.json');

/** Reads what `heddle tune` wrote, and refuses what it cannot have written. */
export function readTuning(path: string): TuningFile {
  try {
    const file = JSON.parse(readRegular(path).toString()) as TuningFile;
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
    const reason = messageOf(error);
    const possible = `as \`heddle tune\` writes it (${reason}); delete it, and tune again`;
    throw new ArgumentError('tuning file', path, possible);
  }
}

/** The shapes in a file; none where there is no file. @throws ArgumentError where something else lies there. */
export const tunedIn = (path: string): readonly TunedShape[] =>
  existsSync(path) ? readTuning(path).shapes : [];

/** Adds a shape to a file, in place of what was found for it before. Programs that read it meanwhile find it whole. */
export function keepTuned(path: string, found: TunedShape): void {
  const same = (other: TunedShape): boolean =>
    (['family', 'gpu', 'ranks', 'topK', 'dispatchBytes', 'combineBytes', 'maxTokens'] as const).every(
      (key) => other[key] === found[key],
    );
  const others = tunedIn(path).filter((shape) => !same(shape));
  const file: TuningFile = {
    format: tuningFormat,
    date: new Date().toISOString().slice(0, 10),
    shapes: [...others, found].sort((a, b) => a.maxTokens - b.maxTokens),
  };
  // The folder also holds compiled kernels, so only this user may write to it.
  makeFolder(dirname(path), 0o700);
  writeWhole(path, `${JSON.stringify(file, null, 2)}\n`);
}

/** The settings that were measured for a shape like this, with this family, on a GPU like this; null where nothing was. */
export function tunedFor(
  family: Pick<Family, 'name'>,
  shape: Shape,
  device: Pick<Device, 'kind' | 'model'>,
): Tuning | null {
  if (device.kind === 'sim') return null;
  const here = { family: family.name, gpu: device.model };
  return nearest(shape, here, ownShapes()) ?? nearest(shape, here, shippedTunings.shapes);
}

/** The tunings that `heddle tune` found here. A file that cannot be used costs time, not results. */
function ownShapes(): readonly TunedShape[] {
  try {
    return tunedIn(tuningPath());
  } catch (error) {
    const reason = messageOf(error);
    warnOnce('HEDDLE_TUNING', `what was tuned here is not used: ${reason}`);
    return [];
  }
}

/** Farther apart than this (in doublings) two shapes are not alike. Tuning doubles the tokens from shape to shape. */
const mostDoublings = 0.5;

/** The tuning of the most similar shape of the same family, GPU and as many ranks. */
export function nearest(
  shape: Shape,
  { family, gpu }: Pick<TunedShape, 'family' | 'gpu'>,
  shapes: readonly TunedShape[],
): Tuning | null {
  let best: TunedShape | null = null;
  let least = Number.POSITIVE_INFINITY;
  for (const known of shapes) {
    if (known.family !== family || known.gpu !== gpu || known.ranks !== shape.ranks) continue;
    const tokens = doublings(known.maxTokens, shape.maxTokens);
    const dispatch = doublings(known.dispatchBytes, dispatchRowBytes(shape));
    const combine = doublings(known.combineBytes, combineRowBytes(shape));
    if (Math.max(tokens, dispatch, combine) > mostDoublings) continue;
    const distance = tokens + dispatch + combine + doublings(known.topK, shape.topK) / 4;
    if (distance < least) {
      least = distance;
      best = known;
    }
  }
  return best?.tuning ?? null;
}

const doublings = (a: number, b: number): number => Math.abs(Math.log2(a / b));
