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
      'The store at flag reached the other side, but does not cover the store at data: publish after that, and await it.',
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
      'Thread 0 of the block published (the store at flag), but nothing orders the store of thread 40 at data of 40 before that: a barrier must come after the store and before the publication.',
    );
    expect(hintOf(script, 'data of 0', 'use by 50')).toBe(
      'Thread 0 of the block acquires what would order them (the load at poll), but nothing orders thread 50 after that: a barrier must come after it and before the load at use by 50.',
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

  it('do not blame a load for a wait that its thread makes after the race, in the same breath', () => {
    const script = new Script();
    const buffer = script.buffer();
    const a = script.launch(script.stream(0)).thread(0, 0);
    const b = script.launch(script.stream(1)).thread(0, 0);
    script.write(a, buffer, 0, 'data');
    script.store(a, 'release', 'sys', buffer, flag, 'flag');
    script.read(b, buffer, 0, 'use');
    script.load(b, 'relaxed', 'sys', buffer, flag, 'poll');
    expect(hintOf(script, 'data', 'use')).toMatch(/^Either the load comes too early/);
  });

  it('do not send a store behind a wait that it has gone through in the round before', () => {
    const script = new Script();
    const buffer = script.buffer();
    const stream = script.stream(0);
    const b = script.launch(script.stream(1)).thread(0, 0);
    for (const round of [1, 2]) {
      const launch = script.launch(stream);
      script.write(launch.thread(0, 0), buffer, 0, `store ${round}`);
      script.store(b, 'release', 'sys', buffer, flag, 'flag');
      script.load(launch.thread(0, 0), 'acquire', 'sys', buffer, flag, 'poll');
      launch.end();
      script.read(b, buffer, 0, `use ${round}`);
    }
    expect(hintOf(script, 'use 1', 'store 2')).toMatch(/^Either the load comes too early/);
  });

  it('do not say that a barrier is missing behind a publication that the load follows', () => {
    for (const lane of [0, 40]) {
      const script = new Script();
      const buffer = script.buffer();
      const reader = script.launch(script.stream(1), { threads: 64 });
      const a = script.launch(script.stream(0)).thread(0, 0);
      script.store(reader.thread(0, 0), 'release', 'sys', buffer, flag, 'flag');
      reader.barrier(0);
      script.read(reader.thread(0, lane), buffer, 0, 'use');
      script.load(a, 'acquire', 'sys', buffer, flag, 'poll');
      script.write(a, buffer, 0, 'store');
      expect(hintOf(script, 'use', 'store')).toMatch(/^Either the load comes too early/);
    }
  });

  it('do not say so either where the load follows by way of a word of another thread', () => {
    const script = new Script();
    const buffer = script.buffer();
    const reader = script.launch(script.stream(1), { threads: 64 });
    const a = script.launch(script.stream(0)).thread(0, 0);
    script.store(reader.thread(0, 0), 'release', 'sys', buffer, flag, 'flag');
    script.load(reader.thread(0, 40), 'acquire', 'sys', buffer, flag, 'look');
    script.read(reader.thread(0, 40), buffer, 0, 'use');
    script.load(a, 'acquire', 'sys', buffer, flag, 'poll');
    script.write(a, buffer, 0, 'store');
    expect(hintOf(script, 'use', 'store')).toMatch(/^Either the load comes too early/);
  });

  it('do say so where the two met only later', () => {
    const script = new Script();
    const buffer = script.buffer();
    const reader = script.launch(script.stream(1), { threads: 64 });
    const a = script.launch(script.stream(0)).thread(0, 0);
    script.read(reader.thread(0, 40), buffer, 0, 'use');
    script.store(reader.thread(0, 0), 'release', 'sys', buffer, flag, 'flag');
    reader.barrier(0);
    script.load(a, 'acquire', 'sys', buffer, flag, 'poll');
    script.write(a, buffer, 0, 'store');
    expect(hintOf(script, 'use', 'store')).toMatch(
      /nothing orders the load of thread 40 at use before that: a barrier must come after the load and before the publication\.$/,
    );
  });

  it('name the fence of a publication that has one', () => {
    const script = new Script();
    const buffer = script.buffer();
    const near = script.launch(script.stream(0), { threads: 64 });
    const far = script.launch(script.stream(1)).thread(0, 0);
    script.write(near.thread(0, 40), buffer, 0, 'data');
    script.fence(near.thread(0, 0), 'sys');
    script.store(near.thread(0, 0), 'relaxed', 'sys', buffer, flag, 'flag');
    script.load(far, 'acquire', 'sys', buffer, flag, 'poll');
    script.read(far, buffer, 0, 'use');
    expect(hintOf(script, 'data', 'use')).toMatch(/and before the fence of the publication\.$/);
  });

  it('do not promise that a wait orders what was stored behind the fence that it acquires', () => {
    const script = new Script();
    const buffer = script.buffer();
    const a = script.launch(script.stream(0)).thread(0, 0);
    const far = script.launch(script.stream(1), { threads: 64 });
    script.fence(a, 'sys');
    script.write(a, buffer, 0, 'data');
    script.store(a, 'relaxed', 'sys', buffer, flag, 'flag');
    script.load(far.thread(0, 0), 'acquire', 'sys', buffer, flag, 'poll');
    script.read(far.thread(0, 50), buffer, 0, 'use');
    expect(hintOf(script, 'data', 'use')).toMatch(/^Either the load comes too early/);
  });

  it('ask every programmatic launch in between to await the one before', () => {
    const script = new Script();
    const buffer = script.buffer();
    const stream = script.stream(0);
    const options = { programmatic: true };
    const first = script.launch(stream, { ...options, kernel: 'first' });
    script.launch(stream, { ...options, kernel: 'second' }).end();
    const last = script.launch(stream, { ...options, kernel: 'last' });
    script.write(first.thread(0, 0), buffer, 0, 'store');
    script.detector.awaitPrevious(last.thread(0, 0));
    script.read(last.thread(0, 0), buffer, 0, 'load');
    expect(hintOf(script, 'store', 'load')).toBe(
      'last was launched programmatically, before first on the same stream had finished, and not every launch from there on awaits the one before it: all must call g.awaitPrevious(), and in last the load at load must come behind it.',
    );
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
      `overwrites what it should read: streams ${one} and ${two} of rank 0 run side by side`,
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
