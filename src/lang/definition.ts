/** The parts of a header and a body that `kernel()` and `device()` keep, and what lowering starts from. */
import { ArgumentError } from '../base/errors.js';
import type { FramedSource } from './diagnostics.js';
import type { FenceOrder, Order, Scope } from './expression.js';
import type { ForeignSource } from './ir.js';
import type { DeviceFunction, DeviceParams, DeviceReturn, ParamSpecs, Using } from './kernel.js';

export interface Definition {
  readonly name: string;
  readonly params: DeviceParams;
  readonly using: { readonly [name: string]: Using };
  readonly source: FramedSource;
}
export interface KernelDefinition extends Definition {
  readonly params: ParamSpecs;
  readonly maxThreads: number;
  readonly cluster: number;
}
export interface DeviceDefinition extends Definition {
  /** False where the header gave no name: the name it is used by is taken. */
  readonly named: boolean;
  readonly returns: DeviceReturn;
  /** Set where the function itself is written in CUDA; the body is its twin. */
  readonly foreign?: Foreign;
}

export interface Foreign {
  readonly header: string | undefined;
  readonly source: ForeignSource | undefined;
  readonly effects: ForeignEffects;
}
export interface ForeignEffects {
  /** Names of its pointers. */
  readonly reads: readonly string[];
  readonly writes: readonly string[];
  readonly orders: readonly Ordering[];
  /** All lanes of a warp call it together. */
  readonly warp: boolean;
}
export type Ordering = `${Exclude<Order | FenceOrder, 'weak' | 'relaxed'>}.${Scope}`;

const orders = ['acquire', 'release', 'acq_rel', 'seq_cst'] as const;
const scopes = ['cta', 'gpu', 'sys'] as const;
export const orderings: readonly Ordering[] = orders.flatMap((order) =>
  scopes.map((scope) => `${order}.${scope}` as const),
);

const definitions = new WeakMap<object, DeviceDefinition>();

/** A device function is an ordinary value in `using`; this is how lowering gets behind it. */
export const deviceDefinition = (of: unknown): DeviceDefinition | undefined =>
  typeof of === 'function' ? definitions.get(of) : undefined;

/** The function that stands for a definition in `using`. On the host it only refuses; `what` it is, for that message. */
export function deviceFunction<P extends DeviceParams, R extends DeviceReturn>(
  what: string,
  definition: DeviceDefinition,
): DeviceFunction<P, R> {
  const call = (): never => {
    throw new ArgumentError(what, definition.name, 'called inside a kernel body only');
  };
  const made = Object.assign(call, { heddle: 'device' as const });
  definitions.set(made, definition);
  // The real parameter types exist for the editor.
  return made as unknown as DeviceFunction<P, R>;
}
