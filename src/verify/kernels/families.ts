/** The kernels of every family, which its plans name; and the shapes that they take. */
import { ArgumentError } from '../../base/errors.js';
import { evenNodes, topologyOf } from '../../gpu/index.js';
import {
  type Family,
  type Knob,
  type PlanTarget,
  phases,
  requireKnob,
  type Step,
  type Tuning,
  transports,
} from '../../moe/families/index.js';
import type { Layer } from '../../moe/layer/index.js';
import { aGpu, layerOf, travelling } from './layer.js';
import {
  checked,
  keyAmong,
  number,
  oneOf,
  type Parameters,
  type RegisteredKernel,
  type ShapeKeys,
  type ShapeText,
} from './shape.js';

/** A layer that a family can carry, all ranks on GPUs, as rank 0 sees it. */
export interface FamilyShape {
  readonly layer: Layer;
  readonly target: PlanTarget;
  readonly tuning: Tuning;
}

/**
 * The forms of a layer for which a family may have kernels of their own, the plainest first. A kernel is shown in the
 * first form that has it.
 */
const forms: readonly { readonly says: ShapeText; readonly split: boolean }[] = [
  { says: {}, split: false },
  { says: { weighting: 'plan' }, split: false },
  ...transports.slice(1).map((transport) => ({ says: { transport }, split: false })),
  { says: {}, split: true },
];

const formsOf = ({ reach }: Family) =>
  reach === 'node'
    ? forms
    : [1, 2].flatMap((nodes) => forms.map(({ says, split }) => ({ says: { ...says, nodes }, split })));

/** A family's kernels: those that its plans launch. Their shapes also take the family's knobs, as phase.knob; otherwise they suit the layer. */
export function familyKernels(family: Family): RegisteredKernel[] {
  const found = new Map<string, RegisteredKernel>();
  for (const { says, split } of formsOf(family)) {
    const form = formOf(family, says);
    const how = { split, sms: null };
    const asked = form.read(family.name, {}, how);
    if (family.refuses(asked.layer, asked.target, asked.tuning) !== null) continue;
    for (const { kernel, summary } of stepsOf(family, asked)) {
      const { name } = kernel;
      if (found.has(name)) continue;
      const build = (given: ShapeText = {}) =>
        stepNamed(stepsOf(family, accepted(family, form.read(name, given, how))), name).kernel;
      found.set(name, { name, summary, shape: form.keys, build });
    }
  }
  return [...found.values()];
}

function stepsOf(family: Family, { layer, target, tuning }: FamilyShape): Step[] {
  const plan = family.plan(layer, target, tuning);
  return phases.flatMap((phase) => plan.phases[phase]);
}

function stepNamed(steps: readonly Step[], name: string): Step {
  const found = steps.find(({ kernel }) => kernel.name === name);
  if (found !== undefined) return found;
  const names = steps.map(({ kernel }) => kernel.name).join(', ');
  throw new ArgumentError('kernel', name, `with such a shape one of ${names}`);
}

function accepted(family: Family, shape: FamilyShape): FamilyShape {
  const refusal = family.refuses(shape.layer, shape.target, shape.tuning);
  if (refusal !== null) throw refusal;
  return shape;
}

/**
 * Reads a layer for a family: `ranks=8,tokens=128,combine.way=pull`. Knobs that it does not name are those of `otherwise`.
 * @throws ArgumentError for a key that there is not, or a value that makes no sense.
 */
export const familyShape = (
  family: Family,
  given: ShapeText,
  how: LaunchesAsked,
  otherwise: (layer: Layer, target: PlanTarget) => Tuning = family.defaults,
): FamilyShape => accepted(family, formOf(family).read(family.name, given, how, otherwise));

export const familyKeys = (family: Family): ShapeKeys => formOf(family).keys;

/** The launches that are asked for; by default over the multiprocessors that most GPUs have. */
type LaunchesAsked = Pick<PlanTarget, 'split' | 'sms'> & Partial<Pick<PlanTarget, 'multiprocessors'>>;

/** The keys that a shape of a family may have, with `otherwise` in place of some defaults: the layer, and the knobs as phase.knob. */
function formOf(family: Family, otherwise: ShapeText = {}) {
  const nodes = number('nodes of equal size', [1, 72], 1);
  const all = { ...travelling, transport: oneOf('what carries the rows', transports, transports[0]), nodes };
  const has = Object.entries<Parameters[string]>(all).filter(
    ([key]) => family.reach === 'world' || key !== 'nodes',
  );
  const parameters = Object.fromEntries(
    has.map(([key, of]) => [key, { ...of, default: otherwise[key] ?? of.default }]),
  ) as typeof all;
  const knobs = new Map<string, { readonly phase: string; readonly key: string; readonly knob: Knob }>(
    Object.entries(family.knobs).flatMap(([phase, table]) =>
      Object.entries(table).map(([key, knob]) => [`${phase}.${key}`, { phase, key, knob }] as const),
    ),
  );
  const ofKnobs = Array.from(knobs, ([name, { knob }]) => [name, { knob, default: null }] as const);
  const keys: ShapeKeys = { ...parameters, ...Object.fromEntries(ofKnobs) };
  const names = Object.keys(keys);
  const read = (name: string, given: ShapeText, how: LaunchesAsked, start = family.defaults): FamilyShape => {
    const entries = Object.entries(given).map(([key, value]) => [keyAmong(names, key), value] as const);
    const shape = checked(
      name,
      names,
      parameters,
      Object.fromEntries(entries.filter(([key]) => !knobs.has(key))),
    );
    const layer = layerOf(shape);
    const { nodes = 1, transport } = shape;
    const target: PlanTarget = {
      ...aGpu,
      rank: 0,
      ...how,
      transport,
      topology: topologyOf(evenNodes(layer.ranks, nodes), 0),
    };
    const tuning: Record<string, Record<string, number | string>> = structuredClone(start(layer, target));
    for (const [path, value] of entries) {
      const found = knobs.get(path);
      if (found) tuning[found.phase]![found.key] = requireKnob(found.knob, value, `--shape ${path}`);
    }
    return { layer, target, tuning };
  };
  return { keys, read };
}
