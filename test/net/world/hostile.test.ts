/** What launchers and connections bring, with something hostile at every place of it. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ArgumentError, HeddleError } from '../../../src/base/errors.js';
import { formatAddress, parseAddress } from '../../../src/net/world/address.js';
import { type Environment, firstNode, readEnvironment } from '../../../src/net/world/environment.js';
import { encodeFrame, FrameReader } from '../../../src/net/world/frame.js';
import { type Message, ProtocolError, parseMessage } from '../../../src/net/world/messages.js';
import { reportIn } from '../../../src/net/world/report-lines.js';
import { drawnJson, hostileValues, readAll, spoiltBytes, spoiltJson, spoiltObjects } from '../../hostile.js';
import { launchers } from './environments.js';
import { messages } from './messages.js';

const isRank = (rank: unknown) => Number.isInteger(rank) && (rank as number) >= 0 && (rank as number) < 1024;

/** That a message has nothing but what its type has, each of the kind that the example shows. */
function expectLike(example: Message, message: Message): void {
  expect(Object.keys(message)).toEqual(Object.keys(example));
  for (const [field, shown] of Object.entries(example)) {
    const value: unknown = Reflect.get(message, field);
    if (!Array.isArray(shown)) expect(typeof value).toBe(typeof shown);
    else expect(Array.isArray(value) && value.every(Number.isSafeInteger)).toBe(true);
    if (typeof value === 'number') expect(Number.isSafeInteger(value)).toBe(true);
    if (typeof value === 'string') expect(value.length).toBeLessThanOrEqual(2000);
    if (field === 'ranks' && Array.isArray(value)) {
      expect(value.every(isRank)).toBe(true);
      expect(new Set(value).size).toBe(value.length);
    }
  }
}

describe('hostile', () => {
  it.each(messages)('messages of type $type are read or refused', (example) => {
    const heads = [...spoiltJson({ ...example, more: [{}] }), ...drawnJson(example, 1)];
    readAll(heads, parseMessage, ProtocolError, (message) =>
      expectLike(messages.find(({ type }) => type === message.type)!, message),
    );
  });

  it('bytes of a connection are frames within the limits, or refused', () => {
    const limits = { head: 60, bytes: 20 };
    const valid = Buffer.concat(
      encodeFrame({ head: '{"type":"pong","é":"\u{1f9f5}"}', bytes: Uint8Array.of(1, 2, 3) }),
    );
    for (const cut of [1, 7, 1000]) {
      readAll(
        spoiltBytes(valid),
        (bytes) => {
          const reader = new FrameReader(limits);
          const frames = [];
          for (let at = 0; at < bytes.length; at += cut)
            frames.push(...reader.read(bytes.subarray(at, at + cut)));
          return frames;
        },
        ProtocolError,
        (frames) => {
          for (const { head, bytes } of frames) {
            expect(Buffer.byteLength(head)).toBeLessThanOrEqual(limits.head);
            expect(bytes.length).toBeLessThanOrEqual(limits.bytes);
          }
        },
      );
    }
  });

  it.each(Object.entries(launchers))(
    'variables of %s are a place in a world, or refused',
    (_, environment) => {
      readAll(spoiltObjects<Environment>(environment), readEnvironment, HeddleError, (place) => {
        const { rank, ranks, localRank, ranksHere, address, world, nodes = 1 } = place;
        expect(ranks).toBeGreaterThan(0);
        for (const one of [rank, localRank ?? 0, rank + ranksHere - 1])
          expect(isRank(one) && one < ranks).toBe(true);
        expect(parseAddress('address', formatAddress(address))).toEqual(address);
        expect(typeof world).toBe('string');
        expect(nodes > 0 && nodes <= (place.places ?? ranks)).toBe(true);
      });
    },
  );

  it("lines of a rank's output are reports, something else, or refused", () => {
    const lines = ['', 'a library says {', ...spoiltJson({ rank: 0, digest: '00' })];
    readAll(lines, reportIn, HeddleError, (report) => expect(typeof report).toBe('object'));
  });

  it('lists of nodes have a first, whatever they are', () => {
    const pieces = fc.constantFrom('[', ']', ',', '-', 'gpu', '0', '007', '[1-2]', '\ud800', '[[[[[[[[');
    fc.assert(
      fc.property(fc.array(pieces, { maxLength: 40 }), (list) => {
        expect(typeof firstNode(list.join(''))).toBe('string');
      }),
      { seed: 2, numRuns: 500 },
    );
    for (const long of ['[', ']', '[]', ',', '[1,', 'n[1-'])
      expect(typeof firstNode(long.repeat(50_000))).toBe('string');
  });

  it('addresses are a host and a port, or refused', () => {
    readAll(
      [...hostileValues, 'h:1'],
      (address) => parseAddress('address', address as string),
      ArgumentError,
      ({ port }) => expect(port).toBeGreaterThan(0),
    );
  });
});
