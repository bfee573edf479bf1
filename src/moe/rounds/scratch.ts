/**
 * Memory that several users take turns with: what one leaves in it, the next writes over. Layers of a model are such users: their
 * rounds follow each other on a stream.
 */
import { DisposedError } from '../../base/errors.js';
import { type Device, requireDevice } from '../../gpu/index.js';
import type { Dtype } from '../layer/index.js';
import { type MemoryPart, type MemoryUse, useOf } from './memory.js';
import { emptyTensor, type OwnedTensor, type Tensor, wrap } from './tensor.js';

/** Hands out memory for a purpose. One user's tensors never overlap. */
export type Allocate = (dtype: Dtype, shape: readonly number[], purpose: string) => Tensor;

export class Scratch {
  readonly #device: Device;
  /** By purpose, in the order in which a user asks for them. */
  readonly #tensors = new Map<string, OwnedTensor[]>();
  #disposed = false;

  constructor(device: Device) {
    requireDevice('device', device);
    this.#device = device;
  }

  /** The memory that all users take together. */
  get memory(): MemoryUse {
    const part = (purpose: string, bytes: number): MemoryPart => ({ purpose, section: null, bytes });
    return useOf(
      [...this.#tensors].flatMap(([purpose, all]) => all.map(({ bytes }) => part(purpose, bytes))),
    );
  }

  /** Begins with a further user: it is given the memory of those before it where that is large enough. */
  user(): Allocate {
    const taken = new Set<OwnedTensor>();
    return (dtype, shape, purpose) => {
      if (this.#disposed) throw new DisposedError('this Scratch');
      const all = this.#tensors.get(purpose) ?? [];
      const bytes = wrap(0, dtype, shape).bytes;
      let tensor = all.find((one) => !taken.has(one) && one.bytes >= bytes);
      if (tensor === undefined) {
        tensor = emptyTensor(this.#device, dtype, shape, purpose);
        this.#tensors.set(purpose, [...all, tensor]);
      }
      taken.add(tensor);
      return wrap(tensor.data, dtype, shape);
    };
  }

  /** Frees the memory. Nothing enqueued may still use it. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    for (const all of this.#tensors.values()) for (const tensor of all) tensor.free();
  }
}
