/**
 * Scripted runs as text. `a 0:1.40, b 1:0.0` are threads: a is the 40th of block 1 of rank 0. `a w data; a st release.sys flag` are
 * steps, in their order:
 *
 * | step | what it does |
 * | --- | --- |
 * | `a w PLACE`, `a r PLACE` | weak write, weak read of 4 bytes |
 * | `a st ORDER.SCOPE PLACE`, `ld`, `rmw` | atomic store, load, read-modify-write |
 * | `a fence SCOPE`, `a sc SCOPE` | fence; sequentially consistent fence |
 * | `barrier a`, `warp a`, `end a` | a's block meets, a's warp meets, a's launch ends |
 * | `a cp PLACE PLACE`, `a async PLACE PLACE` | starts a bulk copy, or asynchronous loads, of 16 bytes: from, to; `cp2` is of the second group |
 * | `a wait bulk`, `a wait async`, `a read bulk` | awaits its first group of copies; or only that they have read |
 * | `a proxy`, `a proxy shared` | fence between ways to memory |
 * | `launch a,b STREAM`, `early a,b STREAM` | starts a launch of the kernel `a`, whose threads are a and b; `early` starts programmatically |
 * | `a awaits`, `a releases` | awaits the launch before; lets the next begin |
 * | `copy w STREAM PLACE`, `copy r STREAM PLACE` | a copy of 4 bytes on a stream writes, or reads |
 * | `record STREAM`, `await STREAM` | records the event; lets a stream wait for it |
 * | `sync STREAM`, `enqueue STREAM` | its rank's host awaits a stream; the host enqueues to it |
 *
 * A stream is called as its rank, the second one of rank 0 `0'`.
 *
 * A scenario is its name, its threads and `|` and its steps, and what is to be found: `× FIRST SECOND` for each race, by its labels.
 * `node`, `grid`, `block` and `warp` stand for two threads a and b of different ones, `warp` for two of one warp; `streams` for nobody
 * but those of later launches.
 *
 * `@label` behind a step is what findings call it. Without one a write is called as its place, a weak read `use`, a load `poll`, a
 * copy `copy`.
 */
import { nothing } from '../../../../src/gpu/sim/detector/clock.js';
import type { Order, Scope, Space } from '../../../../src/lang/index.js';
import { type Running, Script } from './script.js';

const places: Readonly<Record<string, number>> = {
  data: 0,
  late: 4,
  flag: 512,
  next: 516,
  third: 520,
  far: 4096,
};
const placeOf = (name: string): number => places[name] ?? Number(name);

interface Place {
  readonly running: Running;
  readonly block: number;
  readonly lane: number;
  readonly id: number;
}

/** A launch on each rank, with the threads that are named. */
function placesOf(script: Script, threads: string): Map<string, Place> {
  const named = [...threads.matchAll(/(\w+) (\d+):(\d+)\.(\d+)/g)].map(([, name, rank, block, lane]) => {
    return { name: name!, rank: Number(rank), block: Number(block), lane: Number(lane) };
  });
  const ranks = new Map<number, Running>();
  for (const { rank } of named) {
    const here = named.filter((one) => one.rank === rank);
    const most = (of: 'block' | 'lane') => 1 + Math.max(...here.map((one) => one[of]));
    if (!ranks.has(rank))
      ranks.set(rank, script.launch(script.stream(rank), { blocks: most('block'), threads: most('lane') }));
  }
  return new Map(
    named.map(({ name, rank, block, lane }) => {
      const running = ranks.get(rank)!;
      return [name, { running, block, lane, id: running.thread(block, lane) }];
    }),
  );
}

const pairs: Readonly<Record<string, string>> = {
  warp: 'a 0:0.0, b 0:0.1',
  block: 'a 0:0.0, b 0:0.40',
  grid: 'a 0:0.0, b 0:1.0',
  node: 'a 0:0.0, b 1:0.0',
};

/** The scenarios of a text, between which are empty lines: their names, steps and races. */
export const scenarios = (text: string): (readonly [name: string, steps: string, races: string[]])[] =>
  text
    .trim()
    .split(/\n\s*\n/)
    .map((scenario) => {
      const [name = '', ...lines] = scenario.split('\n').map((line) => line.trim());
      const races = lines.filter((line) => line.startsWith('× '));
      const steps = lines.filter((line) => !races.includes(line));
      return [name, steps.join('\n'), races.map((line) => line.slice(2))] as const;
    });

