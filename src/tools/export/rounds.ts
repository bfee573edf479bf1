/** What a round launches: Heddle's own classes make it on a recording device. */
import { isDeepStrictEqual } from 'node:util';
import { ArgumentError } from '../../base/errors.js';
import { fewTokens, requireUnits } from '../../moe/experts/index.js';
import {
  loadStep,
  type Plan,
  type PlanTarget,
  phases,
  type Round,
  type View,
} from '../../moe/families/index.js';
import {
  ExpertsMlp,
  ExpertsPlan,
  emptyTensor,
  type MadeRows,
  type Received,
  type Receiving,
  type Tensor,
  wrap,
} from '../../moe/index.js';
import {
  type Activation,
  type Alignment,
  areScales,
  type Dtype,
  type ExpertForm,
  expertsOf,
  type Layer,
  mxfp4Block,
  scaleBlock,
} from '../../moe/layer/index.js';
import { type Recorded, type RecordedBuffer, type RecordedGpu, Recorder, type Source } from './recorder.js';

/** Names of the parts that a host enqueues, in the order of a stream. */
export const stages = [
  'dispatchSend',
  'dispatchRecv',
  'plan',
  'experts',
  'combineSend',
  'combineRecv',
] as const;
export type Stage = (typeof stages)[number];

export interface StageLaunch extends Recorded {
  readonly phase: Stage;
  /** It is made where a rank brings so many tokens, from the least to the most. Absent: with any number. */
  readonly tokens?: readonly [least: number, most: number];
}

/** Types of the weights of experts; those of e4m3 and MXFP4 have scales. */
export const expertWeights = ['bf16', 'e4m3', 'mxfp4'] as const;

/** Experts that run between dispatch and combine, by Heddle's own kernels. */
export interface PlannedExperts {
  readonly inner: number;
  readonly weights: (typeof expertWeights)[number];
  readonly activation: Activation;
  readonly biases: boolean;
}

/** Rows sorted by expert, for experts of the host between dispatch and combine: the options of an ExpertsPlan. */
export interface SortedRows {
  readonly form: ExpertForm;
  readonly alignment: Alignment;
  readonly capacity?: number;
}

/** A tensor in a buffer that a plan fills. */
export interface PlannedTensor {
  readonly in: string;
  readonly offset: number;
  readonly bytes: number;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
}

/** The weights of a rank's experts, which its host brings. */
export interface PlannedWeights {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
}

export interface RecordedRound {
  /** In the order of the stream. */
  readonly launches: readonly StageLaunch[];
  /** The memory that they name beside windows. */
  readonly buffers: readonly RecordedBuffer[];
  readonly weights: readonly PlannedWeights[];
  /** What a plan leaves, by name; nothing where there is none. */
  readonly planned: Readonly<Record<string, PlannedTensor>>;
}

/** Records the round of every rank. Ranks differ in constants only, which then are one for each. */
export async function recordRounds(
  planOf: (rank: number) => Plan,
  layer: Layer,
  target: PlanTarget,
  capability: RecordedGpu['capability'],
  experts: PlannedExperts | SortedRows | null,
): Promise<RecordedRound> {
  const gpu = { multiprocessors: target.multiprocessors, capability };
  if (experts === null && target.topology.nodes === 1) return recordRound(planOf(0), layer, gpu, experts, 0);
  if (experts !== null && layer.experts % layer.ranks !== 0) {
    const possible = `a multiple of ranks, ${layer.ranks}, so that all ranks have the same kernels`;
    throw new ArgumentError('experts', layer.experts, possible);
  }
  const rounds: RecordedRound[] = [];
  for (let rank = 0; rank < layer.ranks; rank++)
    rounds.push(await recordRound(planOf(rank), layer, gpu, experts, rank));
  const [first] = rounds as [RecordedRound, ...RecordedRound[]];
  const launches = first.launches.map((launch, l) => {
    const sources = Array.from(launch.sources, ([name, source]): [string, Source] => {
      if (source.from !== 'constant') return [name, source];
      const values = rounds.map(({ launches }) => (launches[l]!.sources.get(name) as typeof source).value);
      return [name, values.every((value) => value === values[0]) ? source : { from: 'constants', values }];
    });
    return { ...launch, sources: new Map(sources) };
  });
  return { ...first, launches };
}

