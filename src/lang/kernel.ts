/**
 * `kernel()` and `device()`: how a TypeScript function becomes GPU code. A header names the run-time parameters
 * (`params`) and the compile-time values (`using`); the body is a closed function of `g`, the parameters and the
 * values. Kernels are made by ordinary functions of a shape, so `using` holds concrete values when `kernel()` runs.
 */
import type { bool, f32, Gpu, i32, MemoryName, Pointer, u32, u64, ValueOf } from './language.js';
import type { Layout } from './types.js';

/** A field of a layout, before it has an offset. */
export interface FieldSpec<T extends MemoryName = MemoryName> {
  readonly type: T;
  readonly length: number;
}
export type LayoutSpec = { readonly [name: string]: FieldSpec | readonly FieldSpec[] };

/** A layout that remembers its fields' types for the editor. */
export interface TypedLayout<S extends LayoutSpec = LayoutSpec> extends Layout {
  readonly spec: S;
}

export interface PointerParam<T extends MemoryName = MemoryName> {
  readonly kind: 'pointer';
  readonly to: T;
}
export interface PeersParam<S extends LayoutSpec = LayoutSpec> {
  readonly kind: 'peers';
  readonly layout: TypedLayout<S>;
}
export interface ListParam<P extends ScalarParam | PointerParam = ScalarParam | PointerParam> {
  readonly kind: 'list';
  readonly of: P;
  readonly length: number;
}
export type ScalarParam = 'i32' | 'u32' | 'u64' | 'f32' | 'bool';
export type ParamSpec = ScalarParam | PointerParam | PeersParam | ListParam;
export type ParamSpecs = { readonly [name: string]: ParamSpec };

/** One rank's window inside a body: `win.at(rank).field`. */
export type WindowView<S extends LayoutSpec> = {
  readonly [N in keyof S]: S[N] extends FieldSpec<infer T>
    ? Pointer<T>
    : S[N] extends readonly FieldSpec<infer T>[]
      ? readonly Pointer<T>[]
      : never;
};
export interface Peers<S extends LayoutSpec> {
  at(rank: u32): WindowView<S>;
}

export type ParamValue<P> = P extends 'i32'
  ? i32
  : P extends 'u32'
    ? u32
    : P extends 'u64'
      ? u64
      : P extends 'f32'
        ? f32
        : P extends 'bool'
          ? bool
          : P extends PointerParam<infer T>
            ? Pointer<T>
            : P extends PeersParam<infer S>
              ? Peers<S>
              : P extends ListParam<infer Q>
                ? readonly ParamValue<Q>[]
                : never;
export type ParamValues<P extends ParamSpecs> = { readonly [N in keyof P]: ParamValue<P[N]> };

/** A compile-time value. Strings are type names for `pointer.as`, `g.lane` and the like. */
export type Using =
  | number
  | bigint
  | boolean
  | string
  | AnyDeviceFunction
  | Layout
  | readonly Using[]
  | { readonly [name: string]: Using };
export type UsingSpec = { readonly [name: string]: Using };

/** Some device function, whatever its parameters. */
export interface AnyDeviceFunction {
  readonly heddle: 'device';
}

/** A device function: called in a body as `name({ …params })`, having come in through `using`. */
export type DeviceFunction<P extends ParamSpecs, R extends ScalarParam | 'void'> = ((
  args: ParamValues<P>,
) => R extends ScalarParam ? ValueOf[R] : void) & { readonly heddle: 'device' };

export type Body<P extends ParamSpecs, U extends UsingSpec, R = void> = (
  g: Gpu,
  params: ParamValues<P>,
  using: U,
) => R;
