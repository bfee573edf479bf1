import type { Readable, Writable } from 'node:stream';

const NEWLINE = 0x0a;
const END_OF_LINE = Buffer.of(NEWLINE);
/** A line that never ends is passed on in pieces of this size. */
const LONGEST_LINE = 64 << 10;

/** One stream that many ranks write to. Writes resolve when more may be written. */
export type Outlet = (bytes: Uint8Array) => Promise<void>;

/** Makes an outlet to a stream. All who write share one wait for it to drain: a listener for each would be too many. */
export function outletTo(stream: Writable): Outlet {
  let drained: Promise<void> | undefined;
  return async (bytes) => {
    if (stream.destroyed || stream.write(bytes)) return;
    drained ??= new Promise((resolve) => {
      const go = () => {
        drained = undefined;
        stream.off('drain', go).off('close', go);
        resolve();
      };
      stream.on('drain', go).on('close', go);
    });
    await drained;
  };
}

/** Forwards whole lines, each behind the prefix, so that lines of different ranks never mix. */
export async function forwardLines(from: Readable, to: Outlet, prefix: string): Promise<void> {
  const mark = Buffer.from(prefix);
  let rest = Buffer.alloc(0);
  try {
    for await (const chunk of from as AsyncIterable<Buffer>) {
      rest = Buffer.concat([rest, chunk]);
      let start = 0;
      for (let end = rest.indexOf(NEWLINE); end >= 0; end = rest.indexOf(NEWLINE, start)) {
        await to(Buffer.concat([mark, rest.subarray(start, end + 1)]));
        start = end + 1;
      }
      rest = rest.subarray(start);
      if (rest.length > LONGEST_LINE) {
        await to(Buffer.concat([mark, rest, END_OF_LINE]));
        rest = Buffer.alloc(0);
      }
    }
  } catch (error) {
    // Closed from here, because nothing came any more; what came is still passed on.
    if ((error as NodeJS.ErrnoException).code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
  }
  if (rest.length > 0) await to(Buffer.concat([mark, rest, END_OF_LINE]));
}