async function recordRound(
  plan: Plan,
  layer: Layer,
  gpu: RecordedGpu,
  experts: PlannedExperts | SortedRows | null,
  rank: number,
): Promise<RecordedRound> {
  const recorder = new Recorder(gpu);
  const { device, stream } = recorder;
  const windows = new Map<object, ReturnType<typeof recorder.window>>(
    plan.windows.map((of) => [of, recorder.window(of)]),
  );
  const wire = plan.wire && recorder.wire(plan.wire);
  const buffers = new Map<object, number>(
    plan.buffers.map((of) => [of, device.allocate(of.bytes, of.purpose).address]),
  );
  const memory = {
    ...{ rank: 0, limit: recorder.name({ from: 'limit' }) },
    window: (of: object) => (of === plan.wire ? wire! : windows.get(of)!.window),
    address: (of: object) => buffers.get(of)!,
  };
  const tensor = ({ in: where, offset, dtype, shape }: View): Tensor =>
    wrap((windows.get(where)?.own ?? buffers.get(where)!) + offset, dtype, shape);
  const of = { world: { device, rank }, shape: layer, received: receivedOf(plan, tensor) };
  const work =
    experts &&
    ('form' in experts
      ? await recordRows(recorder, of, experts)
      : await recordExperts(recorder, of, experts));
  const made = work?.made ?? null;
  const round: Round = {
    tokens: recorder.name({ from: 'tokens' }),
    topkIds: recorder.name({ from: 'topkIds' }),
    topkWeights: recorder.name({ from: 'topkWeights' }),
    // Nobody brings scales that dispatch makes: its kernels are given the rows that it makes them of.
    rows: layer.payloads.map((_, p) =>
      recorder.name({ from: 'rows', payload: layer.payloads[areScales(layer, p) ? p - 1 : p]!.name }),
    ),
    out: recorder.name({ from: 'out' }),
    made: made?.rows.data ?? 0,
    madeRows: made?.rows.shape[0] ?? 0,
    scatter: made?.scatter.data ?? 0,
    routeWeights: made?.weights.data ?? 0,
    placing: [],
    layer: 0,
  };
  if (plan.placing !== null) {
    const [places, routed] = [recorder.name({ from: 'places' }), recorder.name({ from: 'routed' })];
    round.placing = [places, tensor(plan.placing.places).data, routed];
  }
  const launches: StageLaunch[] = [];
  const note = (phase: Stage, launched: readonly Recorded[], tokens?: StageLaunch['tokens']): void => {
    launches.push(...launched.map((one) => ({ ...one, phase, ...(tokens && { tokens }) })));
  };
  for (const phase of phases) {
    if (phase === 'combineSend' && work !== null) {
      note('plan', recorder.launched(work.plan));
      const [least, most] = [fewTokens(layer), layer.maxTokens];
      const few = recorder.launched(() => work.run(least));
      const many = recorder.launched(() => work.run(most));
      const alike = isDeepStrictEqual(few, many);
      if (!alike) note('experts', few, [0, least]);
      note('experts', many, alike ? undefined : [least + 1, most]);
    }
    for (const step of plan.phases[phase]) {
      const loaded = await loadStep(step, device, memory);
      // Combine goes by the places to which dispatch sent.
      const [, places = round.topkIds] = round.placing;
      loaded.take(phase.startsWith('combine') ? { ...round, topkIds: places } : round);
      note(
        phase,
        recorder.launched(() => loaded.launch(stream)),
      );
    }
  }
  return {
    ...{ launches, buffers: recorder.buffers, weights: work?.weights ?? [] },
    planned: work === null ? {} : placed(recorder, work.planned),
  };
}

function receivedOf({ received }: Plan, tensor: (view: View) => Tensor): Received {
  const { experts, weights, counts, payloads, output } = received;
  return {
    ...{ experts: tensor(experts), output: tensor(output) },
    ...{ weights: weights && tensor(weights), counts: counts && tensor(counts) },
    payloads: Object.fromEntries(Object.entries(payloads).map(([name, view]) => [name, tensor(view)])),
  };
}

interface RecordedExperts {
  readonly weights: readonly PlannedWeights[];
  readonly made: MadeRows | null;
  readonly planned: Readonly<Record<string, Tensor | null>>;
  plan(): void;
  /** With so many tokens of this rank. */
  run(tokens: number): void;
}

