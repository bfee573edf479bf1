import type { Compiled } from './compiled.js';
import type { Site, SiteId } from './detector.js';

/** Numbers the statements of all kernels that a machine has loaded. */
export class SiteRegistry {
  private readonly first = new Map<Compiled, SiteId>();
  private readonly hostSites = new Map<string, SiteId>();
  private readonly sites: Site[] = [];

  /** The number of the kernel's first statement; the others follow. */
  register(compiled: Compiled): SiteId {
    let first = this.first.get(compiled);
    if (first === undefined) {
      first = this.sites.length;
      this.first.set(compiled, first);
      for (const site of compiled.sites) this.sites.push(site);
    }
    return first;
  }

  /** The number of a line of a host program. */
  ofHost(where: string): SiteId {
    let id = this.hostSites.get(where);
    if (id === undefined) {
      id = this.sites.length;
      this.hostSites.set(where, id);
      this.sites.push({
        kernel: 'the host',
        span: { start: 0, end: 0, source: 0 },
        where,
        text: 'by the host',
      });
    }
    return id;
  }

  site(id: SiteId): Site {
    return this.sites[id]!;
  }
}
