/** Each kind of edge that orders two accesses, and what does not. Steps are in words of their own: steps.ts. */
import { describe, expect, it } from 'vitest';
import { Script } from './script.js';
import { play, scenarios } from './steps.js';

/** Plays every scenario; the races are those that it lists, and no others. */
const found = (text: string): void =>
  it.each(scenarios(text))('%s', (_, steps, races) => {
    expect(play(steps).races).toEqual(races);
  });

const flag = 512;

describe('conflicts', () => {
  found(`
    a write and a read that nothing orders
    block | a w data; b r data
    × data use

    a read and a write that nothing orders
    block | a r data; b w data
    × use data

    two writes that nothing orders
    block | a w data @first; b w data @second
    × first second

    threads read together, and one does as it likes
    block | a r data; b r data; a w 64; a r 64

    the last of a thread’s reads is named: it is the one that came too late
    block | a r data @early; a r data @again; a r data @late; b w data
    × late data

    so it is of atomic ones
    block | a ld relaxed.gpu flag @early; a ld relaxed.gpu flag @late; b w flag
    × late flag

    every reader that a write may race with is remembered
    a 0:0.0, b 0:1.0, c 0:2.0 | a r data @r0; b r data @r1; c w data
    × r0 data
    × r1 data
  `);

  it('looks at bytes, not at words: neighbours do not conflict, overlaps do', () => {
    const script = new Script();
    const buffer = script.buffer();
    const launch = script.launch(script.stream(), { blocks: 2 });
    const [a, b] = [launch.thread(0, 0), launch.thread(1, 0)];
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
    const script = new Script();
    const buffer = script.buffer();
    const launch = script.launch(script.stream(), { threads: 64 });
    const [first, second] = [script.site('one'), script.site('two')];
    const write = { kind: 'write', order: 'weak', scope: 'cta', bytes: 4 } as const;
    for (const offset of [0, 0, 64]) {
      script.detector.access(launch.thread(0, 0), write, first, buffer, offset);
      script.detector.access(launch.thread(0, 40), write, second, buffer, offset);
    }
    expect(script.races).toEqual(['one two']);
  });
});

describe('barriers', () => {
  found(`
    a block barrier orders the threads of its block, and no others
    a 0:0.0, b 0:0.40, c 0:1.0 | a w data; barrier a; b r data; c r data @elsewhere
    × data elsewhere

    a block barrier does not order what follows it
    block | barrier a; a w data; b r data
    × data use

    a warp that meets orders its lanes only
    a 0:0.0, b 0:0.1, c 0:0.32 | a w data; warp a; b r data; c r data @other-warp
    × data other-warp

    hands on what a thread learnt elsewhere
    a 0:0.3, b 0:0.5, c 0:0.50, d 0:0.60, far 1:0.0 | far w data; far st release.sys flag; a ld acquire.sys flag; warp a
    b r data; c r data @too-early; barrier a; d r data
    × data too-early
  `);
});

