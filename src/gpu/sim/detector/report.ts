/** Turns races into findings: each pair of sites once per buffer and field, with both sides and a hint. */

import { kindOf, type Made, noSite, orderOf, scopeOf, siteOf } from './access.js';
import { type Actor, type Observation, ReleaseHead, scopeNames, sys } from './actors.js';
import {
  type AccessReport,
  type Assumption,
  type BufferInfo,
  type Finding,
  originOf,
  type Site,
  type SiteId,
} from './detector.js';
import { explain, type Hint } from './hints.js';
import type { Access, Cell } from './shadow.js';
import { inWordsOf } from './words.js';

export interface DetectorOptions {
  site(id: SiteId): Site;
  /** The seed and the configuration that replay this run; they go into every finding. */
  readonly seed: string;
  readonly configuration: string;
  /** What GPUs are taken to order besides PTX's memory model. */
  readonly assume?: readonly Assumption[];
}

/** Describing a place costs far more than comparing clocks; a racy loop need not describe every byte. */
const describedPerPair = 256;

type RaceFinding = Extract<Finding, { kind: 'race' }>;

export class RaceReports {
  readonly findings: RaceFinding[] = [];
  readonly #seen = new Set<string>();
  readonly #described = new Map<string, number>();
  readonly #options: DetectorOptions;
  readonly #observations: readonly Observation[];

  constructor(options: DetectorOptions, observations: readonly Observation[]) {
    this.#options = options;
    this.#observations = observations;
  }

  race(first: Made, now: Access, buffer: BufferInfo, cell: Cell): void {
    const { me, as, meta, offset } = now;
    const second: Made = { by: as, epoch: as.epoch, meta };
    const sites = [siteOf(first.meta), siteOf(second.meta)].sort((a, b) => a - b).join(' ');
    const pair = `${sites} ${buffer.purpose}`;
    const described = this.#described.get(pair) ?? 0;
    if (described === describedPerPair) return;
    this.#described.set(pair, described + 1);

    const location = buffer.describe(offset);
    const key = `${pair} ${location.replace(/[\d[].*$/, '')}`;
    if (this.#seen.has(key)) return;
    this.#seen.add(key);
    const options = this.#options;
    const { seed, configuration } = options;
    const one = reportOf(options, first.by, first.meta);
    const other = reportOf(options, second.by, second.meta);
    const thread = as.copies === null ? me : as.block.threads[as.lane]!;
    const known = new ReleaseHead(thread, sys);
    // So that what explains this is told from what its thread does later.
    thread.endEpoch();
    thread.touched = true;
    const hint = explain(
      { ...first, where: one.where },
      { ...second, where: other.where },
      {
        known,
        space: buffer.space,
        writtenBefore: cell.allWrites.some((write) => siteOf(write.meta) === siteOf(second.meta)),
        observations: this.#observations,
        where: whereIs(options),
      },
    );
    let made: Hint | null = null;
    const told = (): Hint => {
      made ??= hint();
      return made;
    };
    this.findings.push({
      seed,
      configuration,
      kind: 'race',
      buffer: buffer.purpose,
      location,
      first: one,
      second: other,
      // Made when first asked for: what threads do after a race can tell what was missing before it.
      get hint() {
        return inWordsOf(one.where, inWordsOf(other.where, told().text));
      },
      get mend() {
        return told().mend;
      },
    });
  }
}

export function reportOf(options: DetectorOptions, by: Actor, meta: number): AccessReport {
  const { launch, rank, index, owner } = by.block;
  const id = siteOf(meta);
  const site = id === noSite ? null : options.site(id);
  return {
    kind: kindOf(meta),
    order: orderOf(meta),
    scope: scopeNames[scopeOf(meta)]!,
    rank,
    kernel: launch?.kernel ?? 'the host',
    block: index,
    thread: by.lane,
    where: site?.where ?? `a copy or fill on stream ${owner.id} of rank ${rank}`,
    text: site?.text ?? `${kindOf(meta)} by the host, through the stream`,
    ...originOf(launch === null ? by.block.origin : launch.origin),
  };
}

export function whereIs(options: DetectorOptions): (site: SiteId) => string {
  return (id) => (id === noSite ? 'the copy' : options.site(id).where);
}
