/**
 * The picture in docs/split-phases.md: rounds of split phases on the simulated machine, two in flight, each on a stream
 * of its own, as its trace has them. `npx tsx scripts/timeline.ts` writes it anew; the same run gives the same picture.
 */
import { writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { SimMachine, type TraceEntry } from '../src/gpu/sim/index.js';
import { World } from '../src/net/world/index.js';
import { makeSources, runRounds, shapeOfRounds } from '../src/verify/testing/index.js';

const ranks = 2;
const rounds = 4;
const spread = { blocks: 4, threads: 64, teams: 1, parts: 1, inFlight: 4 };

const shape = shapeOfRounds({
  ...{ ranks, experts: 8, topK: 4, maxTokens: 16 },
  ...{ hidden: 256, dtype: 'bf16' },
});
const machine = SimMachine.create({ ranks, seed: 'timeline' });
await World.local({ ranks, device: 'sim', sim: machine }, (world) =>
  runRounds(
    world,
    shape,
    Array.from({ length: rounds }, (_, n) => makeSources(shape, shape.maxTokens, n + 1)),
    {
      ...{ split: true, rounds: 2, experts: { blocks: 4, threads: 64 } },
      tuning: { dispatch: { ...spread }, combine: { ...spread, way: 'push', ahead: 0 } },
    },
  ),
);

/** What a kernel is called in the picture, and its colour. */
const looks: Readonly<Record<string, readonly [label: string, colour: string]>> = {
  one_sided_dispatch_send: ['dispatchSend', '#1f6feb'],
  one_sided_dispatch_recv: ['dispatchRecv', '#79b8ff'],
  example_experts: ['experts', '#8b949e'],
  one_sided_combine_send: ['combineSend', '#1a7f37'],
  one_sided_combine_recv: ['combineRecv', '#7ee787'],
};

const [width, left, top, lane, gap] = [860, 96, 62, 18, 14];

function picture(trace: readonly TraceEntry[]): string {
  const spans = trace.filter(({ kernel }) => Object.hasOwn(looks, kernel));
  const [from, to] = [Math.min(...spans.map(({ start }) => start)), Math.max(...spans.map(({ end }) => end))];
  const x = (step: number): number => left + ((step - from) / (to - from)) * (width - left - 16);
  const streams = [...new Set(spans.map(({ stream }) => stream))].sort();
  // Launches of a stream overlap where the next begins while one still runs: receives stand below their sends.
  const y = ({ stream, kernel }: TraceEntry): number =>
    top + streams.indexOf(stream) * (2 * lane + gap) + (kernel.endsWith('recv') ? lane : 0);
  const height = top + streams.length * (2 * lane + gap) + 26;
  const legend = Object.values(looks).map(
    ([label, colour], i) =>
      `<rect x="${left + i * 130}" y="30" width="12" height="12" fill="${colour}"/>` +
      `<text x="${left + i * 130 + 17}" y="40">${label}</text>`,
  );
  const names = streams.map((stream, i) => {
    const middle = top + i * (2 * lane + gap) + lane;
    const batch = i % 2 === 0 ? 'A' : 'B';
    return `<text x="${left - 8}" y="${middle + 4}" text-anchor="end">${stream.slice(0, 6)}, batch ${batch}</text>`;
  });
  const bars = spans.map((span) => {
    const [label, colour] = looks[span.kernel]!;
    const [start, end] = [x(span.start), x(span.end)];
    const box = `x="${start.toFixed(1)}" y="${y(span)}" width="${Math.max(1, end - start).toFixed(1)}"`;
    return `<rect ${box} height="${lane - 2}" fill="${colour}"><title>${label}, steps ${span.start - from} to ${span.end - from}</title></rect>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="system-ui, sans-serif" font-size="11" fill="#59636e">
<title>Two rounds of split phases in flight</title>
<rect width="${width}" height="${height}" fill="#fff"/>
<text x="${left}" y="18" fill="#1f2328">${rounds} rounds on ${ranks} simulated ranks, two in flight (rounds: 2)</text>
${[...legend, ...names, ...bars].join('\n')}
<text x="${left}" y="${height - 8}">steps of the simulated machine, 0 to ${to - from}: an order of events, not a measured time</text>
</svg>
`;
}

const path = resolve(import.meta.dirname, '../docs/plots/split-phases.svg');
writeFileSync(path, picture(machine.trace));
console.log(path);
