/** Each kind of edge that orders two accesses, and what does not. */
import { describe, expect, it } from 'vitest';
import { type Running, Script } from './script.js';

/** Two threads of one block (different warps), of two blocks, or of two ranks; and a buffer. */
function pair(apart: 'warp' | 'block' | 'grid' | 'node') {
  const script = new Script();
  const buffer = script.buffer();
  let a: number;
  let b: number;
  let launch: Running;
  if (apart === 'node') {
    launch = script.launch(script.stream(0));
    a = launch.thread(0, 0);
    b = script.launch(script.stream(1)).thread(0, 0);
  } else {
    launch = script.launch(script.stream(0), { blocks: 2, threads: 64 });
    a = launch.thread(0, 0);
    b =
      apart === 'warp' ? launch.thread(0, 1) : apart === 'block' ? launch.thread(0, 40) : launch.thread(1, 0);
  }
  return { script, buffer, a, b, launch };
}

const flag = 512;

describe('conflicts', () => {
  it('reports a write and a read of two threads that nothing orders, both ways round', () => {
    for (const kinds of [
      ['write', 'read'],
      ['read', 'write'],
      ['write', 'write'],
    ] as const) {
      const { script, buffer, a, b } = pair('block');
      script.access(a, kinds[0], 'weak', 'cta', buffer, 0, 4, 'first');
      script.access(b, kinds[1], 'weak', 'cta', buffer, 0, 4, 'second');
      expect(script.races).toEqual(['first second']);
    }
  });

  it('lets threads read together, and one thread do as it likes', () => {
    const { script, buffer, a, b } = pair('block');
    script.read(a, buffer, 0, 'a');
    script.read(b, buffer, 0, 'b');
    script.write(a, buffer, 64, 'own write');
    script.read(a, buffer, 64, 'own read');
    expect(script.races).toEqual([]);
  });

  it('names the last of a thread’s reads: it is the one that came too late', () => {
    const { script, buffer, a, b } = pair('block');
    for (const where of ['early', 'again', 'late']) script.read(a, buffer, 0, where);
    script.write(b, buffer, 0, 'write');
    expect(script.races).toEqual(['late write']);
    // Atomic ones have a record in full.
    for (const where of ['early', 'late']) script.load(a, 'relaxed', 'gpu', buffer, flag, where);
    script.write(b, buffer, flag, 'other write');
    expect(script.races).toContain('late other write');
  });

  it('remembers every reader that a write may race with', () => {
    const script = new Script();
    const buffer = script.buffer();
    const launch = script.launch(script.stream(), { blocks: 3 });
    script.read(launch.thread(0, 0), buffer, 0, 'r0');
    script.read(launch.thread(1, 0), buffer, 0, 'r1');
    script.write(launch.thread(2, 0), buffer, 0, 'w');
    expect(script.races.sort()).toEqual(['r0 w', 'r1 w']);
  });

  it('looks at bytes, not at words: neighbours do not conflict, overlaps do', () => {
    const { script, buffer, a, b } = pair('grid');
    script.write(a, buffer, 0, 'vector', 16);
    script.write(b, buffer, 16, 'next vector', 16);
    script.write(a, buffer, 36, 'u32');
    script.write(b, buffer, 32, 'u32 before', 4);
    script.write(b, buffer, 40, 'u32 after', 4);
    script.write(a, buffer, 51, 'byte', 1);
    script.write(b, buffer, 50, 'byte before', 1);
    expect(script.races).toEqual([]);
    script.read(b, buffer, 12, 'tail of the vector');
    script.write(b, buffer, 32, 'over the u32', 16);
    expect(script.races).toEqual(['vector tail of the vector', 'u32 over the u32']);
  });

  it('sees ranges that cross pages', () => {
    const script = new Script();
    const buffer = script.buffer();
    const stream = script.stream();
    const other = script.launch(script.stream());
    script.detector.streamAccess(stream, 'write', buffer, 1000, 5000);
    script.read(other.thread(0, 0), buffer, 996, 'before');
    script.read(other.thread(0, 0), buffer, 6000, 'after');
    expect(script.races).toEqual([]);
    script.read(other.thread(0, 0), buffer, 5996, 'last');
    expect(script.races).toHaveLength(1);
  });

  it('reports a pair of sites once', () => {
    const { script, buffer, a, b } = pair('block');
    const write = { kind: 'write', order: 'weak', scope: 'cta', bytes: 4 } as const;
    const report = () => {
      script.detector.access(a, write, 0, buffer, 0);
      script.detector.access(b, write, 1, buffer, 0);
    };
    script.write(a, buffer, 800, 'one');
    script.write(b, buffer, 804, 'two');
    report();
    report();
    expect(script.races).toEqual(['one two']);
  });
});

