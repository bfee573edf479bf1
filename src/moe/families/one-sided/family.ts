/** The one-sided family: ranks that share NVLink write straight into each other's windows. */
import { ArgumentError, type HeddleError } from '../../../base/errors.js';
import { formatOf, type Layer, outputRowBytes, sharing, sourceWeighs } from '../../layer/index.js';
import { launch, planOf, receiveWindow } from '../common/plan.js';
import { refusesFew, refusesMasks, refusesOnNode, refusesTransport } from '../common/refusals.js';
import { weighLaunch, weighSpread } from '../common/weigh.js';
import { type Family, memoized, type Plan, type PlanTarget } from '../family.js';
import { defaultTuning, onFewMultiprocessors } from './defaults.js';
import { dispatchKernel } from './dispatch.js';
import { dispatchRecvKernel } from './dispatch-recv.js';
import { oneSidedKit } from './kit.js';
import { type CombineTuning, type DispatchTuning, type OneSidedTuning, oneSidedKnobs } from './knobs.js';
import { pullKernel } from './pull.js';
import { pushKernel } from './push.js';
import {
  combineGrid,
  dispatchRecvSpread,
  type OneSidedShape,
  passesOver,
  pushes,
  returnedVectors,
  roundWords,
  sumsRoutes,
  travelsAsItLies,
} from './window.js';

export const oneSided: Family<OneSidedTuning> = {
  name: 'one-sided',
  summary: 'ranks that share NVLink store into each other’s windows',
  reach: 'node',
  travel: { rows: 'rank', message: 'row', metadata: 'every rank' },
  knobs: oneSidedKnobs,
  can: ['masks', 'adds', 'waits', 'plans', 'routes', 'rounds'],
  refuses,
  defaults: (layer, target) => adapted(defaultTuning(layer, target), layer, target),
  adapt: adapted,
  plan,
  // Slots of a pulling round need nobody to release them.
  alone: (tuning) => ({ ...tuning, combine: { ...tuning.combine, way: 'pull' } }),
};

function refuses(layer: Layer, target: PlanTarget, tuning?: OneSidedTuning): HeddleError | null {
  const { topology, split } = target;
  const { output } = layer;
  const { topK, ranks } = layer;
  const vectors = returnedVectors(layer) * (sourceWeighs(layer) ? Math.ceil(topK / ranks) : 1);
  const words = travelsAsItLies(layer) ? vectors : vectors * 4;
  const refusal = refusesOnNode(layer, topology, words) ?? refusesTransport(target) ?? refusesMasks(layer);
  if (refusal !== null) return refusal;
  if (sourceWeighs(layer)) {
    if (!travelsAsItLies(layer)) {
      const possible = "'rows' with weighting 'source': rows are rounded once, behind their sum";
      return new ArgumentError('combineFormat', output.combineFormat, possible);
    }
    if (!pushable(layer)) {
      const possible = "rows of a multiple of 16 bytes with weighting 'source'";
      return new ArgumentError('output.length', output.hidden, possible);
    }
  }
  if (split && !pushable(layer)) {
    const possible = 'rows of a multiple of 16 bytes where phases are split';
    return new ArgumentError('output.length', output.hidden, possible);
  }
  const few = refusesFew(target, tuning, tuning !== undefined && !pushes(tuning) ? 0 : 1);
  if (few !== null) return few;
  return tuning === undefined ? null : refusesTuning(layer, target, tuning);
}

function refusesTuning(
  layer: Layer,
  { split }: PlanTarget,
  { dispatch, combine }: OneSidedTuning,
): HeddleError | null {
  for (const [phase, { threads, teams }] of Object.entries({ dispatch, combine })) {
    if (threads < layer.ranks)
      return new ArgumentError(`tuning.${phase}.threads`, threads, `at least ranks, ${layer.ranks}`);
    if (threads % (32 * teams) !== 0) {
      const possible = `a divisor of the block's ${threads / 32} warps`;
      return new ArgumentError(`tuning.${phase}.teams`, teams, possible);
    }
  }
  const how = `combineFormat '${layer.output.combineFormat}'`;
  const { mostThreads } = formatOf(layer.output);
  if (!travelsAsItLies(layer) && combine.way !== 'push')
    return new ArgumentError('tuning.combine.way', combine.way, `'push' for ${how}`);
  if (sourceWeighs(layer) && combine.way !== 'push')
    return new ArgumentError('tuning.combine.way', combine.way, "'push' for weighting 'source'");
  if (combine.threads > mostThreads) {
    const possible = `at most ${mostThreads} for ${how}`;
    return new ArgumentError('tuning.combine.threads', combine.threads, possible);
  }
  if (combine.way === 'pull' && split)
    return new ArgumentError('tuning.combine.way', 'pull', "'push' where phases are split");
  if (combine.way !== 'pull' && !pushable(layer)) {
    const possible = "'pull' for rows that are not a multiple of 16 bytes";
    return new ArgumentError('tuning.combine.way', combine.way, possible);
  }
  return null;
}

