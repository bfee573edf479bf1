/** The plan of a layer: memory that every family describes alike, and the launches that are its own. */
import { type LayoutSpec, section, type TypedLayout } from '../../../lang/index.js';
import { combineWeighs, type Dtype, expertsOf, type Layer } from '../../layer/index.js';
import type { Bindings, Phase, Plan, Step, View, WindowPlan } from '../family.js';
import { placingMemory } from './places.js';
import { type ReceivedSections, slotShape } from './received.js';
import { type failureField, failureWords, notedWaits } from './waits.js';

/** A layout with what users and hosts see of it. */
type SeenSections = ReceivedSections & { readonly failure: typeof failureField };

/** The fields of these names, such as the words that count rounds. */
export const sections = <S extends LayoutSpec>(
  layout: TypedLayout<S>,
  names: readonly (keyof S & string)[],
) => names.map((name) => section(layout, name));

/** The window that dispatch fills. Every bit of its words of these names is set before the first round. */
export const receiveWindow = <S extends SeenSections>(
  layer: Layer,
  layout: TypedLayout<S>,
  allOnes: readonly (keyof S & string)[],
): WindowPlan => ({
  kind: 'window',
  purpose: 'receive window',
  layout,
  // Where a rank is lost before its first dispatch, experts that run all the same find -1 everywhere, not routes to expert 0.
  allOnes: sections(layout, [...allOnes, 'experts']),
  // It holds nothing before a kernel has written it.
  unwritten: [
    ...sections<SeenSections>(layout, ['experts', 'weights', 'output']),
    ...layer.payloads.map((_, i) => section<SeenSections>(layout, 'payloads', i)),
  ],
});

/** A step, with those of its bindings that the others do not have. */
export type Launch = Omit<Step, 'bindings'> & Partial<Pick<Step, 'bindings'>>;

export const launch = (
  kernel: Step['kernel'],
  { blocks, threads }: Pick<Step, 'blocks' | 'threads'>,
  summary: string,
): Launch => ({ kernel, blocks, threads, summary });

/** The parts of a plan that differ between families. */
interface PlanParts {
  readonly layer: Layer;
  readonly rank: number;
  readonly memory: WindowPlan;
  readonly layout: TypedLayout<SeenSections>;
  /** The word that counts rounds which have come to their last launch. */
  readonly rounds?: string;
  /** The word that says how many tokens came from a source at most. Default: none says so. */
  readonly reached?: string | false;
  readonly copied?: boolean;
  /** Parameters of all launches, beside those that every family has. */
  readonly bindings?: Bindings;
  /** Null for a launch that the layer does without. */
  readonly phases: Readonly<Record<Phase, readonly (Launch | null)[]>>;
}

export function planOf({ layer, rank, memory, layout, rounds = '', ...own }: PlanParts): Plan {
  const { topK, output, ranks } = layer;
  const { dtype, hidden } = output;
  const slots = slotShape(layer);
  const view = (name: string, dtype: Dtype, shape: readonly number[], index?: number): View => {
    return { in: memory, offset: section<LayoutSpec>(layout, name, index).offset, dtype, shape };
  };
  const bindings: Bindings = { win: memory, ...own.bindings };
  const steps = (launches: readonly (Launch | null)[]): Step[] =>
    launches
      .filter((launch) => launch !== null)
      .map((launch) => ({ ...launch, bindings: { ...bindings, ...launch.bindings } }));
  const { dispatchSend, dispatchRecv, combineSend, combineRecv } = own.phases;
  return {
    windows: [memory],
    ...placingMemory(layer),
    ...{ wire: null, copied: own.copied ?? false },
    phases: {
      ...{ dispatchSend: steps(dispatchSend), dispatchRecv: steps(dispatchRecv) },
      ...{ combineSend: steps(combineSend), combineRecv: steps(combineRecv) },
    },
    received: {
      experts: view('experts', 'i32', [...slots, topK]),
      weights: layer.weights ? view('weights', 'f32', [...slots, topK]) : null,
      counts: layer.counts ? view('counts', 'u32', [expertsOf(layer, rank).count]) : null,
      reached: own.reached ? view(own.reached, 'u32', [1]) : null,
      payloads: Object.fromEntries(
        layer.payloads.map(({ name, rowBytes }, i) => [
          name,
          view('payloads', 'u8', [...slots, rowBytes], i),
        ]),
      ),
      output: view('output', dtype, [...slots, combineWeighs(layer) ? 0 : hidden]),
    },
    failure: view('failure', 'u32', [failureWords]),
    ...(layer.masks && { masks: { masked: view('masked', 'u32', [4]), rounds: view(rounds, 'u32', [1]) } }),
    ...(layer.waits && {
      waits: {
        waited: view('waited', 'u32', [2, notedWaits, ranks, 2]),
        waiters: view('waiters', 'u32', [notedWaits, 2]),
      },
    }),
  };
}
