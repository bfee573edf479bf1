/**
 * The values of a step's parameters. Steps bind their kernels by themselves (families/family.ts), to the addresses and
 * numbers that they are given. Here these are names, so that what is exported is what Heddle's own host does.
 */
import { HeddleError } from '../../base/errors.js';
import type { Launcher, Window } from '../../gpu/index.js';
import { loadStep, type Plan, type PlanMemory, type Round, type Step } from '../../moe/families/index.js';
import { areScales, type Layer } from '../../moe/layer/index.js';

export type Source =
  | { readonly from: 'window'; readonly window: string }
  | { readonly from: 'buffer'; readonly buffer: string }
  | { readonly from: 'rows'; readonly payload: string }
  | { readonly from: 'tokens' | 'topkIds' | 'topkWeights' | 'out' | 'limit' | 'rank' }
  | { readonly from: 'constant'; readonly value: number };

export type Bound = Awaited<ReturnType<ReturnType<typeof binder>>>;

/** Numbers from here on stand for names; no step sets a parameter to one of its own. */
const firstName = 2 ** 40;

/** Makes the function that binds the steps of a layer's plan. */
export function binder(plan: Plan, layer: Layer) {
  const names: Source[] = [];
  const name = (source: Source): number => firstName + names.push(source) - 1;
  const sourceOf = (value: number): Source =>
    value < firstName ? { from: 'constant', value } : names[value - firstName]!;

  const windows = plan.windows.map((of) => ({ of, window: { rank: 0, bases: [], bytes: of.layout.bytes } }));
  const buffers = plan.buffers.map((of) => ({ of, address: name({ from: 'buffer', buffer: of.purpose }) }));
  const memory: PlanMemory = {
    rank: 0,
    limit: name({ from: 'limit' }),
    window: (wanted) => windows.find(({ of }) => of === wanted)!.window,
    address: (wanted) => buffers.find(({ of }) => of === wanted)!.address,
  };
  const purposeOf = (bound: Window): string => windows.find(({ window }) => window === bound)!.of.purpose;
  const round: Round = {
    tokens: name({ from: 'tokens' }),
    topkIds: name({ from: 'topkIds' }),
    topkWeights: name({ from: 'topkWeights' }),
    // Nobody brings scales that dispatch makes: its kernels are given the rows that it makes them of.
    rows: layer.payloads.map((_, p) =>
      name({ from: 'rows', payload: layer.payloads[areScales(layer, p) ? p - 1 : p]!.name }),
    ),
    out: name({ from: 'out' }),
    // `exportPlan` refuses layers whose combine takes these.
    ...{ made: 0, madeRows: 0, scatter: 0, routeWeights: 0, placing: [] },
  };

  return async (step: Step) => {
    const sources = new Map<string, Source>([['rank', { from: 'rank' }]]);
    let programmatic = false;
    const launcher: Launcher = {
      set: (parameter, value) => sources.set(parameter, sourceOf(Number(value))),
      setWindow: (parameter, window) => sources.set(parameter, { from: 'window', window: purposeOf(window) }),
      setTensor: (parameter) => {
        throw new HeddleError(
          'HEDDLE_EXPORT',
          `${step.kernel.name} takes the tensorMap ${parameter}, which hosts would have to encode: it cannot be exported yet`,
        );
      },
      setGrid: () => {},
      launch: () => {},
    };
    const loaded = await loadStep(
      step,
      {
        load: async (module) => ({
          module,
          launcher: (shape) => {
            programmatic = shape.programmatic ?? false;
            return launcher;
          },
        }),
      },
      memory,
    );
    loaded.take(round);
    return { module: loaded.program.module, sources, programmatic };
  };
}
