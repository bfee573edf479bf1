/**
 * Registers of PTX as locals of JavaScript. 16 and 32 bits are an integer, 64 bits are two, a predicate is a boolean. A register
 * that arithmetic of floats reads or writes is a double, unless it may carry bits that a double would not keep, which are those
 * of a NaN: what is loaded and stored, and computed with besides, stays an integer. Registers that do not live at the same time
 * share a local, for a thread that pauses saves all of them.
 */
import { getOrMake } from '../../../base/maps.js';
import { type PtxRegister, ptxBytes } from '../../../lang/ptx/index.js';
import { LocalPool } from '../text.js';
import type { BasicBlock } from './flow.js';

export type Kept = 'predicate' | 'word' | 'pair' | 'quad' | 'single' | 'double';

/** `moved`: from or to a register that is kept alike. */
export type Use = 'integer' | 'float' | 'bits' | 'moved';

interface Known {
  readonly name: string;
  readonly declared: Kept;
  /** Registers that move into each other are kept alike. */
  parent: Known | null;
  computed: boolean;
  integer: boolean;
  loaded: boolean;
  stored: boolean;
}

/** The reads and writes of a register in one block, in order. */
interface Event {
  readonly name: string;
  readonly writes: boolean;
}

function declaredAs({ type }: PtxRegister): Kept {
  if (type === 'pred') return 'predicate';
  if (ptxBytes[type] === 16) return 'quad';
  return ptxBytes[type] === 8 ? 'pair' : 'word';
}

export class Registers {
  readonly #known = new Map<string, Known>();
  readonly #events: Event[][] = [];
  #block: Event[] = [];
  /** Null while it learns. */
  #locals: Map<string, readonly string[]> | null = null;
  readonly #pool = new LocalPool();

  /** Reads and writes from now on are of this block. */
  enter(block: number): void {
    this.#block = [];
    this.#events[block] = this.#block;
  }

  #of(register: PtxRegister): Known {
    const { name } = register;
    return getOrMake(this.#known, name, () => {
      const declared = declaredAs(register);
      return { name, declared, parent: null, computed: false, integer: false, loaded: false, stored: false };
    });
  }

  #root(known: Known): Known {
    let at = known;
    while (at.parent !== null) at = at.parent;
    return at;
  }

  reads(register: PtxRegister, as: Use): void {
    if (this.#locals !== null) return;
    this.#block.push({ name: register.name, writes: false });
    this.#used(register, as, 'stored');
  }

  /** Where it may not happen, the value before lives on. */
  writes(register: PtxRegister, as: Use, surely: boolean): void {
    if (this.#locals !== null) return;
    if (!surely) this.#block.push({ name: register.name, writes: false });
    this.#block.push({ name: register.name, writes: true });
    this.#used(register, as, 'loaded');
  }

  #used(register: PtxRegister, as: Use, bits: 'loaded' | 'stored'): void {
    if (as === 'moved') return;
    this.#root(this.#of(register))[as === 'float' ? 'computed' : as === 'bits' ? bits : as] = true;
  }

  /** One is moved into the other; how both are kept, if that is as a float. While it learns, that may still be so. */
  linked(a: PtxRegister, b: PtxRegister): 'single' | 'double' | null {
    const [one, other] = [this.#root(this.#of(a)), this.#root(this.#of(b))];
    if (one.declared !== other.declared) return null;
    if (this.#locals !== null) {
      const kept = this.kept(a);
      return kept === 'single' || kept === 'double' ? kept : null;
    }
    if (one !== other) {
      other.parent = one;
      one.computed ||= other.computed;
      one.integer ||= other.integer;
      one.loaded ||= other.loaded;
      one.stored ||= other.stored;
    }
    if (one.declared === 'word') return 'single';
    return one.declared === 'pair' ? 'double' : null;
  }

  kept(register: PtxRegister): Kept {
    const { declared, computed, integer, loaded, stored } = this.#root(this.#of(register));
    if (declared === 'predicate' || declared === 'quad' || !computed || integer || (loaded && stored))
      return declared;
    return declared === 'pair' ? 'double' : 'single';
  }

  /** Ends the learning: gives every register its locals. */
  settle(blocks: readonly BasicBlock[]): void {
    const { first, last } = lives(blocks, this.#events);
    const order = [...first.keys()].sort((a, b) => first.get(a)! - first.get(b)!);
    const busy: { readonly until: number; readonly names: readonly string[] }[] = [];
    const locals = new Map<string, readonly string[]>();
    for (const name of order) {
      const now = first.get(name)!;
      for (let i = busy.length - 1; i >= 0; i--)
        if (busy[i]!.until < now) this.#pool.give(busy.splice(i, 1)[0]!.names);
      const kept = this.kept({ kind: 'register', name, type: 'b32' });
      const kind = kept === 'predicate' ? 'b' : kept === 'single' || kept === 'double' ? 'f' : 'i';
      const length = kept === 'quad' ? 4 : kept === 'pair' ? 2 : 1;
      const names = Array.from({ length }, () => this.#pool.take(kind));
      busy.push({ until: last.get(name)!, names });
      locals.set(name, names);
    }
    this.#locals = locals;
  }

  /** One local, or those of a pair or a quad, the lowest first. */
  locals({ name, type }: PtxRegister): readonly string[] {
    // Nothing is printed of what it learns from.
    if (this.#locals === null) return ['x', 'x', 'x', 'x'];
    // Never written, and read where control never comes.
    return (
      this.#locals.get(name) ??
      Array.from({ length: type === 'pred' ? 1 : Math.ceil(ptxBytes[type] / 4) }, () => '0')
    );
  }

  declaration(): string {
    return this.#pool.declaration();
  }
}

/** From the first to the last place, in the order of the blocks, at which each register is alive. */
function lives(blocks: readonly BasicBlock[], events: readonly (readonly Event[])[]) {
  const written = events.map((list) => new Set(list.filter(({ writes }) => writes).map(({ name }) => name)));
  /** Alive before a block is what it reads before it writes it, and what is alive behind it and not written in it. */
  const alive = events.map((list) => {
    const before = new Set<string>();
    const known = new Set<string>();
    for (const { name, writes } of list) {
      if (!writes && !known.has(name)) before.add(name);
      if (writes) known.add(name);
    }
    return before;
  });
  for (let changed = true; changed; ) {
    changed = false;
    for (let i = blocks.length - 1; i >= 0; i--) {
      const at = alive[i]!;
      const count = at.size;
      for (const to of blocks[i]!.to) for (const name of alive[to]!) if (!written[i]!.has(name)) at.add(name);
      changed ||= at.size > count;
    }
  }
  const first = new Map<string, number>();
  const last = new Map<string, number>();
  const touch = (name: string, place: number): void => {
    if (!first.has(name)) first.set(name, place);
    last.set(name, place);
  };
  let place = 0;
  for (const [i, block] of blocks.entries()) {
    for (const name of alive[i]!) touch(name, place);
    place++;
    for (const { name } of events[i]!) touch(name, place++);
    for (const to of block.to) for (const name of alive[to]!) touch(name, place);
    place++;
  }
  return { first, last };
}
