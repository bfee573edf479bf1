import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { encodeFrame, type Frame, FrameReader } from '../../../src/net/world/frame.js';
import { ProtocolError, parseMessage } from '../../../src/net/world/messages.js';
import { messages } from './messages.js';

const limits = { head: 1000, bytes: 5000 };

const frames = fc.array(
  fc.record({
    head: fc.string({ minLength: 1, maxLength: 60, unit: 'grapheme' }),
    bytes: fc.uint8Array({ maxLength: 300 }),
  }),
  { maxLength: 8 },
);

/** Where to cut a stream: sizes of chunks, zero included, taken round robin. */
const cuts = fc
  .array(fc.nat(40), { minLength: 1, maxLength: 10 })
  .filter((sizes) => sizes.some((n) => n > 0));

function* chunksOf(stream: Uint8Array, sizes: readonly number[]): Generator<Uint8Array> {
  for (let at = 0, i = 0; at < stream.length; i++) {
    const size = sizes[i % sizes.length]!;
    yield stream.subarray(at, at + size);
    at += size;
  }
}

const streamOf = (all: readonly Frame[]) => Buffer.concat(all.flatMap(encodeFrame));

describe('FrameReader', () => {
  it('gives the frames that were written, however the stream is cut', () => {
    fc.assert(
      fc.property(frames, cuts, (written, sizes) => {
        const reader = new FrameReader(limits);
        const read = [...chunksOf(streamOf(written), sizes)].flatMap((chunk) => [...reader.read(chunk)]);
        expect(read).toEqual(written.map(({ head, bytes }) => ({ head, bytes: new Uint8Array(bytes) })));
      }),
      { seed: 1, numRuns: 300 },
    );
  });

  it.each([
    ['a head over the limit', 1001, 0],
    ['bytes over the limit', 1, 5001],
    ['lengths of four gigabytes', 0xffffffff, 0xffffffff],
    ['an empty head', 0, 0],
  ])('refuses %s as soon as the lengths are here', (_, head, bytes) => {
    const prefix = Buffer.alloc(8);
    prefix.writeUInt32LE(head, 0);
    prefix.writeUInt32LE(bytes, 4);
    expect(() => [...new FrameReader(limits).read(prefix)]).toThrow(ProtocolError);
  });

  it('refuses a head that is not UTF-8', () => {
    const [frame] = encodeFrame({ head: 'ab', bytes: new Uint8Array(0) });
    frame!.set([0xc3, 0x28], 8);
    expect(() => [...new FrameReader(limits).read(frame!)]).toThrow(ProtocolError);
  });

  it('applies new limits from the next frame on, within one chunk', () => {
    const reader = new FrameReader({ head: 10, bytes: 0 });
    const stream = streamOf([
      { head: 'hello', bytes: new Uint8Array(0) },
      { head: 'big', bytes: new Uint8Array(4000) },
    ]);
    const heads: string[] = [];
    for (const { head } of reader.read(stream)) {
      heads.push(head);
      reader.limits = limits;
    }
    expect(heads).toEqual(['hello', 'big']);
  });
});

describe('parseMessage', () => {
  it.each(messages)('reads $type, and drops what does not belong to it', (message) => {
    expect(parseMessage(JSON.stringify({ ...message, extra: 1 }))).toEqual(message);
  });

  it('refuses every message in which one field is something else', () => {
    const message = fc.constantFrom(...messages.filter((example) => Object.keys(example).length > 1));
    const wrong = fc.constantFrom<unknown>(null, -1, 1.5, 2 ** 40, {}, [[]], true, 'x'.repeat(3000), [-1]);
    fc.assert(
      fc.property(message, fc.nat(10), wrong, (example, which, value) => {
        const fields = Object.keys(example).filter((field) => field !== 'type');
        const field = fields[which % fields.length]!;
        if (field === 'id' && value === 2 ** 40) return; // calls may be that many
        expect(() => parseMessage(JSON.stringify({ ...example, [field]: value }))).toThrow(ProtocolError);
      }),
      { seed: 3, numRuns: 400 },
    );
  });

  it('answers any other text with ProtocolError', () => {
    const texts = fc.oneof(fc.string(), fc.json(), fc.constant('{"type":"__proto__"}'));
    fc.assert(
      fc.property(texts, (head) => {
        expect(() => parseMessage(head)).toThrow(ProtocolError);
      }),
      { seed: 4, numRuns: 300 },
    );
  });
});
