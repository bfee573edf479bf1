/**
 * A round in four halves, so that other work (a shared expert, attention) runs while bytes are on the wire. Reserved:
 * the names and types are fixed here so that callers and kernel families agree on them. The one-sided kernels do not
 * offer it, since their dispatch and combine are one launch each; families over a fabric will.
 */
import type { Stream } from '../device/index.js';
import type { Received } from './expert-parallel.js';
import type { Tensor } from './tensor.js';
import type { DispatchInputs } from './validate.js';

/** A dispatch that was sent and not received: what `dispatchRecv` takes. */
export interface Dispatched {
  readonly phase: 'dispatched';
  /** Tokens that this rank sent. */
  readonly tokens: number;
}

/** A combine that was sent and not received: what `combineRecv` takes. */
export interface Combining {
  readonly phase: 'combining';
  readonly tokens: number;
}

export interface SplitRounds {
  /** Starts sending this rank's tokens. The inputs must stay as they are until `dispatchRecv` has passed. */
  dispatchSend(inputs: DispatchInputs, stream: Stream): Dispatched;
  /** When the stream has passed this, what the others sent is in the result. */
  dispatchRecv(sent: Dispatched, stream: Stream): Received;
  /** Starts sending what the experts left in `received.output`. */
  combineSend(received: Received, stream: Stream): Combining;
  /** When the stream has passed this, `out`, [tokens, hidden], holds the sums. */
  combineRecv(sent: Combining, out: Tensor, stream: Stream): void;
}
