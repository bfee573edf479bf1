import { PassThrough, Readable, Writable } from 'node:stream';
import { text as readAll } from 'node:stream/consumers';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { forwardLines, outletTo } from '../../../src/net/world/output.js';

describe('forwardLines', () => {
  it('forwards every byte, in whole lines behind the prefix, however the stream is cut', async () => {
    const text = fc.string({ unit: fc.constantFrom('a', 'ß', '🧵', '\n', '\r'), maxLength: 60 });
    await fc.assert(
      fc.asyncProperty(
        text,
        fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1 }),
        async (all, sizes) => {
          const bytes = Buffer.from(all);
          const chunks: Buffer[] = [];
          for (let at = 0, i = 0; at < bytes.length; i++) {
            const size = sizes[i % sizes.length]!;
            chunks.push(bytes.subarray(at, at + size));
            at += size;
          }
          const to = new PassThrough();
          await forwardLines(Readable.from(chunks), outletTo(to), '> ');
          const lines = all.split('\n');
          if (lines.at(-1) === '') lines.pop();
          expect(await readAll(to.end())).toBe(lines.map((line) => `> ${line}\n`).join(''));
        },
      ),
      { seed: 6, numRuns: 200 },
    );
  });

  it('passes a line without end on in pieces', async () => {
    const chunks = Array.from({ length: 5 }, () => Buffer.alloc(40 << 10, 'x'));
    const to = new PassThrough({ highWaterMark: 1 << 20 });
    await forwardLines(Readable.from(chunks), outletTo(to), '');
    const lines = (await readAll(to.end())).trimEnd().split('\n');
    expect(lines.map((line) => line.length)).toEqual([80 << 10, 80 << 10, 40 << 10]);
  });
});

describe('outletTo', () => {
  it('makes every writer wait while the stream is full, with one listener for all', async () => {
    const waiting: (() => void)[] = [];
    const slow = new Writable({
      highWaterMark: 1,
      write: (_chunk, _encoding, done) => void waiting.push(done),
    });
    const outlet = outletTo(slow);
    let written = 0;
    const writes = Array.from({ length: 20 }, () => outlet(Buffer.from('x')).then(() => written++));
    await Promise.resolve();
    expect(written).toBe(0);
    expect(slow.listenerCount('drain')).toBe(1);
    while (waiting.length > 0) {
      waiting.shift()!();
      await new Promise((resolve) => setImmediate(resolve));
    }
    await Promise.all(writes);
    expect(slow.listenerCount('drain')).toBe(0);
  });

  it('lets nobody wait for a stream that is gone', async () => {
    const stuck = new Writable({ highWaterMark: 1, write: () => {} });
    const outlet = outletTo(stuck);
    const write = outlet(Buffer.from('x'));
    stuck.destroy();
    await write;
    await outlet(Buffer.from('y'));
  });
});