describe('release and acquire', () => {
  const scopes = ['cta', 'gpu', 'sys'] as const;
  const reach = { block: 0, grid: 1, node: 2 } as const;

  for (const apart of ['block', 'grid', 'node'] as const) {
    for (const [i, written] of scopes.entries()) {
      for (const [j, read] of scopes.entries()) {
        const works = Math.min(i, j) >= reach[apart];
        it(`${works ? 'orders' : 'does not order'} across a ${apart}: ${written}, then ${read}`, () => {
          const flags = `a st release.${written} flag; b ld acquire.${read} flag`;
          expect(play(`${apart} | a w data; ${flags}; b r data`).races).toEqual(
            works ? [] : ['flag poll', 'data use'],
          );
          const fences = `a fence ${written}; a st relaxed.sys flag; b ld relaxed.sys flag; b fence ${read}`;
          expect(play(`${apart} | a w data; ${fences}; b r data`).races).toEqual(works ? [] : ['data use']);
        });
      }
    }
  }

  it('fences that are sequentially consistent are ordered as they come, as far as their scopes reach', () => {
    for (const [mine, theirs, apart, orders] of [
      ['sys', 'sys', 'node', true],
      ['gpu', 'gpu', 'grid', true],
      ['sys', 'gpu', 'grid', true],
      ['cta', 'cta', 'block', true],
      ['sys', 'gpu', 'node', false],
      ['gpu', 'sys', 'node', false],
      ['cta', 'gpu', 'grid', false],
    ] as const) {
      const steps = `a w data; a sc ${mine}; a w late; b sc ${theirs}; b r data; b r late @use-late`;
      const races = [...(orders ? [] : ['data use']), 'late use-late'];
      expect(play(`${apart} | ${steps}`).races, `${mine} ${theirs} ${apart}`).toEqual(races);
    }
  });

  found(`
    a fence that is not sequentially consistent is in no order with those that are
    node | a w data; a sc sys; b fence sys; b r data
    × data use

    needs a release
    node | a w data; a st relaxed.sys flag; b ld acquire.sys flag; b r data
    × data use

    needs an acquire
    node | a w data; a st release.sys flag; b ld relaxed.sys flag; b r data
    × data use

    needs more than relaxed halves
    node | a w data; a st relaxed.sys flag; b ld relaxed.sys flag; b r data
    × data use

    publishes what came before the release only
    node | a st release.sys flag; a w data; b ld acquire.sys flag; b r data
    × data use

    a release goes on in later relaxed stores of its thread to the same place
    node | a w data; a st release.sys flag; a w late; a st relaxed.sys flag @later; b ld acquire.sys flag
    b r data; b r late @use-late
    × late use-late

    and in nobody else's
    a 0:0.0, b 1:0.0, c 2:0.0 | a w data; a st release.sys flag; a w late; c st relaxed.sys flag @later; b ld acquire.sys flag
    b r data; b r late @use-late
    × data use
    × late use-late

    a relaxed load is completed by a later acquire of the same place, though that reads what somebody else stored
    node | a w data; a st release.sys flag; b ld relaxed.sys flag; b st relaxed.sys flag @own; b ld acquire.sys flag; b r data

    but not by one of too narrow a scope, or of another place
    node | a w data; a st release.sys flag; b ld relaxed.sys flag; b ld acquire.cta flag @narrow
    b st relaxed.sys next @own; b ld acquire.sys next; b r data
    × flag narrow
    × data use

    does not order an acquire that read before the release
    node | a w data; b ld acquire.sys flag; a st release.sys flag; b r data
    × data use

    a fence serves every relaxed store after it, but not what was written after the fence
    node | a w data; a fence sys; a w late; a st relaxed.sys flag; a st relaxed.sys next
    b ld relaxed.sys next; b fence sys; b r data; b r late @use-late
    × late use-late

    is cumulative: a gpu-scope chain on each side of a sys-scope release carries everything
    a 0:0.0, b 0:1.0, c 1:0.0, d 1:1.0 | a w data; a rmw acq_rel.gpu flag @count; b rmw acq_rel.gpu flag @last
    b st release.sys next @arrive; c ld acquire.sys next @await
    c st release.gpu third @pass-on; d ld acquire.gpu third @receive; d r data

    a chain of relaxed read-modify-writes keeps the release of its head, and of no link
    a 0:0.0, b 0:1.0, c 0:2.0, d 0:3.0 | a w data; b w late; a st release.gpu flag @head; b rmw relaxed.gpu flag
    c rmw relaxed.gpu flag; d ld acquire.gpu flag; d r data; d r late @use-late
    × late use-late

    a chain breaks where a link is too narrow
    a 0:0.0, b 0:1.0, c 0:2.0 | a w data; a st release.gpu flag @head; b rmw relaxed.cta flag @link
    c ld acquire.gpu flag; c r data
    × head link
    × link poll
    × data use

    the scope of the head counts for the reader at the end of a chain
    a 0:0.0, b 0:1.0, far 1:0.0 | a w data; a rmw release.gpu flag @head; b rmw relaxed.sys flag @link
    far ld acquire.sys flag; far r data
    × head poll
    × data use

    an acquire reaches the last link of a chain, and not its head
    a 0:0.0, b 1:0.0, c 1:0.1 | a w data; a st release.sys flag @head; b rmw relaxed.sys flag @link; c ld acquire.cta flag; c r data
    × head poll
    × data use

    a link between writes is as wide as both
    a 0:0.0, b 0:1.0, c 0:1.1 | a w data; a st release.gpu flag @head; b rmw relaxed.cta flag @link; c ld acquire.gpu flag; c r data
    × head link
    × data use

    a release leaves wider fences to the end of the chain
    a 0:0.0, b 0:1.0, far 1:0.0 | a w data; a fence sys; a w late; a st release.gpu flag @head; b rmw relaxed.sys flag @link
    far ld acquire.sys flag; far r data; far r late @use-late
    × head poll
    × late use-late

    a store of too narrow a scope hands on no wider fence
    node | a w data; a fence sys; a st relaxed.gpu flag; b ld acquire.sys flag; b r data
    × flag poll
    × data use

    a load of too narrow a scope leaves nothing for a wider fence
    node | a w data; a st release.sys flag; b ld relaxed.gpu flag; b fence sys; b r data
    × flag poll
    × data use

    a narrower fence does not undo a wider one
    node | a w data; a fence sys; a w late; a fence gpu; a st relaxed.sys flag; b ld acquire.sys flag; b r data; b r late @use-late
    × late use-late

    a narrower release does not undo the one that it continues
    a 0:0.0, b 0:0.1, c 0:1.0, far 1:0.0 | a w data; a st release.sys flag @head; b rmw acq_rel.gpu flag @narrow
    c rmw relaxed.sys flag @link; far ld acquire.sys flag; far r data
    × narrow poll

    nor does one from farther away
    a 0:0.0, b 0:1.0, c 0:1.1, far 1:0.0 | a w data; a st release.sys flag @head; far rmw acq_rel.sys flag @away
    b rmw relaxed.sys flag @link; c ld acquire.gpu flag; c r data
    × away poll

    a weak store to the flag is a race and synchronises nothing
    node | a w data; a w flag; b ld acquire.sys flag; b r data
    × flag poll
    × data use
  `);

  it('does not order through atomics of another size', () => {
    const script = new Script();
    const buffer = script.buffer();
    const [a, b] = [0, 1].map((rank) => script.launch(script.stream(rank)).thread(0, 0)) as [number, number];
    script.write(a, buffer, 0, 'data');
    script.access(a, 'write', 'release', 'sys', buffer, flag, 8, 'flag');
    script.load(b, 'acquire', 'sys', buffer, flag, 'poll');
    script.read(b, buffer, 0, 'use');
    expect(script.races).toEqual(['flag poll', 'data use']);
  });

  it('atomics of many threads race with none of each other, and each with what no scope protects', () => {
    const script = new Script();
    const buffer = script.buffer();
    const [near, far] = [0, 1].map((rank) => script.launch(script.stream(rank), { blocks: 200 }));
    for (let block = 0; block < 200; block++)
      script.rmw(near!.thread(block, 0), 'relaxed', 'gpu', buffer, flag, `count ${block}`);
    expect(script.races).toEqual([]);
    script.rmw(far!.thread(0, 0), 'relaxed', 'gpu', buffer, flag, 'far');
    script.write(near!.thread(0, 0), buffer, flag, 'plain');
    const races = script.races.map((race) => race.split(' ').at(-1));
    expect(races).toEqual([...Array(200).fill('far'), ...Array(200).fill('plain')]);
  });

  it('many who count themselves in are all known to those who acquire the count, as far as scopes reach', () => {
    for (const [order, fenced, scope, races, counts, first] of [
      ['acquire', false, 'gpu', 1, 'gpu', 'far'],
      ['relaxed', true, 'gpu', 1, 'gpu', 'far'],
      ['relaxed', false, 'gpu', 41, 'gpu', 'far'],
      ['acquire', false, 'cta', 41, 'gpu', 'far'],
      ['acquire', false, 'cta', 41, 'gpu', 'near'],
      ['acquire', false, 'gpu', 41, 'cta', 'far'],
    ] as const) {
      const script = new Script();
      const buffer = script.buffer();
      const launch = script.launch(script.stream(0), { blocks: 2, threads: 40 });
      const reader = launch.thread(1, 0);
      if (first === 'near') script.rmw(launch.thread(1, 2), 'release', 'gpu', buffer, flag, 'near');
      for (let lane = 0; lane < 40; lane++) {
        const thread = launch.thread(0, lane);
        script.write(thread, buffer, 4 * lane, `write ${lane}`);
        script.rmw(thread, 'release', counts, buffer, flag, `count ${lane}`);
      }
      script.write(launch.thread(0, 7), buffer, 4 * 40, 'write behind its count');
      script.rmw(launch.thread(counts === 'cta' ? 0 : 1, 1), 'relaxed', 'gpu', buffer, flag, 'link');
      script.load(reader, order, scope, buffer, flag, 'look');
      if (fenced) script.fence(reader, scope);
      for (let word = 0; word < 41; word++) script.read(reader, buffer, 4 * word, `read ${word}`);
      const found = script.races.filter((race) => race.includes('write'));
      expect(found).toHaveLength(races);
      expect(found).toContain('write behind its count read 40');
    }
  });
});

