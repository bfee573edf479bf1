import type { BufferInfo, SiteId } from './detector/detector.js';
import type { Detector } from './detector/race-detector.js';

/** The events of the machine that it wants to hear of, under the names that the detector uses. */
export type Watcher = Partial<
  Pick<
    Detector,
    'launchStarted' | 'blockStarted' | 'blockEnded' | 'access' | 'fence' | 'blockBarrier' | 'warpMet'
  > & {
    /** A thread comes to a wait, and looks from now on. */
    waitStarted(thread: number, site: SiteId, buffer: BufferInfo, offset: number, wanted: number): void;
  }
>;

/** A detector of which a watcher hears each event just before it. */
export function watched(detector: Detector, watcher: Watcher): Detector {
  return new Proxy(detector, {
    get(target, name) {
      const handle: unknown = Reflect.get(target, name);
      const tell: unknown = Reflect.get(watcher, name);
      if (typeof handle !== 'function') return handle;
      return (...args: unknown[]) => {
        if (typeof tell === 'function') tell.apply(watcher, args);
        return handle.apply(target, args);
      };
    },
  });
}
