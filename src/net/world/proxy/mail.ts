/** How a proxy's thread takes part in its rank's circle: by mail to the thread that the circle lives in. */
import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import { DisposedError, HeddleError, messageOf, RankLostError } from '../../../base/errors.js';
import { stepDone } from '../../../base/native/index.js';
import type { ProviderName } from '../../fabric/index.js';
import type { Circle, CircleLoss } from '../circle.js';
import type { FabricCircle } from '../fabric.js';
import type { Numbering } from './program.js';

/** An error as the mail carries it: errors lose their class on the way to another thread. */
interface MailedError {
  readonly code: string;
  readonly message: string;
  /** What a RankLostError says besides. */
  readonly lost: Pick<RankLostError, 'ranks' | 'operation'> | null;
}

export function toMail(error: unknown): MailedError {
  const code = error instanceof HeddleError ? error.code : 'HEDDLE_PROXY';
  const lost = error instanceof RankLostError ? { ranks: error.ranks, operation: error.operation } : null;
  return { code, message: messageOf(error), lost };
}

/** As the other side throws it. */
export function fromMail({ code, message, lost }: MailedError): HeddleError {
  const error = new HeddleError(code, message);
  return lost === null ? error : new RankLostError(lost.ranks, lost.operation, undefined, { cause: error });
}

/** The circle that a proxy's thread is to take part in. */
export interface Begin extends Numbering {
  readonly kind: 'begin';
  readonly place: Pick<FabricCircle, 'rank' | 'ranks'>;
}

type ToProxy =
  | Begin
  | { readonly kind: 'answer'; readonly id: number; readonly parts: readonly Uint8Array[] }
  | { readonly kind: 'refusal'; readonly id: number; readonly error: MailedError }
  | { readonly kind: 'lost'; readonly error: MailedError }
  | { readonly kind: 'stop' }
  /** Behind 'stop': the proxies beside it have stopped as well. */
  | { readonly kind: 'close' };

export type FromProxy =
  | {
      readonly kind: 'allGather';
      readonly id: number;
      readonly operation: string;
      readonly bytes: Uint8Array;
    }
  /** Its end of the network is open: it waits to begin. */
  | { readonly kind: 'opened' }
  | { readonly kind: 'ready'; readonly provider: ProviderName | null }
  /** It writes nothing more, and looks for nothing. */
  | { readonly kind: 'stopped' }
  | { readonly kind: 'failed'; readonly error: MailedError };

/** The numbers that both threads see: how many messages were posted to the proxy's, and how far it is with its end. */
export const newMail = (): SharedArrayBuffer => new SharedArrayBuffer(8);
export const stoppedWord = (mail: SharedArrayBuffer): Int32Array => new Int32Array(mail, 4, 1);

/** Posts to a proxy's thread. */
export const postman =
  (port: MessagePort, mail: SharedArrayBuffer): ((message: ToProxy) => void) =>
  (message) => {
    const count = new Int32Array(mail);
    port.postMessage(message);
    Atomics.add(count, 0, 1);
    Atomics.notify(count, 0);
  };

/** The circle's side: makes the calls that a proxy's thread asks for, and tells it of losses. */
export function serveCircle(circle: Circle, port: MessagePort, mail: SharedArrayBuffer) {
  const post = postman(port, mail);
  const mailbox = {
    /** Hears what is no call. */
    onTold: (_message: FromProxy): void => {},
    post,
    close() {
      // The end of its thread may be heard before its last words.
      for (let left = receiveMessageOnPort(port); left !== undefined; left = receiveMessageOnPort(port))
        hear(left.message as FromProxy);
      stopListening();
      port.close();
    },
  };
  const hear = (message: FromProxy): void => {
    if (message.kind !== 'allGather') {
      mailbox.onTold(message);
      return;
    }
    const { id, bytes, operation } = message;
    circle.allGather(bytes, operation).then(
      (parts) => post({ kind: 'answer', id, parts }),
      (error: unknown) => post({ kind: 'refusal', id, error: toMail(error) }),
    );
  };
  port.on('message', hear);
  port.unref(); // it is the thread that keeps the process alive, or does not
  const stopListening = circle.onRankLost((loss) => {
    // The loss of a rendezvous that is no rank says nothing about the peers.
    if (loss instanceof RankLostError) post({ kind: 'lost', error: toMail(loss) });
  });
  return mailbox;
}