describe('barriers', () => {
  it('a block barrier orders the threads of its block, and no others', () => {
    const { script, buffer, a, b, launch } = pair('block');
    script.write(a, buffer, 0, 'before');
    launch.barrier(0);
    script.read(b, buffer, 0, 'after');
    expect(script.races).toEqual([]);
    script.read(launch.thread(1, 0), buffer, 0, 'elsewhere');
    expect(script.races).toEqual(['before elsewhere']);
  });

  it('a block barrier does not order what follows it', () => {
    const { script, buffer, a, b, launch } = pair('block');
    launch.barrier(0);
    script.write(a, buffer, 0, 'first');
    script.read(b, buffer, 0, 'second');
    expect(script.races).toEqual(['first second']);
  });

  it('a warp that meets orders its lanes only', () => {
    const { script, buffer, a, b, launch } = pair('warp');
    script.write(a, buffer, 0, 'before');
    launch.warp(0, 0);
    script.read(b, buffer, 0, 'lane');
    expect(script.races).toEqual([]);
    script.read(launch.thread(0, 32), buffer, 0, 'other warp');
    expect(script.races).toEqual(['before other warp']);
  });

  it('hands on what a thread learnt elsewhere', () => {
    const script = new Script();
    const buffer = script.buffer();
    const launch = script.launch(script.stream(), { threads: 64 });
    const remote = script.launch(script.stream(1)).thread(0, 0);
    script.write(remote, buffer, 0, 'data');
    script.store(remote, 'release', 'sys', buffer, flag, 'flag');
    script.load(launch.thread(0, 3), 'acquire', 'sys', buffer, flag, 'poll');
    launch.warp(0, 0);
    script.read(launch.thread(0, 5), buffer, 0, 'same warp');
    expect(script.races).toEqual([]);
    script.read(launch.thread(0, 50), buffer, 0, 'too early');
    expect(script.races).toEqual(['data too early']);
    launch.barrier(0);
    script.read(launch.thread(0, 60), buffer, 0, 'after the barrier');
    expect(script.races).toHaveLength(1);
  });
});

