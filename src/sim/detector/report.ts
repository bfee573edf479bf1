/** Turns races into findings: each pair of sites once per buffer and field, with both sides and a hint. */
import type { AccessReport, BufferInfo, Finding, Site, SiteId } from '../detector.js';
import { kindOf, noSite, orderOf, scopeOf, siteOf } from './access.js';
import { type Actor, type Observation, scopeNames } from './actors.js';
import { explain } from './hints.js';

export interface DetectorOptions {
  /** What a site number of an access means. */
  site(id: SiteId): Site;
  /** The seed and the configuration that replay this run; they go into every finding. */
  readonly seed: string;
  readonly configuration: string;
}

/** Describing a place costs far more than comparing clocks; a racy loop need not describe every byte. */
const describedPerPair = 256;

export class RaceReports {
  readonly findings: Finding[] = [];
  private readonly seen = new Set<string>();
  private readonly described = new Map<string, number>();

  constructor(
    private readonly options: DetectorOptions,
    private readonly observations: readonly Observation[],
  ) {}

  race(
    by: Actor,
    epoch: number,
    meta: number,
    as: Actor,
    asMeta: number,
    buffer: BufferInfo,
    offset: number,
  ): void {
    const sites = [siteOf(meta), siteOf(asMeta)].sort((a, b) => a - b).join(' ');
    const pair = `${sites} ${buffer.purpose}`;
    const described = this.described.get(pair) ?? 0;
    if (described === describedPerPair) return;
    this.described.set(pair, described + 1);

    const location = buffer.describe(offset);
    const key = `${pair} ${location.replace(/[\d[].*$/, '')}`;
    if (this.seen.has(key)) return;
    this.seen.add(key);
    const first = this.report(by, meta);
    const second = this.report(as, asMeta);
    this.findings.push({
      seed: this.options.seed,
      configuration: this.options.configuration,
      kind: 'race',
      buffer: buffer.purpose,
      location,
      first,
      second,
      hint: explain(
        { by, epoch, meta, where: first.where },
        { by: as, epoch: as.epoch, meta: asMeta, where: second.where },
        this.observations,
        (id) => this.options.site(id).where,
      ),
    });
  }

  private report(actor: Actor, meta: number): AccessReport {
    const { launch, rank, index, owner } = actor.block;
    const id = siteOf(meta);
    const site = id === noSite ? null : this.options.site(id);
    return {
      kind: kindOf(meta),
      order: orderOf(meta),
      scope: scopeNames[scopeOf(meta)]!,
      rank,
      kernel: launch?.kernel ?? 'host',
      block: index,
      thread: actor.lane,
      where: site?.where ?? `a copy or fill on stream ${owner.id} of rank ${rank}`,
      text: site?.text ?? `${kindOf(meta)} by the host, through the stream`,
    };
  }
}