/** Plays steps, with their threads before them. */
export function play(text: string): Script {
  const script = new Script();
  const buffer = script.buffer();
  const [threads = '', steps = ''] = text.split(' | ');
  const named = placesOf(script, pairs[threads] ?? threads);
  const streams = new Map<string, number>();
  let event = nothing;
  const streamOf = (name: string): number => {
    if (!streams.has(name)) streams.set(name, script.stream(Number.parseInt(name, 10)));
    return streams.get(name)!;
  };
  const start = (names: string, stream: string, programmatic: boolean): void => {
    const threads = names.split(',');
    const options = { threads: threads.length, programmatic, kernel: threads[0]! };
    const running = script.launch(streamOf(stream), options);
    for (const [lane, name] of threads.entries())
      named.set(name, { running, block: 0, lane, id: running.thread(0, lane) });
  };
  const onStreams: Readonly<Record<string, (...words: readonly string[]) => void>> = {
    launch: (names, stream) => start(names!, stream!, false),
    early: (names, stream) => start(names!, stream!, true),
    copy: (kind, stream, place) => {
      const access = kind === 'w' ? 'write' : 'read';
      script.detector.streamAccess(streamOf(stream!), access, buffer, placeOf(place!), 4);
    },
    record: (stream) => {
      event = script.detector.eventRecorded(streamOf(stream!));
    },
    await: (stream) => script.detector.streamHeard(streamOf(stream!), event),
    sync: (stream) => script.detector.hostSynchronized(streamOf(stream!), Number.parseInt(stream!, 10)),
    enqueue: (stream) =>
      script.detector.streamHeard(streamOf(stream!), script.detector.hostKnows(Number.parseInt(stream!, 10))),
  };
  for (const step of steps.split(/[;\n]/).map((step) => step.trim())) {
    if (step === '') continue;
    const [words = '', label] = step.split(' @');
    const [first = '', second = '', ...more] = words.split(' ');
    if (Object.hasOwn(onStreams, first)) {
      onStreams[first]!(second, ...more);
      continue;
    }
    const of = named.get(['barrier', 'warp', 'end'].includes(first) ? second : first);
    if (of === undefined) throw new Error(`nobody is called so in '${step}'`);
    const { running, block, lane, id } = of;
    const atomic = (kind: 'read' | 'write' | 'update', otherwise: string) => {
      const [order, scope] = more[0]!.split('.') as [Order, Scope];
      script.access(id, kind, order, scope, buffer, placeOf(more[1]!), 4, label ?? otherwise);
    };
    const copy = (engine: 'bulk' | 'async', group = 0) =>
      script.bulk(
        id,
        group,
        buffer,
        buffer,
        placeOf(more[0]!),
        16,
        label ?? 'copy',
        engine,
        placeOf(more[1]!),
      );
    if (first === 'barrier') running.barrier(block);
    else if (first === 'warp') running.warp(block, lane >> 5);
    else if (first === 'end') running.end();
    else if (second === 'w') script.write(id, buffer, placeOf(more[0]!), label ?? more[0]!);
    else if (second === 'r') script.read(id, buffer, placeOf(more[0]!), label ?? 'use');
    else if (second === 'st') atomic('write', more[1]!);
    else if (second === 'ld') atomic('read', 'poll');
    else if (second === 'rmw') atomic('update', more[1]!);
    else if (second === 'fence') script.fence(id, more[0] as Scope);
    else if (second === 'sc') script.fence(id, more[0] as Scope, 'seq_cst');
    else if (second === 'cp') copy('bulk');
    else if (second === 'cp2') copy('bulk', 1);
    else if (second === 'async') copy('async');
    else if (second === 'wait' || second === 'read')
      script.detector.copiesAwaited(id, more[0] as 'bulk' | 'async', 0, second === 'read');
    else if (second === 'awaits') script.detector.awaitPrevious(id);
    else if (second === 'releases') script.detector.releaseNext(id);
    else if (second === 'proxy') script.proxyFence(id, (more[0] ?? 'global') as Space);
    else throw new Error(`no step is '${step}'`);
  }
  return script;
}