describe('release and acquire', () => {
  const scopes = ['cta', 'gpu', 'sys'] as const;
  const reach = { block: 0, grid: 1, node: 2 } as const;

  for (const apart of ['block', 'grid', 'node'] as const) {
    for (const [i, written] of scopes.entries()) {
      for (const [j, read] of scopes.entries()) {
        const works = Math.min(i, j) >= reach[apart];
        it(`${works ? 'orders' : 'does not order'} across a ${apart}: release ${written}, acquire ${read}`, () => {
          const { script, buffer, a, b } = pair(apart);
          script.write(a, buffer, 0, 'data');
          script.store(a, 'release', written, buffer, flag, 'flag');
          script.load(b, 'acquire', read, buffer, flag, 'poll');
          script.read(b, buffer, 0, 'use');
          expect(script.races).toEqual(works ? [] : ['flag poll', 'data use']);
        });

        it(`${works ? 'orders' : 'does not order'} across a ${apart}: fence ${written}, fence ${read}`, () => {
          const { script, buffer, a, b } = pair(apart);
          script.write(a, buffer, 0, 'data');
          script.fence(a, written);
          script.store(a, 'relaxed', 'sys', buffer, flag, 'flag');
          script.load(b, 'relaxed', 'sys', buffer, flag, 'poll');
          script.fence(b, read);
          script.read(b, buffer, 0, 'use');
          expect(script.races).toEqual(works ? [] : ['data use']);
        });
      }
    }
  }

  it('needs both halves', () => {
    for (const [written, read] of [
      ['relaxed', 'acquire'],
      ['release', 'relaxed'],
      ['relaxed', 'relaxed'],
    ] as const) {
      const { script, buffer, a, b } = pair('node');
      script.write(a, buffer, 0, 'data');
      script.store(a, written, 'sys', buffer, flag, 'flag');
      script.load(b, read, 'sys', buffer, flag, 'poll');
      script.read(b, buffer, 0, 'use');
      expect(script.races).toEqual(['data use']);
    }
  });

  it('publishes what came before the release only', () => {
    const { script, buffer, a, b } = pair('node');
    script.store(a, 'release', 'sys', buffer, flag, 'flag');
    script.write(a, buffer, 0, 'data');
    script.load(b, 'acquire', 'sys', buffer, flag, 'poll');
    script.read(b, buffer, 0, 'use');
    expect(script.races).toEqual(['data use']);
  });

  it("a release goes on in later relaxed stores of its thread to the same place, and in nobody else's", () => {
    for (const by of ['a', 'c'] as const) {
      const script = new Script();
      const buffer = script.buffer();
      const [a, b, c] = [0, 1, 2].map((rank) => script.launch(script.stream(rank)).thread(0, 0)) as [
        number,
        number,
        number,
      ];
      script.write(a, buffer, 0, 'data');
      script.store(a, 'release', 'sys', buffer, flag, 'flag');
      script.write(a, buffer, 4, 'late');
      script.store(by === 'a' ? a : c, 'relaxed', 'sys', buffer, flag, 'later');
      script.load(b, 'acquire', 'sys', buffer, flag, 'poll');
      script.read(b, buffer, 0, 'use');
      script.read(b, buffer, 4, 'use late');
      expect(script.races).toEqual(by === 'a' ? ['late use late'] : ['data use', 'late use late']);
    }
  });

  it('a relaxed load is completed by a later acquire of the same place, and of no other', () => {
    for (const at of [flag, flag + 4]) {
      const { script, buffer, a, b } = pair('node');
      script.write(a, buffer, 0, 'data');
      script.store(a, 'release', 'sys', buffer, flag, 'flag');
      script.load(b, 'relaxed', 'sys', buffer, flag, 'poll');
      // Somebody else's store comes between, so that the acquire itself reads no release.
      script.load(b, 'acquire', 'gpu', buffer, at, 'too narrow');
      script.store(b, 'relaxed', 'sys', buffer, at, 'own');
      script.load(b, 'acquire', 'sys', buffer, at, 'poll again');
      script.read(b, buffer, 0, 'use');
      expect(script.races.filter((race) => race.endsWith('use'))).toEqual(at === flag ? [] : ['data use']);
    }
  });

  it('sequentially consistent fences are ordered as they come, as far as their scopes reach', () => {
    for (const [mine, theirs, apart] of [
      ['sys', 'sys', 'node'],
      ['gpu', 'gpu', 'grid'],
      ['sys', 'gpu', 'grid'],
      ['cta', 'cta', 'block'],
    ] as const) {
      const { script, buffer, a, b } = pair(apart);
      script.write(a, buffer, 0, 'data');
      script.fence(a, mine, 'seq_cst');
      script.write(a, buffer, 4, 'late');
      script.fence(b, theirs, 'seq_cst');
      script.read(b, buffer, 0, 'use');
      expect(script.races).toEqual([]);
      script.read(b, buffer, 4, 'use late');
      expect(script.races).toEqual(['late use late']);
    }
    for (const [mine, theirs, apart] of [
      ['sys', 'gpu', 'node'],
      ['gpu', 'sys', 'node'],
      ['cta', 'gpu', 'grid'],
    ] as const) {
      const { script, buffer, a, b } = pair(apart);
      script.write(a, buffer, 0, 'data');
      script.fence(a, mine, 'seq_cst');
      script.fence(b, theirs, 'seq_cst');
      script.read(b, buffer, 0, 'use');
      expect(script.races).toEqual(['data use']);
    }
    const { script, buffer, a, b } = pair('node');
    script.write(a, buffer, 0, 'data');
    script.fence(a, 'sys', 'seq_cst');
    script.fence(b, 'sys');
    script.read(b, buffer, 0, 'use');
    expect(script.races).toEqual(['data use']);
  });

  it('does not order an acquire that read before the release', () => {
    const { script, buffer, a, b } = pair('node');
    script.write(a, buffer, 0, 'data');
    script.load(b, 'acquire', 'sys', buffer, flag, 'poll');
    script.store(a, 'release', 'sys', buffer, flag, 'flag');
    script.read(b, buffer, 0, 'use');
    expect(script.races).toEqual(['data use']);
  });

  it('a fence serves every relaxed store after it, but not what was written after the fence', () => {
    const { script, buffer, a, b } = pair('node');
    script.write(a, buffer, 0, 'data');
    script.fence(a, 'sys');
    script.write(a, buffer, 4, 'late');
    script.store(a, 'relaxed', 'sys', buffer, flag, 'flag 1');
    script.store(a, 'relaxed', 'sys', buffer, flag + 4, 'flag 2');
    script.load(b, 'relaxed', 'sys', buffer, flag + 4, 'poll');
    script.fence(b, 'sys');
    script.read(b, buffer, 0, 'use');
    expect(script.races).toEqual([]);
    script.read(b, buffer, 4, 'use late');
    expect(script.races).toEqual(['late use late']);
  });

  it('is cumulative: a gpu-scope chain on each side of a sys-scope release carries everything', () => {
    const script = new Script();
    const buffer = script.buffer();
    const near = script.launch(script.stream(0), { blocks: 2 });
    const far = script.launch(script.stream(1), { blocks: 2 });
    script.write(near.thread(0, 0), buffer, 0, 'data');
    script.update(near.thread(0, 0), 'acq_rel', 'gpu', buffer, flag, 'count');
    script.update(near.thread(1, 0), 'acq_rel', 'gpu', buffer, flag, 'last');
    script.store(near.thread(1, 0), 'release', 'sys', buffer, flag + 4, 'arrive');
    script.load(far.thread(0, 0), 'acquire', 'sys', buffer, flag + 4, 'await');
    script.store(far.thread(0, 0), 'release', 'gpu', buffer, flag + 8, 'pass on');
    script.load(far.thread(1, 0), 'acquire', 'gpu', buffer, flag + 8, 'receive');
    script.read(far.thread(1, 0), buffer, 0, 'use');
    expect(script.races).toEqual([]);
  });

  it('many who count themselves in are all known to those who acquire the count, as far as scopes reach', () => {
    for (const [order, fenced, scope, races] of [
      ['acquire', false, 'gpu', 1],
      ['relaxed', true, 'gpu', 1],
      ['relaxed', false, 'gpu', 41],
      ['acquire', false, 'cta', 41],
    ] as const) {
      const script = new Script();
      const buffer = script.buffer();
      const launch = script.launch(script.stream(0), { blocks: 2, threads: 40 });
      const reader = launch.thread(1, 0);
      for (let lane = 0; lane < 40; lane++) {
        const thread = launch.thread(0, lane);
        script.write(thread, buffer, 4 * lane, `write ${lane}`);
        script.update(thread, 'release', 'gpu', buffer, flag, `count ${lane}`);
      }
      script.write(launch.thread(0, 7), buffer, 4 * 40, 'write behind its count');
      script.load(reader, order, scope, buffer, flag, 'look');
      if (fenced) script.fence(reader, scope);
      for (let word = 0; word < 41; word++) script.read(reader, buffer, 4 * word, `read ${word}`);
      const found = script.races.filter((race) => race.includes('write'));
      expect(found).toHaveLength(races);
      expect(found).toContain('write behind its count read 40');
    }
  });

  it('a chain of relaxed read-modify-writes keeps the release of its head', () => {
    const script = new Script();
    const buffer = script.buffer();
    const launch = script.launch(script.stream(), { blocks: 4 });
    script.write(launch.thread(0, 0), buffer, 0, 'head data');
    script.write(launch.thread(1, 0), buffer, 4, 'link data');
    script.store(launch.thread(0, 0), 'release', 'gpu', buffer, flag, 'head');
    script.update(launch.thread(1, 0), 'relaxed', 'gpu', buffer, flag, 'link');
    script.update(launch.thread(2, 0), 'relaxed', 'gpu', buffer, flag, 'link');
    script.load(launch.thread(3, 0), 'acquire', 'gpu', buffer, flag, 'poll');
    script.read(launch.thread(3, 0), buffer, 0, 'use');
    expect(script.races).toEqual([]);
    script.read(launch.thread(3, 0), buffer, 4, 'use of the link');
    expect(script.races).toEqual(['link data use of the link']);
  });

  it('a chain breaks where a link is too narrow', () => {
    const script = new Script();
    const buffer = script.buffer();
    const launch = script.launch(script.stream(), { blocks: 3 });
    script.write(launch.thread(0, 0), buffer, 0, 'data');
    script.store(launch.thread(0, 0), 'release', 'gpu', buffer, flag, 'head');
    script.update(launch.thread(1, 0), 'relaxed', 'cta', buffer, flag, 'link');
    script.load(launch.thread(2, 0), 'acquire', 'gpu', buffer, flag, 'poll');
    script.read(launch.thread(2, 0), buffer, 0, 'use');
    expect(script.races).toContain('data use');
  });

  it('the scope of the head counts for the reader at the end of a chain', () => {
    const script = new Script();
    const buffer = script.buffer();
    const near = script.launch(script.stream(0), { blocks: 2 });
    const far = script.launch(script.stream(1)).thread(0, 0);
    script.write(near.thread(0, 0), buffer, 0, 'data');
    script.update(near.thread(0, 0), 'release', 'gpu', buffer, flag, 'narrow head');
    script.update(near.thread(1, 0), 'relaxed', 'sys', buffer, flag, 'link');
    script.load(far, 'acquire', 'sys', buffer, flag, 'poll');
    script.read(far, buffer, 0, 'use');
    expect(script.races).toContain('data use');
  });

  it('does not order through atomics of another size', () => {
    const { script, buffer, a, b } = pair('node');
    script.write(a, buffer, 0, 'data');
    script.access(a, 'write', 'release', 'sys', buffer, flag, 8, 'flag');
    script.load(b, 'acquire', 'sys', buffer, flag, 'poll');
    script.read(b, buffer, 0, 'use');
    expect(script.races).toEqual(['flag poll', 'data use']);
  });

  it('a weak store to the flag is a race and synchronises nothing', () => {
    const { script, buffer, a, b } = pair('node');
    script.write(a, buffer, 0, 'data');
    script.write(a, buffer, flag, 'flag');
    script.load(b, 'acquire', 'sys', buffer, flag, 'poll');
    script.read(b, buffer, 0, 'use');
    expect(script.races).toEqual(['flag poll', 'data use']);
  });
});

