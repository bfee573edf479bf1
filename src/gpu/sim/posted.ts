/**
 * Copies that an agent makes beside the thread that posted them. In fast mode that is at once. In checked mode each piece of
 * a copy reads its source and changes its target when it is posted or as late as it may, and pieces land in any order:
 * whoever does not wait sees wrong bytes as well as a race. Which accesses that orders, the detector is told by whoever
 * posts (the edge in) and whoever awaits (the edge out).
 */
import type { ByteAt } from './memory.js';
import type { Random } from './random.js';

/** Bytes that follow each other. */
export interface Stretch extends ByteAt {
  readonly bytes: number;
}

export interface Posted {
  readonly to: ByteAt;
  readonly from: ByteAt;
  readonly bytes: number;
}

interface Mover {
  /** Moves the bytes of a piece, and wakes who waits for them. */
  move(piece: Posted): void;
  landed(): void;
}

interface Late {
  readonly ticket: number;
  readonly pieces: Posted[];
  readonly mover: Mover;
}

/** Pieces are of whole units. */
const unit = 16;

export class PostedCopies {
  #late: Late[] = [];
  readonly #random: Random | null;

  /** `random` is null where copies are made at once. */
  constructor(random: Random | null) {
    this.#random = random;
  }

  /** Tickets only grow. */
  post(copy: Posted, ticket: number, mover: Mover): void {
    if (this.#random === null || this.#random.below(2) !== 0) {
      mover.move(copy);
      mover.landed();
    } else {
      this.#late.push({ ticket, pieces: inPieces(copy, this.#random), mover });
    }
  }

  /** Makes what was put off: all copies with tickets up to `last`. */
  finish(last: number): void {
    if (this.#late.length === 0) return;
    const due = this.#late.filter(({ ticket }) => ticket <= last);
    this.#late = this.#late.filter(({ ticket }) => ticket > last);
    while (due.length > 0) {
      const at = this.#random!.below(due.length);
      const { pieces, mover } = due[at]!;
      mover.move(pieces.pop()!);
      if (pieces.length > 0) continue;
      due.splice(at, 1);
      mover.landed();
    }
  }
}

/** One piece, or two in either order. */
function inPieces(copy: Posted, random: Random): Posted[] {
  const pieces = cut(copy.bytes, random).map(({ at, bytes }) => pieceOf(copy, at, bytes));
  return pieces.length === 1 || random.below(2) === 0 ? pieces : pieces.reverse();
}

export function pieceOf({ to, from }: Posted, at: number, bytes: number): Posted {
  const beyond = ({ buffer, offset }: ByteAt): ByteAt => ({ buffer, offset: offset + at });
  return { to: beyond(to), from: beyond(from), bytes };
}

export function move({ to, from, bytes }: Posted): void {
  to.buffer.u8.set(from.buffer.u8.subarray(from.offset, from.offset + bytes), to.offset);
}

export function cut(bytes: number, random: Random): { readonly at: number; readonly bytes: number }[] {
  const first = unit * random.below(Math.max(1, bytes / unit));
  const rest = { at: first, bytes: bytes - first };
  return first === 0 ? [rest] : [{ at: 0, bytes: first }, rest];
}
