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
export class Regions {
  readonly #regions: (LocalRegion | undefined)[] = [];
  /** Given-up requests that the provider has not reported yet → the region they read from. */
  readonly #abandoned = new Map<string, LocalRegion>();
  /** Closed regions with such requests → their index. */
  readonly #lingering = new Map<LocalRegion, number>();
  readonly #rails: readonly Rail[];

  constructor(rails: readonly Rail[]) {
    this.#rails = rails;
  }

  /** Registers memory on every rail, as region `index`. Indices are never used again. */
  open(index: number, memory: LocalMemory): void {
    const registrations: Registration[] = [];
    const region = { registrations, abandoned: 0 };
    try {
      for (const rail of this.#rails) registrations.push(rail.register(memory));
    } catch (error) {
      this.#release(region);
      throw error;
    }
    this.#regions[index] = region;
  }

  close(index: number): void {
    const region = this.at(index);
    this.#regions[index] = undefined;
    if (region.abandoned > 0) this.#lingering.set(region, index);
    else this.#release(region);
  }

  at(index: number): LocalRegion {
    return this.#regions[index]!;
  }

  /** The data that a peer needs to write to a region, a rail. */
  keys(index: number): RemoteKey[] {
    return this.at(index).registrations.map(({ key, base }) => ({ key, base }));
  }

  /** A request that reads from a region was given up; `key` tells it from all others. */
  abandon(key: string, index: number): void {
    const region = this.at(index);
    region.abandoned++;
    this.#abandoned.set(key, region);
  }

  /** The provider has let go of a request that was given up, if it was one. */
  letGo(key: string): void {
    const region = this.#abandoned.get(key);
    if (region === undefined) return;
    this.#abandoned.delete(key);
    region.abandoned--;
    if (region.abandoned === 0 && this.#lingering.delete(region)) this.#release(region);
  }

  /** Which closed regions linger: their memory must stay. */
  stillLingering(): number[] {
    return [...this.#lingering.values()];
  }

  /** After the endpoints are closed, the provider reads nothing any more. */
  closeAll(): void {
    for (const region of [...this.#regions, ...this.#lingering.keys()]) if (region) this.#release(region);
  }

  #release(region: LocalRegion): void {
    region.registrations.forEach((registration, rail) => {
      this.#rails[rail]!.deregister(registration);
    });
  }
}
