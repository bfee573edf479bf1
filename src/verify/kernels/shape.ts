/** The keys that a shape may have for a kernel, and how they are read. */
import { ArgumentError } from '../../base/errors.js';
import type { Kernel } from '../../lang/index.js';
import { choice, count, type Knob, requireKnob } from '../../moe/families/index.js';

/** A shape as people write it: `ranks=8,tokens=128,dtype=bf16,combine.way=pull`. */
export type ShapeText = Readonly<Record<string, number | string>>;

export interface RegisteredKernel {
  readonly name: string;
  readonly summary: string;
  readonly shape: ShapeKeys;
  /** @throws ArgumentError for an unknown key, or a value that makes no sense. */
  build(shape?: ShapeText): Kernel;
}

/** The keys that a shape may have, by name. A default that is null depends on the layer. */
export type ShapeKeys = Readonly<
  Record<string, { readonly knob: Knob; readonly default: number | string | null }>
>;

/** Parameters whose defaults are the same for every layer. */
export type Parameters = Readonly<Record<string, { readonly knob: Knob; readonly default: number | string }>>;

/** A shape whose values are known to be allowed. */
export type ShapeOf<P extends Parameters> = {
  readonly [K in keyof P]: P[K]['default'];
};

/** Nothing is searched. */
export const none = () => [];
export const number = (
  summary: string,
  range: readonly [number, number],
  otherwise: number,
  multipleOf?: number,
) => ({ knob: count(summary, range, none, multipleOf), default: otherwise });
export const oneOf = <const C extends string>(
  summary: string,
  choices: readonly C[],
  otherwise: NoInfer<C>,
): { readonly knob: Knob; readonly default: C } => ({
  knob: choice(summary, choices, none),
  default: otherwise,
});

export const yesNo = ['yes', 'no'] as const;

export function entry<P extends Parameters>(
  name: string,
  summary: string,
  parameters: P,
  build: (shape: ShapeOf<P>) => Kernel,
): RegisteredKernel {
  return {
    ...{ name, summary, shape: parameters },
    build: (shape = {}) => build(checked(name, Object.keys(parameters), parameters, shape)),
  };
}

/** The key that equals what was written but for upper and lower case; without one, what was written. */
export const keyAmong = (keys: readonly string[], written: string): string =>
  keys.find((key) => key.toLowerCase() === written.toLowerCase()) ?? written;

export function checked<P extends Parameters>(
  kernel: string,
  keys: readonly string[],
  parameters: P,
  given: ShapeText,
): ShapeOf<P> {
  const values: Record<string, number | string> = {};
  for (const [key, of] of Object.entries(parameters)) values[key] = of.default;
  for (const [written, value] of Object.entries(given)) {
    const key = keyAmong(keys, written);
    const parameter = Object.hasOwn(parameters, key) ? parameters[key] : undefined;
    if (parameter === undefined)
      throw new ArgumentError('--shape', written, `a key of ${kernel}: ${keys.join(', ')}`);
    values[key] = requireKnob(parameter.knob, value, `--shape ${key}`);
  }
  return values as ShapeOf<P>;
}
