/** Simulated mapped memory: the host's accesses are the machine's business, as kernels wait for what hosts store. */

import { DisposedError } from '../../base/errors.js';
import type { Order } from '../../lang/index.js';
import { type HostView, requireBytes, requireWord, wordAt } from '../index.js';
import type { Engine } from './engine.js';
import type { SimBuffer } from './memory.js';

const kinds = { load: 'read', store: 'write', read: 'read', write: 'write' } as const;

interface Parts {
  readonly engine: Engine;
  readonly buffer: SimBuffer;
  /** Bytes of the buffer that the host sees. */
  readonly bytes: number;
}

export class SimHostView implements HostView {
  readonly #of: Parts;

  constructor(of: Parts) {
    this.#of = of;
  }

  /** An `order` less than a host's own shows what becomes of programs that lack it. */
  load(offset: number, order: Order = 'acquire'): number {
    const { engine, buffer, bytes } = this.#of;
    const at = wordAt(offset, bytes);
    const older = engine.detector?.olderValues(engine.hostThread(buffer.rank), buffer, offset, 4) ?? [];
    const choice = older.length === 0 ? 0 : engine.pickHostStore(1 + older.length);
    const value = choice === 0 ? buffer.i32[at]! : older[choice - 1]!.words[0]!;
    this.#accessed('load', order, offset, 4, choice);
    return value >>> 0;
  }

  store(offset: number, value: number, order: Order = 'release'): void {
    const at = wordAt(offset, this.#of.bytes);
    requireWord(value);
    this.#accessed('store', order, offset, 4);
    this.#of.buffer.i32[at] = value;
    this.#wrote(offset, 4);
  }

  read(offset: number, into: Uint8Array): void {
    requireBytes(offset, into, this.#of.bytes);
    this.#accessed('read', 'weak', offset, into.length);
    into.set(this.#of.buffer.u8.subarray(offset, offset + into.length));
  }

  write(offset: number, from: Uint8Array): void {
    requireBytes(offset, from, this.#of.bytes);
    if (this.#of.buffer.freed) throw new DisposedError('the mapped memory', 'allocate new memory');
    this.#accessed('write', 'weak', offset, from.length);
    this.#of.buffer.u8.set(from, offset);
    this.#wrote(offset, from.length);
  }

  #accessed(operation: keyof typeof kinds, order: Order, offset: number, bytes: number, older = 0): void {
    const { engine, buffer } = this.#of;
    const { detector, sites } = engine;
    if (detector === null || bytes === 0) return;
    const thread = engine.hostThread(buffer.rank);
    const site = sites.ofHost(SimHostView.prototype[operation], operation, engine.hostProgram);
    const form = { kind: kinds[operation], order, scope: 'sys', bytes } as const;
    detector.access(thread, form, site, buffer, offset, older);
  }

  #wrote(offset: number, bytes: number): void {
    const { engine, buffer } = this.#of;
    if (buffer.waiters !== 0) engine.wake(buffer, offset, bytes);
    engine.work();
  }
}
