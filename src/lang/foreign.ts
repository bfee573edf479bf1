/** `foreign()`: device functions that others wrote in CUDA, each with a twin that the simulator runs. */
import { requireArray, requireFlag, requireFunction, requireObject, show } from '../base/errors.js';
import { reservedNames } from './cuda/scopes.js';
import { checkHeader, isPassed, isScalar, scalars } from './define.js';
import { deviceFunction, type ForeignEffects, type Ordering, orderings } from './definition.js';
import type { TwinGpu } from './gpu.js';
import type { ForeignSource } from './ir.js';
import type { Body, DeviceFunction, PointerParam, ReturnValue, ScalarParam, UsingSpec } from './kernel.js';
import { functionSource } from './source.js';

type ForeignParams = { readonly [name: string]: ScalarParam | PointerParam };
type PointersOf<P extends ForeignParams> = {
  [N in keyof P & string]: P[N] extends PointerParam ? N : never;
}[keyof P & string];

export interface ForeignHeader<P extends ForeignParams, U extends UsingSpec, R extends ScalarParam | 'void'> {
  /** The function's name in CUDA. */
  readonly name: string;
  /** The file that declares it, as after `#include`; without one, it is declared `extern "C"`, to be linked. */
  readonly header?: string;
  /** The source that defines it, where that is not in the header: linked to the kernel. */
  readonly source?: ForeignSource;
  /** Parameters, in the order of the CUDA function's. */
  readonly params: P;
  /** The type of the result; nothing by default. */
  readonly returns?: R;
  /** Compile-time values of its twin. */
  readonly using?: U;
  readonly effects: {
    /** Pointers through which it reads. */
    readonly reads?: readonly PointersOf<P>[];
    /** Pointers through which it writes. */
    readonly writes?: readonly PointersOf<P>[];
    /** Orders on which others may rely: 'release.sys'. */
    readonly orders?: readonly Ordering[];
    /** All lanes of a warp call it together: its twin may do what warps do. */
    readonly warp?: boolean;
  };
}

/** Declares a function that is called as it is in CUDA, and that `twin` stands for on the simulated machine. */
export function foreign<
  const P extends ForeignParams,
  U extends UsingSpec = Record<never, never>,
  const R extends ScalarParam | 'void' = 'void',
>(header: ForeignHeader<P, U, R>, twin: Body<P, U, ReturnValue<R>, TwinGpu>): DeviceFunction<P, R> {
  requireObject('header', header);
  const { name, params, header: file, source, using = {}, returns = 'void' } = header;
  const { site, fail } = checkHeader(
    foreign,
    header,
    name,
    twin,
    isPassed,
    `${scalars.join(', ')} or pointer(…)`,
  );
  if (reservedNames.has(name)) fail('HK203', `the name ${name} means something else in CUDA`);
  if (file !== undefined && !(typeof file === 'string' && /^(<[^<>\s]+>|[^<>"\s]+)$/.test(file))) {
    fail('HK203', `header is ${show(file)}; it must be a file name, or one in <…>`);
  }
  if (source !== undefined) {
    requireObject('source', source, "what defines it: { name: 'net', find: () => ({ text, folders: [] }) }");
    requireFunction('source.find', source.find, 'a function that gives its text and folders');
  }
  if (returns !== 'void' && !isScalar(returns)) {
    fail('HK201', `returns is ${show(returns)}; it must be ${scalars.join(', ')}, or 'void'`);
  }
  requireObject(
    'effects',
    header.effects,
    "what it does: { reads: ['from'], writes: ['to'], orders: ['release.sys'] }",
  );
  const { reads = [], writes = [], orders = [], warp = false } = header.effects;
  for (const [what, list] of Object.entries({ reads, writes, orders }))
    requireArray(`effects.${what}`, list, 'an array of names');
  const effects: ForeignEffects = { reads, writes, orders, warp: requireFlag('effects.warp', warp) };
  for (const one of [...reads, ...writes]) {
    if (typeof params[one] !== 'object')
      fail('HK203', `effects name ${show(one)}, which is no pointer in params`);
  }
  for (const one of orders) {
    if (!orderings.includes(one))
      fail('HK203', `orders has ${show(one)}; it must be of ${orderings.join(', ')}`);
  }
  return deviceFunction('foreign function', {
    name,
    named: true,
    params,
    using,
    returns,
    source: functionSource(twin.toString(), site),
    foreign: { header: file, source, effects },
  });
}