describe('streams', () => {
  it('order launches and copies of one stream', () => {
    const script = new Script();
    const buffer = script.buffer();
    const stream = script.stream();
    script.detector.streamAccess(stream, 'write', buffer, 0, 64);
    const first = script.launch(stream, { blocks: 2, threads: 2 });
    script.read(first.thread(0, 1), buffer, 0, 'input');
    script.write(first.thread(1, 1), buffer, 64, 'result');
    first.end();
    const second = script.launch(stream, { blocks: 2 });
    script.read(second.thread(1, 0), buffer, 64, 'use');
    script.write(second.thread(0, 0), buffer, 0, 'overwrite');
    second.end();
    script.detector.streamAccess(stream, 'read', buffer, 0, 128);
    expect(script.races).toEqual([]);
  });

  it('do not order different streams, unless an event does', () => {
    for (const event of [false, true]) {
      const script = new Script();
      const buffer = script.buffer();
      const [one, two] = [script.stream(), script.stream()];
      const first = script.launch(one);
      script.write(first.thread(0, 0), buffer, 0, 'produce');
      first.end();
      if (event) {
        script.detector.eventRecorded(one, 5);
        script.detector.eventAwaited(two, 5);
      }
      const second = script.launch(two);
      script.read(second.thread(0, 0), buffer, 0, 'consume');
      expect(script.races).toEqual(event ? [] : ['produce consume']);
    }
  });

  it('an event orders what was before its record only', () => {
    const script = new Script();
    const buffer = script.buffer();
    const [one, two] = [script.stream(), script.stream()];
    script.detector.eventRecorded(one, 5);
    const first = script.launch(one);
    script.write(first.thread(0, 0), buffer, 0, 'produce');
    first.end();
    script.detector.eventAwaited(two, 5);
    script.read(script.launch(two).thread(0, 0), buffer, 0, 'consume');
    expect(script.races).toEqual(['produce consume']);
  });

  it('the host carries order from a stream it awaited to what it enqueues, on its own rank', () => {
    const script = new Script();
    const buffer = script.buffer();
    const [one, two, remote] = [script.stream(0), script.stream(0), script.stream(1)];
    const first = script.launch(one);
    script.write(first.thread(0, 0), buffer, 0, 'produce');
    first.end();
    script.detector.hostSynchronized(one, 0);
    script.detector.hostEnqueued(two, script.detector.hostKnows(0));
    script.detector.hostEnqueued(remote, script.detector.hostKnows(1));
    script.read(script.launch(two).thread(0, 0), buffer, 0, 'consume');
    expect(script.races).toEqual([]);
    script.read(script.launch(remote).thread(0, 0), buffer, 0, 'elsewhere');
    expect(script.races).toEqual(['produce elsewhere']);
  });

  it('carry what their launches learnt from other ranks', () => {
    const script = new Script();
    const buffer = script.buffer();
    const stream = script.stream(0);
    const remote = script.launch(script.stream(1)).thread(0, 0);
    script.write(remote, buffer, 0, 'data');
    script.store(remote, 'release', 'sys', buffer, flag, 'flag');
    const first = script.launch(stream);
    script.load(first.thread(0, 0), 'acquire', 'sys', buffer, flag, 'poll');
    first.end();
    script.read(script.launch(stream).thread(0, 0), buffer, 0, 'use');
    expect(script.races).toEqual([]);
  });

  it('a programmatic launch is ordered from awaitPrevious on, thread by thread', () => {
    const script = new Script();
    const buffer = script.buffer();
    const stream = script.stream();
    script.detector.streamAccess(stream, 'write', buffer, 0, 4);
    const first = script.launch(stream);
    script.write(first.thread(0, 0), buffer, 64, 'produce');
    const second = script.launch(stream, { programmatic: true, threads: 2 });
    script.read(second.thread(0, 0), buffer, 0, 'older');
    expect(script.races).toEqual([]);
    first.end();
    script.detector.awaitPrevious(second.thread(0, 0));
    script.read(second.thread(0, 0), buffer, 64, 'after');
    expect(script.races).toEqual([]);
    script.read(second.thread(0, 1), buffer, 64, 'without');
    expect(script.races).toEqual(['produce without']);
    second.end();
    script.detector.streamAccess(stream, 'write', buffer, 64, 4);
    expect(script.races).toHaveLength(1);
  });

  it('a programmatic launch starts behind what its predecessor awaited before it released', () => {
    for (const awaits of [true, false]) {
      const script = new Script();
      const buffer = script.buffer();
      const stream = script.stream();
      const first = script.launch(stream, { programmatic: true });
      script.write(first.thread(0, 0), buffer, 0, 'oldest');
      const second = script.launch(stream, { programmatic: true });
      script.write(second.thread(0, 0), buffer, 64, 'middle');
      first.end();
      if (awaits) script.detector.awaitPrevious(second.thread(0, 0));
      script.detector.releaseNext(second.thread(0, 0));
      const third = script.launch(stream, { programmatic: true });
      script.load(third.thread(0, 0), 'relaxed', 'gpu', buffer, 0, 'read');
      expect(script.races, `awaits: ${awaits}`).toEqual(awaits ? [] : ['oldest read']);
      // L1 may still hold what was there before.
      script.read(third.thread(0, 0), buffer, 0, 'by L1');
      script.load(third.thread(0, 0), 'relaxed', 'cta', buffer, 0, 'by L1 too');
      expect(script.races).toEqual(expect.arrayContaining(['oldest by L1', 'oldest by L1 too']));
      // What the predecessor did itself is another matter.
      script.read(third.thread(0, 0), buffer, 64, 'too early');
      expect(script.races).toContain('middle too early');
    }
  });

  it('what is awaited after the release comes too late for the next launch', () => {
    const script = new Script();
    const buffer = script.buffer();
    const stream = script.stream();
    const first = script.launch(stream);
    script.write(first.thread(0, 0), buffer, 0, 'oldest');
    const second = script.launch(stream, { programmatic: true });
    script.detector.releaseNext(second.thread(0, 0));
    first.end();
    script.detector.awaitPrevious(second.thread(0, 0));
    const third = script.launch(stream, { programmatic: true });
    script.read(third.thread(0, 0), buffer, 0, 'read');
    expect(script.races).toEqual(['oldest read']);
  });

  it('a programmatic launch is unordered even where its predecessor happened to have ended', () => {
    const script = new Script();
    const buffer = script.buffer();
    const stream = script.stream();
    const first = script.launch(stream);
    script.write(first.thread(0, 0), buffer, 0, 'produce');
    first.end();
    const second = script.launch(stream, { programmatic: true });
    script.read(second.thread(0, 0), buffer, 0, 'consume');
    expect(script.races).toEqual(['produce consume']);
  });
});