/** The thread's side: its rank's circle, as far as proxies need it. */
export class MailedCircle implements FabricCircle {
  stopped = false;
  readonly #count: Int32Array;
  readonly #stopped: Int32Array;
  readonly #calls = new Map<
    number,
    { resolve(parts: readonly Uint8Array[]): void; reject(error: Error): void }
  >();
  readonly #listeners = new Set<(loss: CircleLoss) => void>();
  #read = 0;
  #onStop = (): void => {};
  #onClose = (): void => {};
  #onBegin = (_: Begin): void => {};
  /** When it is known; before, it is nobody's. */
  readonly begun = new Promise<Begin>((resolve) => {
    this.#onBegin = resolve;
  });

  rank = -1;
  ranks = 0;
  readonly #port: MessagePort;

  constructor(port: MessagePort, mail: SharedArrayBuffer) {
    this.#port = port;
    this.#count = new Int32Array(mail);
    this.#stopped = stoppedWord(mail);
    // Until the first turn the thread has an event loop, and the connecting that happens then waits for answers.
    port.on('message', (message: ToProxy) => this.#receive(message));
  }

  async allGather(bytes: Uint8Array, operation = 'allGather'): Promise<Uint8Array[]> {
    const id = this.#calls.size;
    return new Promise((resolve, reject) => {
      if (this.stopped) throw stoppedInCall();
      this.#calls.set(id, { resolve: (parts) => resolve([...parts]), reject });
      this.tell({ kind: 'allGather', id, operation, bytes });
    });
  }

  async barrier(operation = 'barrier'): Promise<void> {
    await this.allGather(new Uint8Array(0), operation);
  }

  onRankLost(listener: (loss: CircleLoss) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  tell(message: FromProxy): void {
    this.#port.postMessage(message);
  }

  /** Reads what has come, without an event loop. */
  readMail(): void {
    const count = Atomics.load(this.#count, 0);
    if (count === this.#read) return;
    this.#read = count;
    for (
      let next = receiveMessageOnPort(this.#port);
      next !== undefined;
      next = receiveMessageOnPort(this.#port)
    ) {
      this.#receive(next.message as ToProxy);
    }
  }

  /** Sleeps until there is mail, or for `ms`. */
  nap(ms: number): void {
    Atomics.wait(this.#count, 0, this.#read, ms);
  }

  /** Says that it has stopped, and waits for the word to close, with an event loop. */
  async untilAllStopped(): Promise<void> {
    const close = new Promise<void>((resolve) => {
      this.#onClose = resolve;
    });
    this.tell({ kind: 'stopped' });
    stepDone(this.#stopped, 1);
    await close;
  }

  /** Says that its thread calls nothing foreign any more. */
  end(): void {
    stepDone(this.#stopped, 2);
    this.#port.close();
  }

  /** Waits for the word to stop, with an event loop. */
  async untilStopped(): Promise<void> {
    if (this.stopped) return;
    await new Promise<void>((resolve) => {
      this.#onStop = resolve;
    });
  }

  #receive(message: ToProxy): void {
    switch (message.kind) {
      case 'begin':
        this.rank = message.place.rank;
        this.ranks = message.place.ranks;
        this.#onBegin(message);
        break;
      case 'answer':
        this.#calls.get(message.id)?.resolve(message.parts);
        break;
      case 'refusal':
        this.#calls.get(message.id)?.reject(fromMail(message.error));
        break;
      case 'lost': {
        const loss = fromMail(message.error);
        if (loss instanceof RankLostError) for (const listener of this.#listeners) listener(loss);
        break;
      }
      case 'stop':
        this.stopped = true;
        for (const { reject } of this.#calls.values()) reject(stoppedInCall());
        this.#onStop();
        break;
      case 'close':
        this.#onClose();
    }
  }
}

/** Only where the process ends before the proxy has connected. */
const stoppedInCall = () => new DisposedError('this proxy');
