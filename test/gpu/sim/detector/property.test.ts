/** Random runs: the detector and the reference agree on which access races with some earlier one, and what a load may read. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Clock } from '../../../../src/gpu/sim/detector/clock.js';
import type { Order, Scope } from '../../../../src/lang/index.js';
import { type Node, type Place, Reference } from './reference.js';
import { type Running, Script } from './script.js';

const scopes: readonly Scope[] = ['cta', 'gpu', 'sys'];
const threadsPerBlock = 34;
/** Of each block: two lanes of one warp, and one of another. */
const lanes = [0, 1, 33];

type Step = readonly [what: number, who: number, where: number, how: number, scope: number];

interface Live {
  readonly launch: Running;
  readonly places: readonly Place[];
  readonly blocks: readonly number[];
  readonly previous: Live | null;
  ended: Node | null;
  /** By thread: what it learned from awaitPrevious. */
  readonly awaited: Map<number, Node>;
  /** What threads that called releaseNext had awaited. */
  readonly released: (Node | null)[];
}

interface Stream {
  readonly id: number;
  readonly rank: number;
  now: Node;
  early: Node;
  settled: Node;
  readonly running: Live[];
  last: Live | null;
}

/** Runs the same steps on both. Two ranks; rank 0 has two streams. */
class Both {
  readonly script = new Script();
  readonly #memory = this.script.buffer();
  readonly reference = new Reference(this.#memory.i32);
  #labels = 0;
  #stores = 0;
  /** Loads that read something older. */
  stale = 0;
  readonly #streams: readonly Stream[] = [0, 0, 1].map((rank) => ({
    id: this.script.stream(rank),
    rank,
    now: this.#origin(),
    early: this.#origin(),
    settled: this.#origin(),
    running: [],
    last: null,
  }));
  readonly #events = new Map<number, { readonly node: Node; readonly known: Clock }>();
  readonly #hosts = [this.#origin(), this.#origin()];
  /** By thread and engine. */
  readonly #copies = new Map<number, { group: number; read: Node; write: Node }[]>();

  constructor() {
    for (const stream of [0, 2]) this.#launch(stream, 2, false);
    this.#launch(1, 1, false);
  }

  step([what, who, where, how, scope]: Step): void {
    const threads = this.#streams.flatMap(({ running }) =>
      running
        .filter(({ ended }) => ended === null)
        .flatMap((live) => live.places.map((place) => ({ live, launch: live.launch, place }))),
    );
    const stream = this.#streams[who % 3]!;
    if (what >= 90) {
      this.#streamStep(stream, what, where);
      return;
    }
    if (threads.length === 0) return;
    const { live, launch, place } = threads[who % threads.length]!;
    if (what < 30) {
      this.#access(place, ['read', 'write'][how & 1] as 'read', 'weak', 'cta', where);
    } else if (what < 65) {
      const [kind, order] = atomics[how % atomics.length]!;
      this.#access(place, kind, order, scopes[scope % 3]!, atomicSpans[where % atomicSpans.length]!, how);
    } else if (what < 73) {
      if (how % 3 === 2) {
        this.script.detector.proxyFence(place.thread, 'global');
        this.reference.link(place, [this.reference.last(place.thread)]);
        return;
      }
      const strength = how % 2 === 0 ? 'acq_rel' : 'seq_cst';
      this.script.fence(place.thread, scopes[scope % 3]!, strength);
      this.reference.fence(place, scopes[scope % 3]!, strength);
    } else if (what < 80) {
      this.#meet(live, place, how % 3 === 0 ? 'block' : 'warp');
    } else if (what < 84) {
      const owner = this.#streams.find(({ running }) => running.some((r) => r.launch === launch))!;
      this.script.detector.awaitPrevious(place.thread);
      const awaited = this.reference.node(place, [owner.now, live.previous?.ended ?? null]);
      live.awaited.set(place.thread, awaited);
      this.reference.settled.delete(place.thread);
      awaited.links = true;
      const last = this.reference.last(place.thread);
      this.reference.follow([place.thread], this.reference.node(place, [last, awaited]));
    } else if (what < 87) {
      this.script.detector.releaseNext(place.thread);
      live.released.push(live.awaited.get(place.thread) ?? null);
    } else {
      this.#copy(place, where, how);
    }
  }

  #origin() {
    return this.reference.node({ rank: -1, block: -1, thread: -1 }, []);
  }

  #access(
    place: Place,
    kind: 'read' | 'write' | 'update',
    order: Order,
    scope: Scope,
    where: number,
    choice = 0,
  ): void {
    const { offset, bytes } = spans[where % spans.length]!;
    const label = `${this.#labels++}:${kind}.${order}.${scope}`;
    const older = kind === 'read' && order !== 'weak' ? this.#olderValues(place, offset, bytes) : [];
    const chosen = choice % (older.length + 1);
    if (chosen > 0) this.stale++;
    this.script.access(place.thread, kind, order, scope, this.#memory, offset, bytes, label, chosen);
    this.reference.access(place, kind, order, scope, offset, bytes, label, older[chosen - 1]?.node);
    if (kind !== 'read') this.#wrote(offset, bytes);
  }

  /** What a load may read besides the newest: both agree. */
  #olderValues(place: Place, offset: number, bytes: number) {
    const wanted = this.reference.older(place, offset, bytes);
    const found = this.script.detector.olderValues(place.thread, this.#memory, offset, bytes);
    expect(found.map(({ words }) => words[0])).toEqual(wanted.map(({ value }) => value));
    return wanted;
  }

  /** Every store leaves a number of its own. */
  #wrote(offset: number, bytes: number): void {
    this.#memory.i32.fill(++this.#stores, offset >> 2, Math.ceil((offset + bytes) / 4));
  }

  #meet({ launch, places, blocks }: Live, place: Place, kind: 'block' | 'warp'): void {
    const block = blocks.indexOf(place.block);
    const mates = places.filter((p) => p.block === place.block);
    const lane = (p: Place) => lanes[mates.indexOf(p)]!;
    const together = kind === 'block' ? mates : mates.filter((p) => lane(p) >> 5 === lane(place) >> 5);
    if (kind === 'block') launch.barrier(block);
    else launch.warp(block, lane(place) >> 5);
    const threads = together.map(({ thread }) => thread);
    const met = threads.map((thread) => this.reference.last(thread));
    this.reference.follow(threads, this.reference.node(place, met));
  }

  #copy(place: Place, where: number, how: number): void {
    const engine = how & 4 ? 'async' : 'bulk';
    const key = 2 * place.thread + (engine === 'async' ? 1 : 0);
    const issued = this.#copies.get(key) ?? [];
    this.#copies.set(key, issued);
    if (how % 3 === 0) {
      const [source, target] = where & 1 ? [0, 16] : [16, 0];
      const group = issued.length >> 1;
      const label = `${this.#labels++}:copy`;
      const { detector } = this.script;
      const site = this.script.site(label);
      for (const [does, offset] of [
        ['read', source!],
        ['write', target!],
      ] as const)
        detector.copyIssued(place.thread, engine, group, does, { buffer: this.#memory, offset }, 16, site);
      const after = [this.reference.last(place.thread)];
      const read = this.reference.aside(place, after, 'read', source!, 16, label, engine === 'bulk');
      const write = this.reference.aside(place, after, 'write', target!, 16, label, engine === 'bulk');
      this.#wrote(target!, 16);
      issued.push({ group, read, write });
      return;
    }
    const group = where % 3;
    const readsOnly = how % 3 === 1;
    this.script.detector.copiesAwaited(place.thread, engine, group, readsOnly);
    const done = issued.filter((bulk) => bulk.group <= group);
    const node = this.reference.node(place, [
      this.reference.last(place.thread),
      ...done.map(({ read }) => read),
      ...(readsOnly ? [] : done.map(({ write }) => write)),
    ]);
    this.reference.follow([place.thread], node);
  }

  #streamStep(stream: Stream, what: number, where: number): void {
    const { detector } = this.script;
    const place = { rank: stream.rank, block: -1, thread: -1 };
    const alive = stream.running.filter(({ ended }) => ended === null);
    if (what < 93) {
      if (alive.length > 0) this.#endLaunch(stream, alive[where % alive.length]!);
      else this.#launch(this.#streams.indexOf(stream), 1 + (where & 1), false);
    } else if (what === 93) {
      if (stream.running.length < 3) this.#launch(this.#streams.indexOf(stream), 1, true);
    } else if (what === 94) {
      this.#events.set(where % 2, { node: stream.now, known: detector.eventRecorded(stream.id) });
    } else if (what === 95) {
      const { node: event = null, known } = this.#events.get(where % 2) ?? {};
      if (known !== undefined) detector.streamHeard(stream.id, known);
      this.#hears(stream, event);
    } else if (what === 96) {
      detector.hostSynchronized(stream.id, stream.rank);
      this.#hosts[stream.rank] = this.reference.node(place, [this.#hosts[stream.rank]!, stream.now]);
    } else if (what === 97) {
      detector.streamHeard(stream.id, detector.hostKnows(stream.rank));
      this.#hears(stream, this.#hosts[stream.rank]!);
    } else if (stream.running.length === 0) {
      const { offset, bytes } = spans[where % spans.length]!;
      const kind = what === 98 ? 'read' : 'write';
      detector.streamAccess(stream.id, kind, this.#memory, offset, bytes);
      // The host's copies have no site: the findings call them all the same.
      const copy = { ...place, block: -2 - this.#labels++ };
      stream.now = this.reference.aside(copy, [stream.now], kind, offset, bytes, 'stream');
      if (kind === 'write') this.#wrote(offset, bytes);
      stream.early = stream.now;
      stream.settled = stream.now;
    }
  }

  #hears(stream: Stream, node: Node | null): void {
    const place = { rank: stream.rank, block: -1, thread: -1 };
    for (const part of ['now', 'early', 'settled'] as const)
      stream[part] = this.reference.node(place, [stream[part], node]);
  }

  #launch(index: number, blocks: number, programmatic: boolean): void {
    const stream = this.#streams[index]!;
    const origin = { rank: stream.rank, block: -1, thread: -1 };
    const start = programmatic
      ? this.reference.node(origin, [stream.early, ...(stream.last?.released ?? [])])
      : stream.now;
    stream.early = start;
    if (!programmatic) stream.settled = start;
    const launch = this.script.launch(stream.id, { blocks, threads: threadsPerBlock, programmatic });
    const places: Place[] = [];
    const names: number[] = [];
    for (let block = 0; block < blocks; block++) {
      names.push(launch.thread(block, 0));
      for (const lane of lanes) {
        const place = { rank: stream.rank, block: names[block]!, thread: launch.thread(block, lane) };
        places.push(place);
        this.reference.link(place, [start]);
        if (programmatic) this.reference.settled.set(place.thread, stream.settled);
      }
    }
    const previous = stream.running.at(-1) ?? null;
    const live = { launch, places, blocks: names, previous, ended: null, awaited: new Map(), released: [] };
    stream.running.push(live);
    stream.last = live;
  }

  #endLaunch(stream: Stream, live: Live): void {
    const place = { rank: stream.rank, block: -1, thread: -1 };
    live.launch.end();
    live.ended = this.reference.node(place, [
      ...live.places.map((p) => this.reference.last(p.thread)),
      ...live.places.flatMap(({ thread }) =>
        [2 * thread, 2 * thread + 1].flatMap((key) =>
          (this.#copies.get(key) ?? []).flatMap(({ read, write }) => [read, write]),
        ),
      ),
    ]);
    while (stream.running[0]?.ended) {
      stream.now = this.reference.node(place, [stream.now, stream.running.shift()!.ended]);
    }
  }
}

