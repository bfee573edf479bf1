/** What `kernel()` and `device()` keep of a header and a body, and what lowering starts from. */
import type { FramedSource } from './diagnostics.js';
import type { DeviceParams, DeviceReturn, ParamSpecs, Using } from './kernel.js';

export interface Definition {
  readonly name: string;
  readonly params: DeviceParams;
  readonly using: { readonly [name: string]: Using };
  readonly source: FramedSource;
}
export interface KernelDefinition extends Definition {
  readonly params: ParamSpecs;
  readonly maxThreads: number;
}
export interface DeviceDefinition extends Definition {
  /** False where the header gave no name: the name it is used by is taken. */
  readonly named: boolean;
  readonly returns: DeviceReturn;
}

const definitions = new WeakMap<object, DeviceDefinition>();

/** A device function is an ordinary value in `using`; this is how lowering gets behind it. */
export const deviceDefinition = (of: unknown): DeviceDefinition | undefined =>
  typeof of === 'function' ? definitions.get(of) : undefined;

export const rememberDevice = (of: object, definition: DeviceDefinition): void => {
  definitions.set(of, definition);
};
