/** What findings advise: derived from what happened, and naming the right lines. */
import { describe, expect, it } from 'vitest';
import { Script } from './script.js';
import { play, scenarios } from './steps.js';

const flag = 512;

function hintOf(script: Script, first: string, second: string): string {
  const found = script.findings.find((race) => race.first.where === first && race.second.where === second);
  return found?.hint ?? `no such race among: ${script.races.join(', ')}`;
}

describe('hints', () => {
  /** Behind each race stands what is said of it; … is any text. */
  it.each(
    scenarios(`
    say that an acquire is missing
    node | a w data; a st release.sys flag; b ld relaxed.sys flag; b r data
    × data use: The load at poll saw the store at flag, but no acquire comes between it and the later access: make it acquire, or put g.fence('sys') after it.

    say that a release is missing
    node | a w data; a st relaxed.sys flag; b ld acquire.sys flag; b r data
    × data use: The store at flag was seen by the load at poll, but releases nothing: make it a release, or put g.fence('sys') before it.

    say that a store is too narrow
    node | a w data; a st release.gpu flag; b ld acquire.sys flag; b r data
    × data use: The store at flag has gpu scope, but the load at poll that saw it ran on another rank: use sys.

    say that a load is too narrow
    node | a w data; a st release.sys flag; b ld acquire.cta flag; b r data
    × data use: The load at poll has cta scope, but the store at flag that it saw came from a thread on another rank: use sys.

    say that a fence before a store is too narrow
    node | a w data; a fence gpu; a st relaxed.sys flag; b ld acquire.sys flag; b r data
    × data use: …the fence before it is narrower: use g.fence('sys').…

    say that a fence behind a load is too narrow
    node | a w data; a st release.sys flag; b ld relaxed.sys flag; b fence gpu; b r data
    × data use: …the fence after it is narrower: use g.fence('sys').…

    do not blame a load whose fence comes, but too late
    node | a w data; a st release.sys flag; b ld relaxed.sys flag; b r data; b fence sys
    × data use: …no acquire comes between it and the later access…

    find the broken link of a chain
    a 0:0.0, b 0:1.0, far 1:0.0 | a w data; a rmw relaxed.gpu flag @count; b rmw acq_rel.gpu flag @last
    b st release.sys next @arrive; far ld acquire.sys next @await; far r data
    × data use: The atomic at count was seen by the atomic at last, but releases nothing: make it a release, or put g.fence('gpu') before it.

    see a flag that is published before its data
    node | a st release.sys flag; a w data; b ld acquire.sys flag; b r data
    × data use: The store at flag reached the other side, but does not cover the store at data: publish after that, and await it.

    see the missing barrier on either side of a flag
    a 0:0.0, b 0:0.40, c 1:0.0, d 1:0.50 | a w data @data-of-0; b w late @data-of-40; a st release.sys flag
    c ld acquire.sys flag; c r late @use-by-0; d r data @use-by-50
    × data-of-40 use-by-0: Thread 0 of the block published (the store at flag), but nothing orders the store of thread 40 at data-of-40 before that: a barrier must come after the store and before the publication.
    × data-of-0 use-by-50: Thread 0 of the block acquires what would order them (the load at poll), but nothing orders thread 50 after that: a barrier must come after it and before the load at use-by-50.

    see a read that goes before the wait for what it reads
    node | b r data; a w data; a st release.sys flag; b ld acquire.sys flag
    × use data: The load at poll acquires what orders them, but the load at use comes before it.

    do not blame a load for a wait that its thread makes after the race, in the same breath
    node | a w data; a st release.sys flag; b r data; b ld relaxed.sys flag
    × data use: Either the load comes too early…

    do not say that a barrier is missing behind a publication that the load follows
    a 0:0.0, b 1:0.0 | b st release.sys flag; barrier b; b r data; a ld acquire.sys flag; a w data
    × use data: Either the load comes too early…

    nor where another thread of the block publishes
    a 0:0.0, b 1:0.0, c 1:0.40 | b st release.sys flag; barrier b; c r data; a ld acquire.sys flag; a w data
    × use data: Either the load comes too early…

    nor where the load follows by way of a word of another thread
    a 0:0.0, b 1:0.0, c 1:0.40 | b st release.sys flag; c ld acquire.sys flag @look; c r data; a ld acquire.sys flag; a w data
    × use data: Either the load comes too early…

    do say so where the two met only later
    a 0:0.0, b 1:0.0, c 1:0.40 | c r data; b st release.sys flag; barrier b; a ld acquire.sys flag; a w data
    × use data: …nothing orders the load of thread 40 at use before that: a barrier must come after the load and before the publication.

    name the fence of a publication that has one
    a 0:0.0, b 0:0.40, far 1:0.0 | b w data; a fence sys; a st relaxed.sys flag; far ld acquire.sys flag; far r data
    × data use: …and before the fence of the publication.

    do not promise that a wait orders what was stored behind the fence that it acquires
    a 0:0.0, b 1:0.0, c 1:0.50 | a fence sys; a w data; a st relaxed.sys flag; b ld acquire.sys flag; c r data
    × data use: Either the load comes too early…

    name what could order two blocks, two warps, two lanes
    a 0:0.0, b 0:1.0, c 0:0.40, d 0:0.1 | a w data @w; b r data @block; c r data @warp; d r data @lane
    × w block: …from the first access (block 0) to the second (block 1)…
    × w warp: …them: a block barrier between…
    × w lane: …them: a warp barrier or a block barrier between…

    notice a flag that is atomic on one side only
    node | a w flag; b ld acquire.sys flag
    × flag poll: The store at flag is weak, the load at poll atomic: make both…

    tell atomics of too narrow a scope
    grid | a rmw relaxed.gpu data @wide; b rmw relaxed.cta data @narrow
    × wide narrow: Both are atomic, but the atomic at narrow has cta scope while the other thread is in another block: use gpu.

    do not send a store behind a wait that it has gone through in the round before
    streams | launch b 1; launch a 0; a w data; b st release.sys flag; a ld acquire.sys flag; end a; b r data @use-1
    launch a 0; a w data @store-2; b st release.sys flag; a ld acquire.sys flag; end a; b r data @use-2
    × use-1 store-2: Either the load comes too early…

    ask every programmatic launch in between to await the one before
    streams | early first 0; early second 0; end second; early last 0; first w data; last awaits; last r data
    × data use: last was launched programmatically, before first on the same stream had finished, and not every launch from there on awaits the one before it: all must call g.awaitPrevious(), and in last the load at use must come behind it.

    name the edge that could order two streams
    streams | launch a 0; a w data; launch b 0'; b r data
    × data use: …overwrites what it should read: streams 0 and 1 of rank 0 run side by side…
  `),
  )('%s', (_, steps, said) => {
    const script = play(steps);
    for (const one of said) {
      const [, first, second, says] = /^(\S+) (\S+): (.*)$/.exec(one)!;
      const hint = hintOf(script, first!, second!);
      const [start, ...parts] = says!.split('…');
      expect(hint.startsWith(start!), hint).toBe(true);
      for (const part of parts) expect(hint).toContain(part);
      if (!says!.endsWith('…')) expect(hint.endsWith(parts.at(-1) ?? start!), hint).toBe(true);
    }
  });

  it('know a host from a stream and from another rank', () => {
    const script = new Script();
    const buffer = script.buffer();
    const host = script.host(0);
    const kernel = script.launch(script.stream(0), { kernel: 'stage' }).thread(0, 0);
    script.write(host, buffer, 0, 'by host');
    script.read(kernel, buffer, 0, 'by kernel');
    expect(hintOf(script, 'by host', 'by kernel')).toContain(
      'hosts run beside the streams of their GPU, and no release → acquire at sys scope leads from the host, after the first access, to stage, before the second.',
    );
    script.write(kernel, buffer, 64, 'row');
    script.store(kernel, 'release', 'gpu', buffer, flag, 'flag');
    script.load(host, 'acquire', 'sys', buffer, flag, 'poll');
    script.read(host, buffer, 64, 'use');
    expect(hintOf(script, 'row', 'use')).toBe(
      'The store at flag has gpu scope, but the load at poll that saw it ran on another processor: use sys.',
    );
  });

  it('do not call the writes of a network launches', () => {
    const script = new Script();
    const buffer = script.buffer();
    const host = script.host(0);
    const site = script.site('put');
    const [source, target] = [
      { buffer: script.buffer('source'), offset: 0 },
      { buffer, offset: 0 },
    ];
    for (const write of [0, 1]) {
      script.detector.networkPosted(write, host);
      script.detector.networkMoved(write, source, target, 4, site);
    }
    expect(hintOf(script, 'put', 'put')).toMatch(/^The network is done there only for who acquires/);
  });

  it('call a reuse a reuse only where the statement had written before', () => {
    const script = new Script();
    const buffer = script.buffer();
    const stream = script.stream(0);
    const b = script.launch(script.stream(1)).thread(0, 0);
    const send = script.site('send');
    for (let round = 1; round <= 2; round++) {
      const launch = script.launch(stream);
      const a = launch.thread(0, 0);
      const write = { kind: 'write', order: 'weak', scope: 'cta', bytes: 4 } as const;
      script.detector.access(a, write, send, buffer, 0);
      script.store(a, 'release', 'sys', buffer, flag, 'flag');
      launch.end();
      if (round === 2) break;
      script.load(b, 'acquire', 'sys', buffer, flag, 'poll');
      script.read(b, buffer, 0, 'use');
      script.read(b, buffer, 64, 'early');
    }
    script.write(script.launch(stream).thread(0, 0), buffer, 64, 'other');
    expect(hintOf(script, 'use', 'send')).toBe(
      'The store overwrites what rank 1 read before, and nothing orders the reuse: no release → acquire at sys scope leads from rank 1, after the first access, to rank 0, before the second.',
    );
    expect(hintOf(script, 'early', 'other')).toMatch(
      /^Either the load comes too early, or the store overwrites/,
    );
  });

  it.each([1, 2])('find who was waited for by more updates than are remembered, of %i threads', (takers) => {
    const script = new Script();
    const buffer = script.buffer();
    const put = script.launch(script.stream(0)).thread(0, 0);
    const take = script.launch(script.stream(1), { blocks: takers });
    const update = (by: number, label: string) => script.rmw(by, 'relaxed', 'sys', buffer, flag, label);
    for (let looks = 0; looks < 10_000; looks++) update(take.thread(looks % takers, 0), 'poll');
    script.write(put, buffer, 0, 'data');
    update(put, 'flag');
    update(take.thread(0, 0), 'poll');
    script.fence(take.thread(0, 0), 'sys');
    script.read(take.thread(0, 0), buffer, 0, 'use');
    expect(hintOf(script, 'data', 'use')).toBe(
      "The atomic at flag was seen by the atomic at poll, but releases nothing: make it a release, or put g.fence('sys') before it.",
    );
  });

  it('tell atomics of two sizes', () => {
    const script = new Script();
    const buffer = script.buffer();
    const launch = script.launch(script.stream(0), { blocks: 2 });
    script.access(launch.thread(0, 0), 'update', 'relaxed', 'gpu', buffer, 64, 8, 'long');
    script.rmw(launch.thread(1, 0), 'relaxed', 'gpu', buffer, 64, 'short');
    expect(hintOf(script, 'long', 'short')).toContain('of 8 and 4 bytes');
  });
});

