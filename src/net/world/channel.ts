import type { Socket } from 'node:net';
import { messageOf } from '../../base/errors.js';
import { encodeFrame, FrameReader } from './frame.js';
import { MAX_HEAD, type Message, ProtocolError, parseMessage } from './messages.js';

/** How long a closing connection may take to deliver what is under way. */
const CLOSE_MS = 2_000;
/** The largest head before a joiner has proven anything. */
const MAX_STRANGER_HEAD = 2 << 10;
/** Signs of life, and looks for them, in each loss timeout. */
const BEATS = 4;

const NOTHING = new Uint8Array(0);

/** A connection that carries messages. Its owner sets `onMessage` and `onClose`. */
export class Channel {
  onMessage: (message: Message, bytes: Uint8Array) => void = () => {};
  /** Called once. `why` completes 'rank 3 is lost: …'. */
  onClose: (why: string) => void = () => {};
  readonly #socket: Socket;
  readonly #reader = new FrameReader({ head: MAX_STRANGER_HEAD, bytes: 0 });
  #lastHeard = performance.now();
  #watch: ReturnType<typeof setInterval> | undefined;
  #why = 'its connection closed';

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.setNoDelay(true); // small messages that others wait for
    socket.on('data', (chunk) => this.#receive(chunk));
    socket.on('error', (error) => {
      this.#why = `its connection broke (${error.message})`;
    });
    socket.on('close', () => {
      clearInterval(this.#watch);
      this.onClose(this.#why);
    });
  }

  /** The other side has proven itself: accept messages with up to so many bytes. */
  trust(maxBytes: number): void {
    this.#reader.limits = { head: MAX_HEAD, bytes: maxBytes };
  }

  send(message: Message, bytes: Uint8Array = NOTHING): void {
    if (!this.#socket.writable) return;
    const { type, ...fields } = message;
    this.#socket.cork();
    for (const part of encodeFrame({ head: JSON.stringify({ type, ...fields }), bytes })) {
      this.#socket.write(part);
    }
    this.#socket.uncork();
  }

  /**
   * Calls `onSilence` when nothing has come for so long; with `beat` it pings, so that a live other side
   * always has something to answer.
   */
  watch(lossTimeoutMs: number, onSilence: () => void, beat: boolean): void {
    const interval = lossTimeoutMs / BEATS;
    let lastLook = performance.now();
    this.#lastHeard = lastLook;
    clearInterval(this.#watch);
    this.#watch = setInterval(() => {
      const now = performance.now();
      // A late look means that this process itself stood still. Messages that the others sent meanwhile have not been
      // read yet, so their silence says nothing.
      if (now - lastLook > 2 * interval) this.#lastHeard = now;
      lastLook = now;
      if (now - this.#lastHeard > lossTimeoutMs) onSilence();
      else if (beat) this.send({ type: 'ping' });
    }, interval).unref();
  }

  /** Whether this connection alone may keep the process alive. */
  keepAlive(yes: boolean): void {
    if (yes) this.#socket.ref();
    else this.#socket.unref();
  }

  /** Delivers what was sent, then closes; resolves when closed. */
  async end(): Promise<void> {
    const socket = this.#socket;
    if (socket.closed) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => socket.destroy(), CLOSE_MS);
      socket.once('close', () => {
        clearTimeout(timer);
        resolve();
      });
      socket.ref();
      socket.end();
    });
  }

  /** Says why the other side may not stay, and closes. Nothing that it still sends is read. */
  refuse(why: string): void {
    this.#socket.pause();
    this.send({ type: 'refused', why });
    this.#socket.destroySoon();
  }

  destroy(why: string): void {
    this.#why = why;
    this.#socket.destroy();
  }

  #receive(chunk: Uint8Array): void {
    this.#lastHeard = performance.now();
    try {
      for (const { head, bytes } of this.#reader.read(chunk)) {
        if (this.#socket.destroyed || this.#socket.isPaused()) return;
        this.onMessage(parseMessage(head), bytes);
      }
    } catch (error) {
      // A stranger's bytes end its own connection and nothing else.
      this.destroy(
        error instanceof ProtocolError
          ? `it does not speak Heddle's protocol: it sent ${error.message}`
          : `what it sent could not be handled: ${messageOf(error)}`,
      );
    }
  }
}
