/** The rows of a report: what was measured of whom, with rates and shares. */
import { gigabytes, type Spread } from './statistics.js';
import type { PhaseBytes, RoundBytes } from './workload.js';

export const measuredPhases = ['dispatch', 'combine', 'both'] as const;
export type MeasuredPhase = (typeof measuredPhases)[number];
/** In the order in which a report shows them. */
export const subjects = [
  ...(['heddle', 'nccl sparse', 'nccl dense', 'nccl gather', 'nvshmem dense'] as const),
  ...(['stores', 'loads', 'network', 'heddle placed'] as const),
] as const;
export type Subject = (typeof subjects)[number];

/** A time, in the report's unit, and rates; null where there are none. */
export type Row = ReturnType<typeof rowsOf>[number];

/** Rows in the order in which a report shows them. Times that a GPU took (`real`) have rates beside them; those of the simulator have none. */
export function rowsOf(
  times: ReadonlyMap<string, Spread>,
  bytes: Pick<RoundBytes, 'dispatch' | 'combine'>,
  real = true,
) {
  const measured = (subject: Subject, phase: MeasuredPhase) => times.get(`${subject}/${phase}`) ?? null;
  const median = (subject: Subject, phase: MeasuredPhase) => measured(subject, phase)?.median ?? null;
  const both: PhaseBytes = {
    physical: bytes.dispatch.physical + bytes.combine.physical,
    logical: bytes.dispatch.logical + bytes.combine.logical,
    busiest: bytes.dispatch.busiest + bytes.combine.busiest,
  };
  const moved = { ...bytes, both };
  const sum = (a: number | null, b: number | null, sign = 1) =>
    a === null || b === null ? null : a + sign * b;
  const derived: Readonly<Partial<Record<string, { readonly how: string; readonly time: number | null }>>> = {
    'heddle/combine': {
      how: 'both − dispatch',
      time: sum(median('heddle', 'both'), median('heddle', 'dispatch'), -1),
    },
    'stores/both': {
      how: 'dispatch + combine',
      time: sum(median('stores', 'dispatch'), median('stores', 'combine')),
    },
  };
  const timeOf = (subject: Subject, phase: MeasuredPhase): number | null =>
    median(subject, phase) ?? derived[`${subject}/${phase}`]?.time ?? null;
  const limit = times.has('network/both') ? 'network' : 'stores';
  return subjects.flatMap((subject) =>
    measuredPhases.flatMap((phase) => {
      const time = timeOf(subject, phase);
      if (time === null) return [];
      const isCeiling = subject === 'stores' || subject === 'loads' || subject === 'network';
      // Ceilings move the busiest GPU's bytes on every GPU.
      const { physical, logical, busiest } = moved[phase];
      const [nccl, ceiling] = [median('nccl sparse', phase), timeOf(limit, phase)];
      const row = {
        // The median over iterations of the slowest rank's time.
        ...{ subject, phase, time, spread: measured(subject, phase) },
        // How, where the time was calculated rather than measured.
        derived: derived[`${subject}/${phase}`]?.how ?? null,
        // Bytes that cross NVLink per GPU ÷ time, and those that the layer asks for (a row for every route), GB/s.
        physical: !real || subject === 'network' ? null : gigabytes(isCeiling ? busiest : physical, time),
        logical: !real || isCeiling ? null : gigabytes(logical, time),
        // The time that plain stores of the busiest GPU's bytes take, or between nodes the same messages by the network alone, ÷ this time.
        ofCeiling: !real || ceiling === null || isCeiling ? null : ceiling / time,
        // NCCL's sparse all-to-all for the same phase ÷ this time.
        overNccl: nccl === null || isCeiling ? null : nccl / time,
      };
      return [row];
    }),
  );
}

export const rowOf = (
  { rows }: { readonly rows: readonly Row[] },
  subject: Subject,
  phase: MeasuredPhase,
): Row | undefined => rows.find((row) => row.subject === subject && row.phase === phase);