const atomics = [
  ['read', 'relaxed'],
  ['read', 'acquire'],
  ['read', 'acquire'],
  ['write', 'relaxed'],
  ['write', 'release'],
  ['write', 'release'],
  ['update', 'relaxed'],
  ['update', 'acquire'],
  ['update', 'release'],
  ['update', 'acq_rel'],
] as const;

/** Few places, of all sizes: offset + bytes. */
const spans = '0+4 0+4 4+4 4+4 8+8 8+4 16+4 0+16 16+16 20+4 2+2 17+1'.split(' ').map((span) => {
  const [offset, bytes] = span.split('+').map(Number) as [number, number];
  return { offset, bytes };
});

/** Where atomics go: often to the same place, now and then to parts of others. */
const atomicSpans = [0, 0, 0, 2, 2, 4, 5, 7];

/** Labels of the accesses that race with an earlier one; a stream's share one label, and are looked at apart. */
const racingAccesses = (pairs: Iterable<string>) =>
  [...new Set([...pairs].map((pair) => pair.split(' ')[1]!))].filter((label) => label !== 'stream').sort();

/** First accesses of the races whose second is a stream's. */
const racingWithStreams = (pairs: Iterable<string>) =>
  [...pairs]
    .map((pair) => pair.split(' '))
    .filter(([, second]) => second === 'stream')
    .map(([first]) => first!);

