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
  /** What has come of the next frame, how much that is, and how much it must be to tell more. */
  #chunks: Uint8Array[] = [];
  #length = 0;
  #needed = PREFIX;

  constructor(limits: FrameLimits) {
    this.limits = limits;
  }

  /** The frames that this chunk completes, one at a time. Throws ProtocolError; then the stream is lost. */
  *read(chunk: Uint8Array): Generator<Frame> {
    this.#chunks.push(chunk);
    this.#length += chunk.length;
    if (this.#length < this.#needed) return;
    const here = Buffer.concat(this.#chunks);
    let at = 0;
    for (;;) {
      this.#needed = PREFIX;
      if (here.length - at < PREFIX) break;
      const [head, bytes] = [here.readUInt32LE(at), here.readUInt32LE(at + 4)];
      if (head === 0 || head > this.limits.head || bytes > this.limits.bytes)
        throw new ProtocolError(`a frame of ${head} + ${bytes} bytes`);
      this.#needed += head + bytes;
      if (here.length - at < this.#needed) break;
      at += this.#needed;
      yield {
        head: decode(here.subarray(at - bytes - head, at - bytes)),
        bytes: new Uint8Array(here.subarray(at - bytes, at)),
      };
    }
    this.#chunks = [here.subarray(at)];
    this.#length = here.length - at;
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