/** The experts of a rank, as `ExpertsPlan` and `ExpertsMlp` run them. */
async function recordExperts(
  recorder: Recorder,
  of: Receiving,
  experts: PlannedExperts,
): Promise<RecordedExperts> {
  const { stream } = recorder;
  const { shape: layer, received } = of;
  const { count } = expertsOf(layer, of.world.rank);
  const { hidden } = layer.output;
  const weights = weightsOf(experts, count, hidden);
  const tensors = Object.fromEntries(
    weights.map(({ name, dtype, shape }) => [
      name,
      wrap(recorder.name({ from: 'weights', weights: name }), dtype, shape),
    ]),
  );
  const plan = await ExpertsPlan.create(of);
  const scales = layer.payloads[1]?.name;
  const mlp = await ExpertsMlp.create(of, plan, {
    ...(tensors as Record<'gateUp' | 'down', Tensor>),
    ...(scales !== undefined && { scales }),
    activation: experts.activation,
  });
  return {
    ...{ weights, made: mlp.made, planned: { ...plan.planned } },
    plan: () => void plan.plan(received, stream),
    run: (tokens) => mlp.run(received, stream, tokens),
  };
}

/** Copies rows of all payloads into the order of a plan, where the host's experts find them, and leave theirs in `made`. */
async function recordRows(
  { device, stream }: Recorder,
  of: Receiving,
  { form, alignment, capacity }: SortedRows,
): Promise<RecordedExperts> {
  const { shape: layer, received } = of;
  const plan = await ExpertsPlan.create(of, { form, alignment, ...(capacity && { capacity }) });
  const rows = Object.fromEntries(
    layer.payloads.map(({ name, rowBytes }) => [
      name,
      emptyTensor(device, received.payloads[name]!.dtype, [plan.rows, rowBytes], `rows of ${name}`),
    ]),
  );
  const { dtype, hidden } = layer.output;
  const made = emptyTensor(device, dtype, [plan.rows, hidden], 'rows that experts made');
  const named = Object.entries(rows).map(([name, tensor]) => [`rows.${name}`, tensor] as const);
  return {
    ...{ weights: [], made: plan.made(made) },
    planned: { ...plan.planned, made, ...Object.fromEntries(named) },
    plan: () => void plan.plan(received, stream),
    run: () => plan.expand(received, rows, stream),
  };
}

/** Where tensors lie, by the names of buffers. */
function placed(
  recorder: Recorder,
  tensors: Readonly<Record<string, Tensor | null>>,
): Record<string, PlannedTensor> {
  return Object.fromEntries(
    Object.entries(tensors).flatMap(([name, tensor]) => {
      if (tensor === null) return [];
      const { data, bytes, dtype, shape } = tensor;
      const { buffer, offset = 0 } = recorder.sourceOf(data) as Extract<Source, { from: 'buffer' }>;
      return [[name, { in: buffer, offset, bytes, dtype, shape }]];
    }),
  );
}

function weightsOf(
  { inner, weights, biases }: PlannedExperts,
  experts: number,
  hidden: number,
): PlannedWeights[] {
  const of = (name: string, dtype: Dtype, ...shape: readonly number[]) => ({
    ...{ name, dtype, shape: [experts, ...shape] },
  });
  // As MlpWeights has them.
  const [stored, half] = weights === 'mxfp4' ? (['u8', 2] as const) : ([weights, 1] as const);
  requireUnits(stored, { hidden, inner });
  const scales = (name: string, rows: number, columns: number): PlannedWeights[] =>
    weights === 'bf16'
      ? []
      : weights === 'e4m3'
        ? [of(name, 'f32', rows / scaleBlock, columns / scaleBlock)]
        : [of(name, 'u8', columns / mxfp4Block, rows)];
  return [
    of('gateUp', stored, 2 * inner, hidden / half),
    of('down', stored, hidden, inner / half),
    ...scales('gateUpScales', 2 * inner, hidden),
    ...scales('downScales', hidden, inner),
    ...(biases ? [of('gateUpBias', 'bf16', 2 * inner), of('downBias', 'bf16', hidden)] : []),
  ];
}