describe('streams', () => {
  found(`
    order launches and copies of one stream
    streams | copy w 0 data; launch a,b 0; b r data; a w late; end a; launch c,d 0; d r late; c w data; end c
    copy r 0 data; copy r 0 late

    do not order different streams
    streams | launch a 0; a w data; end a; launch b 0'; b r data
    × data use

    unless an event does
    streams | launch a 0; a w data; end a; record 0; await 0'; launch b 0'; b r data

    an event orders what was before its record only
    streams | record 0; launch a 0; a w data; end a; await 0'; launch b 0'; b r data
    × data use

    the host carries order from a stream it awaited to what it enqueues, on its own rank
    streams | launch a 0; a w data; end a; sync 0; enqueue 0'; enqueue 1; launch b 0'; b r data
    launch far 1; far r data @elsewhere
    × data elsewhere

    carry what their launches learnt from other ranks
    streams | launch far 1; far w data; far st release.sys flag; launch a 0; a ld acquire.sys flag; end a; launch b 0; b r data

    a programmatic launch is ordered from awaitPrevious on, thread by thread
    streams | copy w 0 data; launch a 0; a w late; early b,c 0; b r data; end a; b awaits; b r late; c r late @without
    end b; copy w 0 late
    × late without

    a programmatic launch starts behind what its predecessor awaited before it released; but L1 may hold what was there before
    streams | early a 0; a w data; early b 0; b w late; end a; b awaits; b releases
    early c 0; c ld relaxed.gpu data; c r data @by-L1; c ld relaxed.cta data @by-L1-too; c r late @too-early
    × data by-L1
    × data by-L1-too
    × late too-early

    and not behind what it did not await
    streams | early a 0; a w data; early b 0; end a; b releases; early c 0; c ld relaxed.gpu data
    × data poll

    what is awaited after the release comes too late for the next launch
    streams | launch a 0; a w data; early b 0; b releases; end a; b awaits; early c 0; c ld relaxed.gpu data
    × data poll

    a programmatic launch is unordered even where its predecessor happened to have ended
    streams | launch a 0; a w data; end a; early b 0; b r data
    × data use
  `);
});

