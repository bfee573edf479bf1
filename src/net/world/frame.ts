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
  /** The parts of the frame under way: its prefix, and behind it head and bytes, whose lengths the prefix tells. */
  #parts: readonly Uint8Array[] = [new Uint8Array(PREFIX)];
  /** Which of them is being filled, and how much of it is here. */
  #part = 0;
  #filled = 0;

  constructor(limits: FrameLimits) {
    this.limits = limits;
  }

  /** The frames that this chunk completes, one at a time. Throws ProtocolError; then the stream is lost. */
  *read(chunk: Uint8Array): Generator<Frame> {
    for (let at = 0; ; ) {
      const part = this.#parts[this.#part]!;
      const taken = chunk.subarray(at, at + part.length - this.#filled);
      part.set(taken, this.#filled);
      at += taken.length;
      this.#filled += taken.length;
      if (this.#filled < part.length) return;
      this.#filled = 0;
      if (this.#part === 0) this.#parts = this.#partsBehind(part);
      this.#part = (this.#part + 1) % this.#parts.length;
      const [, head, bytes] = this.#parts;
      if (this.#part === 0) yield { head: decode(head!), bytes: bytes! };
    }
  }

  #partsBehind(prefix: Uint8Array): readonly Uint8Array[] {
    const lengths = new DataView(prefix.buffer);
    const head = lengths.getUint32(0, true);
    const bytes = lengths.getUint32(4, true);
    if (head === 0 || head > this.limits.head || bytes > this.limits.bytes) {
      throw new ProtocolError(`a frame of ${head} + ${bytes} bytes`);
    }
    return [prefix, new Uint8Array(head), new Uint8Array(bytes)];
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
