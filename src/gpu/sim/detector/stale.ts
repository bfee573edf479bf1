/** Loads that read something older than what was there, and accesses that came late: what explains a wrong result that follows from it. */

import { bytesOf, siteOf } from './access.js';
import { type Actor, type Observation, ReleaseHead, sys } from './actors.js';
import type { BufferInfo, StaleRead } from './detector.js';
import { explainStale } from './hints.js';
import { type Location, type Version, wordsAt } from './location.js';
import { type DetectorOptions, reportOf, whereIs } from './report.js';
import { inWordsOf } from './words.js';

interface Record {
  readonly reader: Actor;
  readonly epoch: number;
  readonly meta: number;
  readonly known: ReleaseHead;
  readonly buffer: BufferInfo;
  readonly offset: number;
  readonly read: Version;
  readonly missing: Version;
  readonly missingWords: readonly number[];
}

/** The latest of so many pairs of a load and a store that it missed are kept. */
const kept = 16;

export class StaleReads {
  /** By the sites of the load and of the store; the latest of each, the latest last. */
  readonly #records = new Map<string, Record>();
  readonly #late = new Map<string, () => StaleRead>();
  readonly #options: DetectorOptions;
  readonly #observations: readonly Observation[];

  constructor(options: DetectorOptions, observations: readonly Observation[]) {
    this.#options = options;
    this.#observations = observations;
  }

  add(reader: Actor, meta: number, location: Location, read: Version, buffer: BufferInfo): void {
    const missing = location.newest;
    const key = `${siteOf(meta)} ${siteOf(missing.write!.meta)}`;
    this.#records.delete(key);
    this.#records.set(key, {
      reader,
      epoch: reader.epoch,
      meta,
      known: new ReleaseHead(reader, sys),
      buffer,
      offset: location.offset,
      read,
      missing,
      missingWords: wordsAt(buffer.i32, location.offset, location.bytes),
    });
    if (this.#records.size > kept) this.#records.delete(this.#records.keys().next().value!);
  }

  /** An access of a thread came behind a store that stands behind it. */
  came(by: Actor, late: number, passed: number, buffer: BufferInfo, offset: number): void {
    this.#late.set(`${siteOf(late)} ${siteOf(passed)}`, () => {
      const [load, missing] = [late, passed].map((meta) => reportOf(this.#options, by, meta));
      return {
        ...{ buffer: buffer.purpose, location: buffer.describe(offset), load: load!, missing: missing! },
        ...{ value: '', from: null, missingValue: null, mend: null },
        hint: inWordsOf(
          load!.where,
          `Nothing keeps the two in order: acquire at ${load!.where}, release at ${missing!.where}, or put g.fence between them.`,
        ),
      };
    });
  }

  /** Reports stale reads that nothing made good: whoever polls reads a place again until it sees what it missed. */
  reports(): StaleRead[] {
    const all = [...this.#records.values()];
    const lasting = all.filter(({ missing, reader, meta }) => !missing.wasSeenBy(reader, meta));
    const older = (lasting.length > 0 ? lasting : all).map((record) => this.#report(record));
    return [...older, ...[...this.#late.values()].map((report) => report())];
  }

  #report({ reader, epoch, meta, known, buffer, offset, read, missing, missingWords }: Record): StaleRead {
    const write = missing.write!;
    const bytes = bytesOf(meta);
    const load = reportOf(this.#options, reader, meta);
    const stored = reportOf(this.#options, write.moment.by, write.meta);
    const { text, mend } = explainStale(
      { by: write.moment.by, epoch: write.moment.epoch, meta: write.meta, where: stored.where },
      { by: reader, epoch, meta, where: load.where },
      { known, writtenBefore: false, observations: this.#observations, where: whereIs(this.#options) },
    );
    return {
      buffer: buffer.purpose,
      location: buffer.describe(offset),
      load,
      value: textOf(read.words, offset, bytes),
      from: read.write === null ? null : reportOf(this.#options, read.write.moment.by, read.write.meta),
      missing: stored,
      missingValue: textOf(missingWords, offset, bytes),
      hint: inWordsOf(load.where, text),
      mend,
    };
  }
}

function textOf(words: readonly number[], offset: number, bytes: number): string {
  if (bytes < 4) return String((words[0]! >>> (8 * (offset & 3))) & (2 ** (8 * bytes) - 1));
  if (bytes === 4) return String(words[0]! >>> 0);
  return words.toReversed().reduce((text, word) => text + (word >>> 0).toString(16).padStart(8, '0'), '0x');
}
