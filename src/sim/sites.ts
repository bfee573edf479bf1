import type { Compiled } from './compiled.js';
import type { Site, SiteId } from './detector.js';

/** Numbers the statements of all kernels that a machine has loaded. */
export class SiteRegistry {
  private readonly first = new Map<Compiled, SiteId>();
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

  site(id: SiteId): Site {
    return this.sites[id]!;
  }
}