describe('against the reference', () => {
  const step = fc.tuple(
    fc.nat(99),
    fc.nat(20),
    fc.nat(11),
    fc.nat(9),
    fc.nat(8),
  ) satisfies fc.Arbitrary<Step>;

  it('finds exactly the racing accesses of random runs, and no pair that is none', () => {
    let racing = 0;
    let ordered = 0;
    let stale = 0;
    fc.assert(
      fc.property(fc.array(step, { minLength: 2, maxLength: 60, size: 'max' }), (steps) => {
        const both = new Both();
        for (const one of steps) both.step(one);
        const found = both.script.races.map((pair) =>
          pair.replaceAll(/a copy or fill on \S+ \S+ of rank \d/g, 'stream'),
        );
        for (const pair of found) expect(both.reference.pairs).toContain(pair);
        expect(racingAccesses(found)).toEqual(racingAccesses(both.reference.pairs));
        const partners = racingWithStreams(both.reference.pairs);
        if (partners.length > 0) {
          expect(
            found.some((pair) => partners.some((p) => pair === `${p} stream` || pair === `stream ${p}`)),
          ).toBe(true);
        }
        racing += both.reference.pairs.size;
        ordered += both.reference.orderedConflicts;
        stale += both.stale;
      }),
      // For a longer hunt: HEDDLE_RUNS=20000 HEDDLE_SEED=… npx vitest run test/gpu/sim/detector/property
      { seed: Number(process.env.HEDDLE_SEED ?? 20261120), numRuns: Number(process.env.HEDDLE_RUNS ?? 250) },
    );
    // Conflicts of both kinds between different threads, or the comparison says little.
    expect(racing).toBeGreaterThan(500);
    expect(ordered).toBeGreaterThan(500);
    expect(stale).toBeGreaterThan(100);
  });
});