/** The copy reads what lies at `data`, or overwrites it. */
describe('the asynchronous proxy', () => {
  it('knows what its thread did only behind a fence', () => {
    const script = play('a 0:0.0 | a w data @fill; a cp data far');
    expect(script.races).toEqual(['fill copy']);
    expect(script.findings[0]!.hint).toBe(
      'The store at fill comes before the bulk copy at copy, but the copy goes by a path to memory of its own (the ' +
        'asynchronous proxy), which no barrier, release or acquire orders with ordinary accesses: put ' +
        "g.proxyFence('global') between the two.",
    );
  });

  it('says where between the threads of a block its fence is missing', () => {
    const script = play('block | b w data @fill; barrier a; a cp data far');
    expect(script.races).toEqual(['fill copy']);
    expect(script.findings[0]!.hint).toContain(
      "put g.proxyFence('global') in the thread that starts the copy, between the barrier or acquire behind the store at " +
        'fill and the copy',
    );
  });

  found(`
    may not overwrite what was read before, either
    a 0:0.0 | a r data; a cp far data
    × use copy

    a fence stands before a barrier
    block | b w data @fill; b proxy; barrier a; a cp data far

    or behind it
    block | b w data @fill; barrier a; a proxy; a cp data far

    a fence before the barrier of a thread that did not write covers nothing
    block | b w data @fill; a proxy; barrier a; a cp data far
    × fill copy

    of another block, a fence stands behind the acquire
    grid | b w data @fill; b st release.gpu flag; a ld acquire.gpu flag; a proxy; a cp data far

    and not before the release
    grid | b w data @fill; b proxy; b st release.gpu flag; a ld acquire.gpu flag; a cp data far
    × fill copy

    a fence is for one space of memory
    a 0:0.0 | a w data @fill; a proxy shared; a cp data far
    × fill copy

    knows of its own block’s awaited copies, and of no others
    a 0:0.0, mate 0:0.1, c 0:1.0 | a cp far data; a wait bulk; barrier a; mate cp data 8192 @mate
    a st release.gpu flag; c ld acquire.gpu flag; c cp data 12288 @stranger
    × copy stranger

    does not hold asynchronous loads of 16 bytes, whose target needs a fence
    a 0:0.0 | a w far @fill; a async far data @load; a wait async; a cp data far
    × load copy
    × fill copy

    knows all of the launches before its own, where that has awaited them
    streams | launch a 0; a w data; end a; launch b 0; b cp data far; b w flag @again; early c,d 0; end b
    d cp flag 8192 @early; c awaits; c cp flag 12288 @late; barrier c; d cp flag 16384 @told
    × again early
  `);
});

