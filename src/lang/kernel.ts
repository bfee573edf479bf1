/**
 * `kernel()` and `device()`: how a TypeScript function becomes GPU code. A header names the run-time parameters
 * (`params`) and the compile-time values (`using`); the body is a closed function of `g`, the parameters and the
 * values. Kernels are made by ordinary functions of a shape, so `using` holds concrete values when `kernel()` runs.
 */
import type { Gpu } from './gpu.js';
import type * as language from './language.js';
import type { Layout, TensorRank, Tile, TileName } from './types.js';

/** A field of a layout, before it has an offset. */
export interface FieldSpec<
  T extends language.MemoryName = language.MemoryName,
  S extends readonly number[] = readonly number[],
> {
  readonly type: T;
  readonly length: number;
  readonly shape: S;
  readonly dimensions: readonly string[];
}
export type LayoutSpec = { readonly [name: string]: FieldSpec | readonly FieldSpec[] };

/** A layout that remembers its fields' types for the editor. */
export interface TypedLayout<S extends LayoutSpec = LayoutSpec> extends Layout {
  readonly spec: S;
}

export interface PointerParam<T extends language.MemoryName = language.MemoryName> {
  readonly kind: 'pointer';
  readonly to: T;
}
export interface PeersParam<S extends LayoutSpec = LayoutSpec> {
  readonly kind: 'peers';
  readonly layout: TypedLayout<S>;
}
export interface TensorMapParam<T extends TileName = TileName, R extends TensorRank = TensorRank> {
  readonly kind: 'tensorMap';
  readonly tile: Tile<T>;
  readonly rank: R;
}
export interface TilesParam<T extends TileName = TileName> {
  readonly kind: 'tiles';
  readonly tile: Tile<T>;
}
export interface ListParam<P extends DeviceParam = DeviceParam> {
  readonly kind: 'list';
  readonly of: P;
  readonly length: number;
}
export interface WindowParam<S extends LayoutSpec = LayoutSpec> {
  readonly kind: 'window';
  readonly layout: TypedLayout<S>;
}
export interface RegistersParam<T extends language.RegisterName = language.RegisterName> {
  readonly kind: 'registers';
  readonly of: T;
  /** Any length where it is undefined. */
  readonly length: number | undefined;
}
export interface RecordParam<P extends DeviceParams = DeviceParams> {
  readonly kind: 'record';
  readonly of: P;
}
export interface CallableParam<P extends DeviceParams = DeviceParams, R extends DeviceReturn = DeviceReturn> {
  readonly kind: 'callable';
  readonly params: P;
  readonly returns: R;
}
export interface ConstantParam<T extends Constant = Constant> {
  readonly kind: 'constant';
  /** A type for the editor; never set. */
  readonly value?: T;
}
export type ScalarParam = 'i32' | 'u32' | 'u64' | 'f32' | 'bool';
export type Constant = number | bigint | boolean | string;

/** The parameters of a kernel: what a host can pass at a launch. */
export type ParamSpec =
  | ScalarParam
  | PointerParam
  | PeersParam
  | TensorMapParam
  | ListParam<ScalarParam | PointerParam | TensorMapParam>;
export type ParamSpecs = { readonly [name: string]: ParamSpec };

/** The parameters and results of a device function: any value of the language. */
export type DeviceParam =
  | ScalarParam
  | OpaqueParam
  | PointerParam
  | PeersParam
  | TensorMapParam
  | TilesParam
  | ListParam
  | WindowParam
  | RegistersParam
  | RecordParam
  | CallableParam
  | ConstantParam;
export type OpaqueParam = 'v16' | 'bf16' | 'f16' | 'e4m3';
export type DeviceParams = { readonly [name: string]: DeviceParam };
export type DeviceReturn = DeviceParam | 'void';

/** One rank's window inside a body: `win.at(rank).field`. */
type WindowView<S extends LayoutSpec> = {
  readonly [N in keyof S]: S[N] extends FieldSpec<infer T, infer D>
    ? language.View<T, D>
    : S[N] extends readonly FieldSpec<infer T, infer D>[]
      ? readonly language.View<T, D>[]
      : never;
};
export interface Peers<S extends LayoutSpec> {
  at(rank: language.u32): WindowView<S>;
}

type ParamValue<P> = P extends keyof language.ValueOf
  ? language.ValueOf[P]
  : P extends PointerParam<infer T>
    ? language.Pointer<T>
    : P extends PeersParam<infer S>
      ? Peers<S>
      : P extends TensorMapParam<infer T, infer R>
        ? language.TensorMap<T, R>
        : P extends TilesParam<infer T>
          ? language.Tiles<T>
          : P extends WindowParam<infer S>
            ? WindowView<S>
            : P extends RegistersParam<infer T>
              ? language.Registers<T>
              : P extends ListParam<infer Q>
                ? readonly ParamValue<Q>[]
                : P extends RecordParam<infer Q>
                  ? ParamValues<Q>
                  : P extends CallableParam<infer Q, infer R>
                    ? Callable<Q, R>
                    : P extends ConstantParam<infer T>
                      ? T
                      : never;
type ParamValues<P extends DeviceParams> = { readonly [N in keyof P]: ParamValue<P[N]> };
export type ReturnValue<R extends DeviceReturn> = R extends 'void' ? ReturnType<() => void> : ParamValue<R>;

/** A compile-time value. Strings are type names for `pointer.as`, `g.lane` and the like. */
export type Using =
  | number
  | bigint
  | boolean
  | string
  | AnyDeviceFunction
  | Layout
  | Tile
  | readonly Using[]
  | { readonly [name: string]: Using };
export type UsingSpec = { readonly [name: string]: Using };

interface AnyDeviceFunction {
  readonly heddle: 'device';
}

/** Called in a body as `name({ …params })`, or `name()` where it takes nothing. */
export type Callable<P extends DeviceParams, R extends DeviceReturn> = (
  ...args: keyof P extends never ? [] | [ParamValues<P>] : [ParamValues<P>]
) => ReturnValue<R>;

/** A device function: it comes into a body through `using`, or as a parameter of another. */
export type DeviceFunction<P extends DeviceParams, R extends DeviceReturn> = Callable<P, R> &
  AnyDeviceFunction;

export type Body<P extends DeviceParams, U extends UsingSpec, R = void, G = Gpu> = (
  g: G,
  params: ParamValues<P>,
  using: U,
) => R;