describe('the asynchronous proxy', () => {
  function setUp() {
    const script = new Script();
    const buffer = script.buffer('window');
    const launch = script.launch(script.stream(), { threads: 2, blocks: 2 });
    return { script, buffer, launch, me: launch.thread(0, 0) };
  }
  const far = 4096;
  /** The copy reads what lies at 0. */
  const copyOut = ({ script, buffer, me }: ReturnType<typeof setUp>) =>
    script.bulk(me, 0, buffer, buffer, 0, 16, 'copy', 'bulk', far);
  /** … overwrites it. */
  const copyIn = ({ script, buffer, me }: ReturnType<typeof setUp>) =>
    script.bulk(me, 0, buffer, buffer, far, 16, 'copy', 'bulk', 0);

  it('knows what its thread did only behind a fence', () => {
    const run = setUp();
    run.script.write(run.me, run.buffer, 0, 'fill');
    copyOut(run);
    expect(run.script.races).toEqual(['fill copy']);
    expect(run.script.findings[0]!.hint).toBe(
      'The store at fill comes before the bulk copy at copy, but the copy goes by a path to memory of its own (the ' +
        'asynchronous proxy), which no barrier, release or acquire orders with ordinary accesses: put ' +
        "g.proxyFence('global') between the two.",
    );
  });

  it('may not overwrite what was read before, either', () => {
    const run = setUp();
    run.script.read(run.me, run.buffer, 0, 'use');
    copyIn(run);
    expect(run.script.races).toEqual(['use copy']);
  });

  it('a fence stands on either side of a barrier', () => {
    for (const side of ['before', 'behind', 'neither'] as const) {
      const run = setUp();
      const other = run.launch.thread(0, 1);
      run.script.write(other, run.buffer, 0, 'fill');
      if (side === 'before') run.script.proxyFence(other);
      run.launch.barrier(0);
      if (side === 'behind') run.script.proxyFence(run.me);
      copyOut(run);
      expect(run.script.races).toEqual(side === 'neither' ? ['fill copy'] : []);
      if (side === 'neither')
        expect(run.script.findings[0]!.hint).toContain(
          "put g.proxyFence('global') in the thread that starts the copy, between the barrier or acquire behind the store at " +
            'fill and the copy',
        );
    }
  });

  it('a fence before the barrier of a thread that did not write covers nothing', () => {
    const run = setUp();
    run.script.write(run.launch.thread(0, 1), run.buffer, 0, 'fill');
    run.script.proxyFence(run.me);
    run.launch.barrier(0);
    copyOut(run);
    expect(run.script.races).toEqual(['fill copy']);
  });

  it('of another block, a fence stands behind the acquire', () => {
    for (const side of ['before', 'behind'] as const) {
      const run = setUp();
      const { script, launch, buffer, me } = run;
      script.write(launch.thread(1, 0), buffer, 0, 'fill');
      if (side === 'before') script.proxyFence(launch.thread(1, 0));
      script.store(launch.thread(1, 0), 'release', 'gpu', buffer, flag, 'flag');
      script.load(me, 'acquire', 'gpu', buffer, flag, 'poll');
      if (side === 'behind') script.proxyFence(me);
      copyOut(run);
      expect(script.races).toEqual(side === 'behind' ? [] : ['fill copy']);
    }
  });

  it('a fence is for one space of memory', () => {
    const run = setUp();
    run.script.write(run.me, run.buffer, 0, 'fill');
    run.script.proxyFence(run.me, 'shared');
    copyOut(run);
    expect(run.script.races).toEqual(['fill copy']);
  });

  it('knows of its own block’s awaited copies, and of no others', () => {
    const run = setUp();
    const { script, launch, buffer, me } = run;
    const [mate, stranger] = [launch.thread(0, 1), launch.thread(1, 0)];
    copyIn(run);
    script.detector.copiesAwaited(me, 'bulk', 0, false);
    launch.barrier(0);
    script.bulk(mate, 0, buffer, buffer, 0, 16, 'mate', 'bulk', 2 * far);
    expect(script.races).toEqual([]);
    script.store(me, 'release', 'gpu', buffer, flag, 'flag');
    script.load(stranger, 'acquire', 'gpu', buffer, flag, 'poll');
    script.bulk(stranger, 0, buffer, buffer, 0, 16, 'stranger', 'bulk', 3 * far);
    expect(script.races).toEqual(['copy stranger']);
  });

  it('does not hold asynchronous loads of 16 bytes, whose target needs a fence', () => {
    const run = setUp();
    const { script, buffer, me } = run;
    script.write(me, buffer, far, 'fill');
    script.bulk(me, 0, buffer, buffer, far, 16, 'load', 'async', 0);
    script.detector.copiesAwaited(me, 'async', 0, false);
    expect(script.races).toEqual([]);
    copyOut({ ...run, buffer });
    expect(script.races).toEqual(['load copy', 'fill copy']);
  });

  it('knows all of the launches before its own, where that has awaited them', () => {
    const script = new Script();
    const buffer = script.buffer('window');
    const stream = script.stream();
    const first = script.launch(stream);
    script.write(first.thread(0, 0), buffer, 0, 'fill');
    first.end();
    const second = script.launch(stream);
    script.bulk(second.thread(0, 0), 0, buffer, buffer, 0, 16, 'copy', 'bulk', far);
    script.write(second.thread(0, 0), buffer, 512, 'fill again');
    const third = script.launch(stream, { threads: 2, programmatic: true });
    second.end();
    const [me, other] = [third.thread(0, 0), third.thread(0, 1)];
    script.bulk(other, 0, buffer, buffer, 512, 16, 'early', 'bulk', 2 * far);
    script.detector.awaitPrevious(me);
    script.bulk(me, 0, buffer, buffer, 512, 16, 'late', 'bulk', 3 * far);
    third.barrier(0);
    script.bulk(other, 0, buffer, buffer, 512, 16, 'told', 'bulk', 4 * far);
    expect(script.races).toEqual(['fill again early']);
  });
});

