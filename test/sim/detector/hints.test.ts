/** What findings advise: derived from what happened, and naming the right lines. */
import { describe, expect, it } from 'vitest';
import { Script } from './script.js';

const flag = 512;

function hintOf(script: Script, first: string, second: string): string {
  const found = script.findings.find((race) => race.first.where === first && race.second.where === second);
  return found?.hint ?? `no such race among: ${script.races.join(', ')}`;
}

/** Thread a of rank 0 writes data and stores a flag; thread b of rank 1 loads the flag and reads the data. */
function handOver(
  between: (script: Script, a: number, b: number, buffer: ReturnType<Script['buffer']>) => void,
) {
  const script = new Script();
  const buffer = script.buffer();
  const a = script.launch(script.stream(0), { threads: 64 }).thread(0, 0);
  const b = script.launch(script.stream(1), { threads: 64 }).thread(0, 0);
  script.write(a, buffer, 0, 'data');
  between(script, a, b, buffer);
  script.read(b, buffer, 0, 'use');
  return hintOf(script, 'data', 'use');
}

describe('hints', () => {
  it('say which half of a synchronisation is missing', () => {
    const noAcquire = handOver((s, a, b, buffer) => {
      s.store(a, 'release', 'sys', buffer, flag, 'flag');
      s.load(b, 'relaxed', 'sys', buffer, flag, 'poll');
    });
    expect(noAcquire).toBe(
      "The load at poll saw the store at flag, but no acquire comes between it and the later access: make it acquire, or put g.fence('sys') after it.",
    );
    const noRelease = handOver((s, a, b, buffer) => {
      s.store(a, 'relaxed', 'sys', buffer, flag, 'flag');
      s.load(b, 'acquire', 'sys', buffer, flag, 'poll');
    });
    expect(noRelease).toBe(
      "The store at flag was seen by the load at poll, but releases nothing: make it a release, or put g.fence('sys') before it.",
    );
  });

  it('say which scope is too narrow', () => {
    const narrowStore = handOver((s, a, b, buffer) => {
      s.store(a, 'release', 'gpu', buffer, flag, 'flag');
      s.load(b, 'acquire', 'sys', buffer, flag, 'poll');
    });
    expect(narrowStore).toBe(
      'The store at flag has gpu scope, but the load at poll that saw it ran on another rank: use sys.',
    );
    const narrowLoad = handOver((s, a, b, buffer) => {
      s.store(a, 'release', 'sys', buffer, flag, 'flag');
      s.load(b, 'acquire', 'cta', buffer, flag, 'poll');
    });
    expect(narrowLoad).toBe(
      'The load at poll has cta scope, but the store at flag that it saw came from a thread on another rank: use sys.',
    );
    const narrowRelease = handOver((s, a, b, buffer) => {
      s.fence(a, 'gpu');
      s.store(a, 'relaxed', 'sys', buffer, flag, 'flag');
      s.load(b, 'acquire', 'sys', buffer, flag, 'poll');
    });
    expect(narrowRelease).toContain("the fence before it is narrower: use g.fence('sys').");
    const narrowAcquire = handOver((s, a, b, buffer) => {
      s.store(a, 'release', 'sys', buffer, flag, 'flag');
      s.load(b, 'relaxed', 'sys', buffer, flag, 'poll');
      s.fence(b, 'gpu');
    });
    expect(narrowAcquire).toContain("the fence after it is narrower: use g.fence('sys').");
  });

  it('do not blame a load whose fence comes, but too late', () => {
    const script = new Script();
    const buffer = script.buffer();
    const a = script.launch(script.stream(0)).thread(0, 0);
    const b = script.launch(script.stream(1)).thread(0, 0);
    script.write(a, buffer, 0, 'data');
    script.store(a, 'release', 'sys', buffer, flag, 'flag');
    script.load(b, 'relaxed', 'sys', buffer, flag, 'poll');
    script.read(b, buffer, 0, 'use');
    script.fence(b, 'sys');
    expect(hintOf(script, 'data', 'use')).toContain('no acquire comes between it and the later access');
  });

  it('find the broken link of a chain', () => {
    const script = new Script();
    const buffer = script.buffer();
    const near = script.launch(script.stream(0), { blocks: 2 });
    const far = script.launch(script.stream(1)).thread(0, 0);
    script.write(near.thread(0, 0), buffer, 0, 'data');
    script.update(near.thread(0, 0), 'relaxed', 'gpu', buffer, flag, 'count');
    script.update(near.thread(1, 0), 'acq_rel', 'gpu', buffer, flag, 'last');
    script.store(near.thread(1, 0), 'release', 'sys', buffer, flag + 4, 'arrive');
    script.load(far, 'acquire', 'sys', buffer, flag + 4, 'await');
    script.read(far, buffer, 0, 'use');
    expect(hintOf(script, 'data', 'use')).toBe(
      "The atomic at count was seen by the atomic at last, but releases nothing: make it a release, or put g.fence('gpu') before it.",
    );
  });

  it('see a flag that is published before its data', () => {
    const script = new Script();
    const buffer = script.buffer();
    const a = script.launch(script.stream(0)).thread(0, 0);
    const b = script.launch(script.stream(1)).thread(0, 0);
    script.store(a, 'release', 'sys', buffer, flag, 'flag');
    script.write(a, buffer, 0, 'data');
    script.load(b, 'acquire', 'sys', buffer, flag, 'poll');
    script.read(b, buffer, 0, 'use');
    expect(hintOf(script, 'data', 'use')).toBe(
      'The store at flag reached the other side, but was made before the store at data: publish after it.',
    );
  });

  it('see the missing barrier on either side of a flag', () => {
    const script = new Script();
    const buffer = script.buffer();
    const near = script.launch(script.stream(0), { threads: 64 });
    const far = script.launch(script.stream(1), { threads: 64 });
    script.write(near.thread(0, 0), buffer, 0, 'data of 0');
    script.write(near.thread(0, 40), buffer, 4, 'data of 40');
    script.store(near.thread(0, 0), 'release', 'sys', buffer, flag, 'flag');
    script.load(far.thread(0, 0), 'acquire', 'sys', buffer, flag, 'poll');
    script.read(far.thread(0, 0), buffer, 4, 'use by 0');
    script.read(far.thread(0, 50), buffer, 0, 'use by 50');
    expect(hintOf(script, 'data of 40', 'use by 0')).toBe(
      'Thread 0 of the block published (the store at flag), but nothing orders the store of thread 40 at data of 40 before that: a barrier is missing between.',
    );
    expect(hintOf(script, 'data of 0', 'use by 50')).toBe(
      'Thread 0 of the block acquires what would order them (the load at poll), but nothing orders thread 50 after that: a barrier is missing between.',
    );
  });

  it('see a read that goes before the wait for what it reads', () => {
    const script = new Script();
    const buffer = script.buffer();
    const a = script.launch(script.stream(0)).thread(0, 0);
    const b = script.launch(script.stream(1)).thread(0, 0);
    script.read(b, buffer, 0, 'use');
    script.write(a, buffer, 0, 'data');
    script.store(a, 'release', 'sys', buffer, flag, 'flag');
    script.load(b, 'acquire', 'sys', buffer, flag, 'poll');
    expect(hintOf(script, 'use', 'data')).toBe(
      'The load at poll acquires what orders them, but the load at use comes before it.',
    );
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

  it('name the edge that could order two streams, two blocks, two threads', () => {
    const script = new Script();
    const buffer = script.buffer();
    const [one, two] = [script.stream(0), script.stream(0)];
    const first = script.launch(one, { blocks: 2, threads: 64 });
    const second = script.launch(two);
    script.write(first.thread(0, 0), buffer, 0, 'w');
    script.read(second.thread(0, 0), buffer, 0, 'other stream');
    script.read(first.thread(1, 0), buffer, 0, 'other block');
    script.read(first.thread(0, 40), buffer, 0, 'other warp');
    script.read(first.thread(0, 1), buffer, 0, 'other lane');
    expect(hintOf(script, 'w', 'other stream')).toContain(
      `Streams ${one} and ${two} of rank 0 run side by side`,
    );
    expect(hintOf(script, 'w', 'other block')).toContain(
      'from the first access (block 0) to the second (block 1)',
    );
    expect(hintOf(script, 'w', 'other warp')).toMatch(/them: a block barrier between/);
    expect(hintOf(script, 'w', 'other lane')).toMatch(/them: a warp barrier or a block barrier between/);
  });

  it('notice a flag that is atomic on one side only', () => {
    const script = new Script();
    const buffer = script.buffer();
    const a = script.launch(script.stream(0)).thread(0, 0);
    const b = script.launch(script.stream(1)).thread(0, 0);
    script.write(a, buffer, flag, 'flag');
    script.load(b, 'acquire', 'sys', buffer, flag, 'poll');
    expect(hintOf(script, 'flag', 'poll')).toMatch(
      /^The store at flag is weak, the load at poll atomic: make both/,
    );
  });

  it('tell atomics of two sizes from atomics of too narrow a scope', () => {
    const script = new Script();
    const buffer = script.buffer();
    const launch = script.launch(script.stream(0), { blocks: 2 });
    const [a, b] = [launch.thread(0, 0), launch.thread(1, 0)];
    script.update(a, 'relaxed', 'gpu', buffer, 0, 'wide');
    script.update(b, 'relaxed', 'cta', buffer, 0, 'narrow');
    script.access(a, 'update', 'relaxed', 'gpu', buffer, 64, 8, 'long');
    script.update(b, 'relaxed', 'gpu', buffer, 64, 'short');
    expect(hintOf(script, 'wide', 'narrow')).toBe(
      'Both are atomic, but the atomic at narrow has cta scope while the other thread is in another block: use gpu.',
    );
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
