import type { RemoteKey } from '../libfabric/address.js';
import type { LocalMemory, Rail, Registration } from '../libfabric/endpoint.js';

/** Registered memory of this process, on every rail. */
interface LocalRegion {
  readonly registrations: readonly Registration[];
  /** Requests that were given up while the provider may still read this memory. */
  abandoned: number;
}

/**
 * The core's side of regions. A region that is closed while the provider may still read it, for a request to a
 * peer that was lost, lingers until the provider reports that request after all.
 */
export function createRegions(rails: readonly Rail[]) {
  const regions: (LocalRegion | undefined)[] = [];
  /** Given-up requests that the provider has not reported yet → the region they read from. */
  const abandoned = new Map<string, LocalRegion>();
  /** Closed regions with such requests → their index. */
  const lingering = new Map<LocalRegion, number>();

  /** Registers memory on every rail, as region `index`, and tells what a peer needs to write there. Indices are never used again. */
  function open(index: number, memory: LocalMemory): RemoteKey[] {
    const registrations: Registration[] = [];
    const region = { registrations, abandoned: 0 };
    try {
      for (const rail of rails) registrations.push(rail.register(memory));
    } catch (error) {
      release(region);
      throw error;
    }
    regions[index] = region;
    return registrations.map(({ key, base }) => ({ key, base }));
  }

  function close(index: number): void {
    const region = at(index);
    regions[index] = undefined;
    if (region.abandoned > 0) lingering.set(region, index);
    else release(region);
  }

  function at(index: number): LocalRegion {
    return regions[index]!;
  }

  /** A request that reads from a region was given up; `key` tells it from all others. */
  function abandon(key: string, index: number): void {
    const region = at(index);
    region.abandoned++;
    abandoned.set(key, region);
  }

  /** The provider has let go of a request that was given up, if it was one. */
  function letGo(key: string): void {
    const region = abandoned.get(key);
    if (region === undefined) return;
    abandoned.delete(key);
    region.abandoned--;
    if (region.abandoned === 0 && lingering.delete(region)) release(region);
  }

  function stillLingering(): number[] {
    return [...lingering.values()];
  }

  /** The provider knows none of this memory any more, and peers reach nothing of it. */
  function closeAll(): void {
    for (const region of [...regions, ...lingering.keys()]) if (region) release(region);
  }

  function release(region: LocalRegion): void {
    region.registrations.forEach((registration, rail) => {
      rails[rail]!.deregister(registration);
    });
  }

  return { open, close, at, abandon, letGo, stillLingering, closeAll };
}