/** A copy of 16 bytes that its thread has filled. */
describe('bulk copies', () => {
  const issued = (text: string): void =>
    found(text.replaceAll(' | ', ' | a w data @fill; a proxy; a cp data far; '));
  issued(`
    see what their thread did before, and run beside what it does after
    block | a r data; a w data @refill; a r far
    × copy refill
    × copy use

    awaited for their reads: the source is free, the target is not
    block | a read bulk; a w data @refill; a r far
    × copy use

    awaited: ordered for their thread, and for whom it synchronises with
    a 0:0.0, b 0:0.1, c 0:1.0 | a wait bulk; a w data @refill; a st release.gpu flag; c ld acquire.gpu flag
    c r far; barrier a; b r far

    are not completed by a barrier or a release of their thread
    a 0:0.0, b 0:0.1, c 0:1.0 | barrier a; b r far @behind-barrier; a st release.gpu flag; c ld acquire.gpu flag
    c r far @behind-acquire
    × copy behind-barrier
    × copy behind-acquire

    of the two engines have groups of their own
    block | a async 128 8192 @load; a wait async; a r 8192; a r far @target
    × copy target

    groups complete in order
    block | a cp2 128 8192 @second; a wait bulk; a r far; a r 8192 @target
    × second target
  `);

  it('arriving at an mbarrier are seen by whoever acquires it, without what else their thread did', () => {
    const script = new Script();
    const [from, to] = [script.buffer('staging'), script.buffer('window')];
    const launch = script.launch(script.stream(), { threads: 2 });
    const me = launch.thread(0, 0);
    script.write(me, from, 0, 'fill');
    script.proxyFence(me);
    script.bulk(me, 0, from, to, 0, 64, 'bulk');
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