describe('bulk copies', () => {
  function issue() {
    const script = new Script();
    const [from, to] = [script.buffer('staging'), script.buffer('window')];
    const launch = script.launch(script.stream(), { threads: 2, blocks: 2 });
    const me = launch.thread(0, 0);
    script.write(me, from, 0, 'fill');
    script.proxyFence(me);
    script.bulk(me, 0, from, to, 0, 64, 'bulk');
    return { script, from, to, launch, me };
  }

  it('see what their thread did before, and run beside what it does after', () => {
    const { script, from, to, me } = issue();
    script.read(me, from, 0, 'read source');
    expect(script.races).toEqual([]);
    script.write(me, from, 0, 'refill');
    script.read(me, to, 0, 'read target');
    expect(script.races).toEqual(['bulk refill', 'bulk read target']);
  });

  it('awaited for their reads: the source is free, the target is not', () => {
    const { script, from, to, me } = issue();
    script.detector.copiesAwaited(me, 'bulk', 0, true);
    script.write(me, from, 0, 'refill');
    expect(script.races).toEqual([]);
    script.read(me, to, 0, 'read target');
    expect(script.races).toEqual(['bulk read target']);
  });

  it('awaited: ordered for their thread, and for whom it synchronises with', () => {
    const { script, from, to, launch, me } = issue();
    script.detector.copiesAwaited(me, 'bulk', 0, false);
    script.write(me, from, 0, 'refill');
    script.store(me, 'release', 'gpu', to, flag, 'flag');
    script.load(launch.thread(1, 0), 'acquire', 'gpu', to, flag, 'poll');
    script.read(launch.thread(1, 0), to, 0, 'use');
    launch.barrier(0);
    script.read(launch.thread(0, 1), to, 0, 'use after barrier');
    expect(script.races).toEqual([]);
  });

  it('are not completed by a barrier or a release of their thread, but by the end of the launch', () => {
    const { script, to, launch, me } = issue();
    launch.barrier(0);
    script.read(launch.thread(0, 1), to, 0, 'after barrier');
    script.store(me, 'release', 'gpu', to, flag, 'flag');
    script.load(launch.thread(1, 0), 'acquire', 'gpu', to, flag, 'poll');
    script.read(launch.thread(1, 0), to, 16, 'after acquire');
    expect(script.races).toEqual(['bulk after barrier', 'bulk after acquire']);
    launch.end();
  });

  it('of the two engines have groups of their own', () => {
    const { script, from, to, me } = issue();
    script.bulk(me, 0, from, to, 128, 64, 'load', 'async');
    script.detector.copiesAwaited(me, 'async', 0, false);
    script.read(me, to, 128, 'loaded');
    expect(script.races).toEqual([]);
    script.read(me, to, 0, 'target');
    expect(script.races).toEqual(['bulk target']);
  });

  it('groups complete in order', () => {
    const { script, from, to, me } = issue();
    script.bulk(me, 1, from, to, 128, 64, 'second bulk');
    script.detector.copiesAwaited(me, 'bulk', 0, false);
    script.read(me, to, 0, 'first target');
    expect(script.races).toEqual([]);
    script.read(me, to, 128, 'second target');
    expect(script.races).toEqual(['second bulk second target']);
  });

  it('arriving at an mbarrier are seen by whoever acquires it, without what else their thread did', () => {
    const { script, from, to, launch, me } = issue();
    const other = launch.thread(0, 1);
    script.write(me, to, 256, 'later');
    script.detector.copiesArrived(me, 'bulk', 0, { buffer: from, offset: 512 }, script.site('bulk'));
    script.access(other, 'read', 'acquire', 'cta', from, 512, 8, 'await');
    script.read(other, to, 0, 'use');
    script.write(other, from, 0, 'refill');
    expect(script.races).toEqual(['fill refill']);
    script.read(other, to, 256, 'use of later');
    expect(script.races).toEqual(['fill refill', 'later use of later']);
  });
});
