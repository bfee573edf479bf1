/** One schedule for people: as a timeline, and the last steps before a finding. */
import type { Slice, Timeline, Track } from '../../base/timeline.js';
import type { Finding } from './detector/detector.js';
import { type Step, stepsOf } from './trace.js';

/** A step takes a µs. Threads are tracks, and so is each block; arrows go from a store to those who read it. */
export function scheduleTimeline(steps: readonly Step[], findings: readonly Finding[]): Timeline {
  const racing = new Set(findings.flatMap((finding) => stepsOf(finding, steps)));
  const tracks = new Map<string, Track>();
  const order = [...new Set(steps.map(trackOf))].sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
  const slices = steps.map((step, i): Slice => {
    const key = trackOf(step);
    const { rank, kernel, block, thread } = step;
    const name = `${kernel}, block ${block}${thread === null ? '' : `, thread ${thread}`}`;
    const track = { rank, track: order.indexOf(key), name };
    tracks.set(key, track);
    const start = step.since ?? i;
    const args = { does: does(step), where: step.where, text: step.text };
    const category = racing.has(i) ? 'finding' : step.since === null ? step.kind : 'wait';
    const mark = racing.has(i) ? '⚠ ' : '';
    return { ...track, name: `${mark}${named(step)}`, category, start, end: i + 1, args };
  });
  return {
    tracks: order.map((key) => tracks.get(key)!),
    slices,
    arrows: steps.flatMap(({ sees }, i) => {
      return typeof sees === 'number' ? [{ name: 'sees', from: slices[sees]!, to: slices[i]! }] : [];
    }),
  };
}

const trackOf = ({ rank, stream, kernel, block, thread }: Step): string =>
  `${rank} ${stream} ${kernel} ${block} ${thread ?? ''}`;

const verbs = { read: 'reads', write: 'stores', update: 'updates', wait: 'waits for' } as const;

/** 'reads 3 of counts' */
function named(step: Step): string {
  const { kind, text, value, buffer, location, since } = step;
  if (kind === 'fence' || kind === 'barrier') return text;
  const verb = kind === 'read' && since !== null ? 'waited, reads' : verbs[kind];
  const joint = { read: 'of', write: 'to', update: 'in', wait: 'in' }[kind];
  return `${verb}${value === '' ? '' : ` ${value}`} ${joint} ${buffer}, ${location}`;
}

function does(step: Step): string {
  const older = step.sees === 'older' ? ', an older value' : '';
  return `${named(step)}${step.strength === '' ? '' : `, ${step.strength}`}${older}`;
}

/** At most so many are shown. */
const shown = 12;

/** The last steps before a finding, those that race marked: threads that do the same, one after the other, in one line. */
export function lastSteps(finding: Finding, steps: readonly Step[]): string {
  const racing = stepsOf(finding, steps);
  const until = (racing.at(-1) ?? steps.length - 1) + 1;
  const lines: { first: number; last: number; step: Step }[] = [];
  for (const [i, step] of steps.slice(0, until).entries()) {
    const before = lines.at(-1);
    const together =
      before !== undefined &&
      before.step.where === step.where &&
      before.step.kind === step.kind &&
      before.step.rank === step.rank &&
      before.step.block === step.block &&
      !racing.includes(i) &&
      !racing.includes(before.last);
    if (together) before.last = i;
    else lines.push({ first: i, last: i, step });
  }
  const chosen = lines.filter(({ last }, n) => n >= lines.length - shown || racing.includes(last));
  const width = String(until).length;
  return chosen
    .map(({ first, last, step }, n) => {
      const gap = n > 0 && chosen[n - 1]!.last + 1 < first ? `  ${' '.repeat(width)}  …\n` : '';
      const mark = racing.includes(last) ? '→ ' : '  ';
      const count = last - first + 1;
      const { rank, block, thread, where } = step;
      const who = count > 1 ? `, ${count} threads` : thread === null ? '' : `, thread ${thread}`;
      const number = String(last + 1).padStart(width);
      return `${gap}${mark}${number}  rank ${rank}, block ${block}${who}: ${does(step)}${where === '' ? '' : `  (${where})`}`;
    })
    .join('\n');
}
