import type { Detector, Finding } from './detector.js';
import { RaceDetector } from './race-detector.js';
import type { DetectorOptions } from './report.js';

export type { DetectorOptions } from './report.js';

/** A race detector for one run of the simulated machine. Feed it events; read `findings` at any time. */
export function createDetector(
  options: DetectorOptions,
): Detector & { readonly findings: readonly Finding[] } {
  return new RaceDetector(options);
}
