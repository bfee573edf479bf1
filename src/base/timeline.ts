/** Timelines in Chrome's trace format, which ui.perfetto.dev opens: ranks are processes. */

export interface Track {
  readonly rank: number;
  /** Its number among those of the rank: they are shown in that order. */
  readonly track: number;
  readonly name: string;
}

/** A piece of work on a track, from µs to µs. */
export interface Slice extends Track {
  readonly category: string;
  readonly start: number;
  readonly end: number;
  /** More to read where it is clicked. */
  readonly args?: Readonly<Record<string, string | number>>;
}

/** An arrow from the end of one slice to the end of another. */
export interface Arrow {
  readonly name: string;
  readonly from: Slice;
  readonly to: Slice;
}

export interface Timeline {
  readonly tracks: readonly Track[];
  readonly slices: readonly Slice[];
  readonly arrows: readonly Arrow[];
}

export function chromeTrace({ tracks, slices, arrows }: Timeline): {
  readonly traceEvents: readonly object[];
} {
  const ranks = [...new Set(tracks.map(({ rank }) => rank))];
  // An arrow ends shortly before the end of its slice: exactly at the end Perfetto would take the next one.
  const at = ({ rank, track, start, end }: Slice) => ({
    ...{ pid: rank, tid: track, ts: end - (end - start) / 1000 },
  });
  return {
    traceEvents: [
      ...ranks.map((pid) => ({ ph: 'M', name: 'process_name', pid, args: { name: `rank ${pid}` } })),
      ...tracks.flatMap(({ rank: pid, track: tid, name }) => [
        { ph: 'M', name: 'thread_name', pid, tid, args: { name } },
        { ph: 'M', name: 'thread_sort_index', pid, tid, args: { sort_index: tid } },
      ]),
      ...slices.map(({ rank: pid, track: tid, name, category: cat, start: ts, end, args }) => ({
        ...{ ph: 'X', name, cat, pid, tid, ts, dur: end - ts, ...(args && { args }) },
      })),
      ...arrows.flatMap(({ name, from, to }, id) => [
        { ph: 's', id, name, cat: name, ...at(from) },
        { ph: 'f', bp: 'e', id, name, cat: name, ...at(to) },
      ]),
    ],
  };
}
