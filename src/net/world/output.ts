import type { Readable, Writable } from 'node:stream';

const NEWLINE = 0x0a;
const END_OF_LINE = Buffer.of(NEWLINE);
/** A line that never ends is passed on in pieces of this size. */
const LONGEST_LINE = 64 << 10;

/**
 * One stream that many ranks write to. They share one wait for it to drain, since a listener for each of
 * them would be one too many.
 */
export class Outlet {
  readonly #stream: Writable;
  #drained: Promise<void> | undefined;

  constructor(stream: Writable) {
    this.#stream = stream;
  }

  /** Resolves when more may be written. */
  async write(bytes: Uint8Array): Promise<void> {
    if (this.#stream.destroyed || this.#stream.write(bytes)) return;
    this.#drained ??= new Promise((resolve) => {
      const go = () => {
        this.#drained = undefined;
        this.#stream.off('drain', go).off('close', go);
        resolve();
      };
      this.#stream.on('drain', go).on('close', go);
    });
    await this.#drained;
  }
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
        await to.write(Buffer.concat([mark, rest.subarray(start, end + 1)]));
        start = end + 1;
      }
      rest = rest.subarray(start);
      if (rest.length > LONGEST_LINE) {
        await to.write(Buffer.concat([mark, rest, END_OF_LINE]));
        rest = Buffer.alloc(0);
      }
    }
  } catch (error) {
    // Closed from here, because nothing came any more; what came is still passed on.
    if ((error as NodeJS.ErrnoException).code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
  }
  if (rest.length > 0) await to.write(Buffer.concat([mark, rest, END_OF_LINE]));
}
