import { ProtocolError } from './messages.js';

/**
 * The data on a connection: frames of
 *
 *   u32 little-endian  length of the head
 *   u32 little-endian  length of the bytes
 *   head               a message, JSON in UTF-8
 *   bytes              opaque
 *
 * Both lengths are checked against limits before anything is allocated for them.
 */
export interface Frame {
  readonly head: string;
  readonly bytes: Uint8Array;
}

/** The largest frame that a reader accepts. */
interface FrameLimits {
  readonly head: number;
  readonly bytes: number;
}

const PREFIX = 8;

/** The frame as the buffers to write; the bytes are not copied. */
export function encodeFrame({ head, bytes }: Frame): Uint8Array[] {
  const text = Buffer.from(head, 'utf8');
  const prefix = Buffer.alloc(PREFIX);
  prefix.writeUInt32LE(text.length, 0);
  prefix.writeUInt32LE(bytes.length, 4);
  return bytes.length > 0 ? [Buffer.concat([prefix, text]), bytes] : [Buffer.concat([prefix, text])];
}

/** Puts frames together again from chunks cut anywhere. */
export class FrameReader {
  /** May be changed between frames, also in the middle of a `read`. */
  limits: FrameLimits;
  readonly #prefix = new Uint8Array(PREFIX);
  #head = new Uint8Array(0);
  #bytes = new Uint8Array(0);
  /** The part of the frame under way that is being filled, and how much of it is here. */
  #part: 'prefix' | 'head' | 'bytes' = 'prefix';
  #filled = 0;

  constructor(limits: FrameLimits) {
    this.limits = limits;
  }

  /** The frames that this chunk completes, one at a time. Throws ProtocolError; then the stream is lost. */
  *read(chunk: Uint8Array): Generator<Frame> {
    let at = 0;
    const fill = (part: Uint8Array): boolean => {
      const taken = chunk.subarray(at, at + part.length - this.#filled);
      part.set(taken, this.#filled);
      at += taken.length;
      this.#filled += taken.length;
      if (this.#filled < part.length) return false;
      this.#filled = 0;
      return true;
    };
    for (;;) {
      switch (this.#part) {
        case 'prefix':
          if (!fill(this.#prefix)) return;
          this.#allocate();
          this.#part = 'head';
          break;
        case 'head':
          if (!fill(this.#head)) return;
          this.#part = 'bytes';
          break;
        case 'bytes':
          if (!fill(this.#bytes)) return;
          this.#part = 'prefix';
          yield { head: decode(this.#head), bytes: this.#bytes };
      }
    }
  }

  #allocate(): void {
    const lengths = new DataView(this.#prefix.buffer);
    const head = lengths.getUint32(0, true);
    const bytes = lengths.getUint32(4, true);
    if (head === 0 || head > this.limits.head || bytes > this.limits.bytes) {
      throw new ProtocolError(`a frame of ${head} + ${bytes} bytes`);
    }
    this.#head = new Uint8Array(head);
    this.#bytes = new Uint8Array(bytes);
  }
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function decode(head: Uint8Array): string {
  try {
    return utf8.decode(head);
  } catch {
    throw new ProtocolError('a frame whose head is not UTF-8');
  }
}