/** Only whole vectors can be pushed. */
const pushable = (layer: Layer): boolean => !travelsAsItLies(layer) || outputRowBytes(layer) % 16 === 0;

function adapted(found: OneSidedTuning, layer: Layer, { sms, split }: PlanTarget): OneSidedTuning {
  const { dispatch, combine } = sms === null ? found : onFewMultiprocessors(found, layer, split, sms);
  const mayNotPull = !travelsAsItLies(layer) || sourceWeighs(layer) || (split && combine.way === 'pull');
  const way = mayNotPull ? 'push' : pushable(layer) ? combine.way : 'pull';
  const sums = sourceWeighs(layer) || sumsRoutes({ output: layer.output, combine: { ...combine, way } });
  // Two such blocks fit on a multiprocessor.
  const most = sums ? 448 : formatOf(layer.output).mostThreads;
  const threads = Math.min(combine.threads, most);
  return {
    dispatch: { ...dispatch, blocks: blocksOf(dispatch, layer) },
    combine: {
      ...combine,
      blocks: blocksOf(combine, layer),
      threads,
      parts: sums && threads < combine.threads ? Math.max(2, combine.parts) : combine.parts,
      way,
      teams: teamsOf(threads / 32, combine.teams),
    },
  };
}

/** So many teams at most, of as many whole warps each. */
function teamsOf(warps: number, most: number): number {
  let teams = Math.min(most, warps);
  while (warps % teams !== 0) teams -= 1;
  return teams;
}

/** A block without a piece of work would only wait. */
const blocksOf = ({ blocks, parts, way }: DispatchTuning & Partial<CombineTuning>, layer: Layer): number =>
  Math.min(blocks, (way === 'pull' ? layer.maxTokens : sharing(layer).turns) * parts);

/** Major capabilities of GPUs whose blocks may have 227 KiB of shared memory. */
const roomy: ReadonlySet<number> = new Set([9, 10]);

/** Few multiprocessors are bound by what they store: a copy engine stores the rows that stay at home, where they are enough to win by it. */
function copiesHome(layer: Layer, { copies = false, kind, sms }: PlanTarget) {
  if (!copies || sms === null || sms > 32 || sharing(layer).replicas > 1) return false;
  const asTheyLie = layer.payloads.every(({ rounded }) => rounded === undefined);
  return asTheyLie && (kind === 'sim' || layer.maxTokens >= 8 * sms);
}

function plan(layer: Layer, target: PlanTarget, tuning: OneSidedTuning): Plan {
  const { rank, split } = target;
  const shape: OneSidedShape = {
    ...layer,
    split,
    room: roomy.has(target.capability[0]) ? 224 * 1024 : 0,
    copied: copiesHome(layer, target),
    dispatch: { ...tuning.dispatch, blocks: blocksOf(tuning.dispatch, layer) },
    combine: { ...tuning.combine, blocks: blocksOf(tuning.combine, layer) },
    weigh:
      sourceWeighs(layer) || sumsRoutes({ ...layer, ...tuning })
        ? null
        : weighSpread(layer, tuning.combine, target),
  };
  const { layout, dispatch, dispatchRecv, weigh, combine, combineRecv } = kernelsOf(shape);
  // `returned` and `sums` are EMPTY until vectors come. Rounds that have not been have no waits.
  const memory = receiveWindow(layer, layout, [...roundWords, 'returned', 'sums', 'waited']);
  const summing = { blocks: combineGrid(shape), threads: shape.combine.threads };
  return planOf({
    ...{ layer, rank, memory, layout, rounds: split ? 'combineRecvs' : 'combines' },
    reached: passesOver(shape) && 'reached',
    copied: shape.copied,
    phases: {
      dispatchSend: [
        launch(
          dispatch,
          shape.dispatch,
          split ? sends('dispatch') : 'sends tokens to the ranks that own their experts',
        ),
      ],
      dispatchRecv: [
        dispatchRecv &&
          launch(dispatchRecv, dispatchRecvSpread(shape), 'a split dispatch: until all has come'),
      ],
      combineSend: [
        weigh,
        // A send writes nothing to `out`.
        split
          ? { ...launch(combine, summing, sends('combine')), bindings: { out: 'topkIds' } }
          : launch(combine, summing, 'brings partial rows back and adds them up'),
      ],
      combineRecv: [combineRecv && launch(combineRecv, summing, 'a split combine: adds up what comes')],
    },
  });
}

const sends = (phase: string) => `a split ${phase}: sends, waits for nobody`;

/** The kernels of a shape, made once: ranks of one process and runs of one check share them, compiled code included. */
const kernelsOf = memoized((shape: OneSidedShape) => {
  const kit = oneSidedKit(shape);
  const { window } = kit;
  const { split } = shape;
  const half = split ? 'send' : 'both';
  return {
    layout: window,
    dispatch: dispatchKernel(kit),
    dispatchRecv: split ? dispatchRecvKernel(kit) : null,
    weigh: weighLaunch('one_sided_weigh', shape, window),
    combine: pushes(shape) ? pushKernel(kit, half) : pullKernel(kit),
    combineRecv: split ? pushKernel(kit, 'recv') : null,
  };
});