describe('findings', () => {
  it('say who did what, and are counted once per pair of statements and field', () => {
    const script = new Script();
    const buffer = {
      ...script.buffer('receive window', 1),
      describe: (offset: number) => (offset < 64 ? `rows[${offset / 4}]` : `weights[${(offset - 64) / 4}]`),
    };
    const launch = script.launch(script.stream(0), { blocks: 2, threads: 2, kernel: 'dispatch' });
    const [wrote, read] = [script.site('dispatch.ts:40:3'), script.site('dispatch.ts:52:3')];
    const write = { kind: 'write', order: 'weak', scope: 'cta', bytes: 4 } as const;
    const load = { kind: 'read', order: 'relaxed', scope: 'gpu', bytes: 4 } as const;
    for (const offset of [0, 4, 64, 68]) {
      script.detector.access(launch.thread(0, 1), write, wrote, buffer, offset);
      script.detector.access(launch.thread(1, 0), load, read, buffer, offset);
    }
    expect(script.findings.map(({ location }) => location)).toEqual(['rows[0]', 'weights[0]']);
    expect(script.findings[0]).toMatchObject({
      seed: '7',
      configuration: 'script',
      buffer: 'receive window',
      first: { kind: 'write', order: 'weak', rank: 0, kernel: 'dispatch', block: 0, thread: 1 },
      second: {
        kind: 'read',
        order: 'relaxed',
        scope: 'gpu',
        block: 1,
        thread: 0,
        where: 'dispatch.ts:52:3',
      },
    });
  });
});
