/**
 * The example experts as a rank runs them between dispatch and combine, and what they mean in plain code. Scale and
 * bias of an expert follow from its id, so any rank can say what another's experts would do.
 */

import { type CallSite, callSite, type Stream } from '../../gpu/index.js';
import { exampleExpertsKernel } from '../../moe/experts/index.js';
import {
  bytesOf,
  type ExpertParallel,
  ExpertsPlan,
  emptyTensor,
  type MadeRows,
  type OwnedTensor,
  type Received,
} from '../../moe/index.js';
import {
  type Bits,
  bitsArray,
  bitsOf,
  combineWeighs,
  expertsOf,
  fromF32,
  type ReferenceReceived,
  type Shape,
  sharing,
  toF32,
} from '../../moe/layer/index.js';
import type { World } from '../../net/world/index.js';
import { random } from './random.js';

/** The payload that the example experts read: rows of the output's type and length. */
export const exampleInput = 'x';

export interface ExampleExpertsOptions {
  /** They take slots in turn. */
  readonly blocks: number;
  /** They take pieces of a row in turn. */
  readonly threads: number;
  /** May start while dispatch ends. Default true. */
  readonly programmatic?: boolean;
  /** [place]: the expert whose scale and bias are there. Default: that of the place's number. */
  readonly lives?: readonly number[];
}

export class ExampleExperts {
  /** Scales and biases: [experts of this rank], each. */
  readonly weights: readonly OwnedTensor[];
  /** With weighting 'plan' the rows that combine takes; undefined else. */
  readonly made: MadeRows | undefined;
  readonly #site: Pick<CallSite, 'launch'>;
  readonly #planned: Planned | null;

  private constructor(
    weights: readonly OwnedTensor[],
    site: Pick<CallSite, 'launch'>,
    planned: Planned | null,
  ) {
    this.weights = weights;
    this.made = planned?.plan.made(planned.rows);
    this.#site = site;
    this.#planned = planned;
  }

  /**
   * Experts for a layer with a payload `x` that looks like its output. With two rounds in flight each has experts of its
   * own, for its `received`.
   */
  static async create(
    world: World,
    ep: ExpertParallel,
    stream: Stream,
    spread?: ExampleExpertsOptions,
    received: Received = ep.received,
  ): Promise<ExampleExperts> {
    const options = spread ?? exampleSpread(ep.shape, world.device.kind);
    const { shape } = ep;
    const { first, count } = expertsOf(shape, world.rank);
    const x = received.payloads[exampleInput]!;
    const { topK, output } = shape;
    const kernel = exampleExpertsKernel({
      ...{ slots: slotsOf(shape), topK, hidden: output.hidden, dtype: output.dtype },
      ...{ weights: received.weights !== null, planned: combineWeighs(shape) },
      threads: options.threads,
    });
    const site = await callSite(world.device, kernel, {
      ...{ grid: options.blocks, block: options.threads, rank: world.rank },
      programmatic: options.programmatic ?? true,
    });
    const here = Array.from({ length: count }, (_, i) => expertIn(options.lives, first + i));
    const [scale, bias] = [scaleOf, biasOf].map((of) => {
      const tensor = emptyTensor(world.device, 'f32', [Math.max(1, count)], 'example experts');
      // Nobody is to see those of an empty place.
      const values = here.map((expert) => (expert < 0 ? Number.NaN : of(expert)));
      if (count > 0) stream.copyIn(tensor.data, bytesOf(Float32Array.from(values)));
      return tensor;
    }) as [OwnedTensor, OwnedTensor];

    site.set.experts(received.experts.data);
    site.set.weights((received.weights ?? received.experts).data);
    site.set.x(x.data);
    const planned = combineWeighs(shape) ? await planOf(world, ep, received) : null;
    if (planned !== null) site.set.scatter(0, planned.plan.planned.scatter.data);
    site.set.out((planned?.rows ?? received.output).data);
    site.set.scale(scale.data);
    site.set.bias(bias.data);
    site.set.first(first);
    return new ExampleExperts([scale, bias], site, planned);
  }

  /** Enqueues the experts: from what dispatch delivered to what combine brings back. */
  run(stream: Stream): void {
    if (this.#planned !== null) this.#planned.plan.plan(this.#planned.received, stream);
    this.#site.launch(stream);
  }

  free(): void {
    for (const { free } of this.weights) free();
    this.#planned?.rows.free();
    this.#planned?.plan.dispose();
  }
}

/** Where rows of a plan are made. */
interface Planned {
  readonly plan: ExpertsPlan;
  readonly received: Received;
  readonly rows: OwnedTensor;
}

async function planOf(world: World, { shape }: ExpertParallel, received: Received): Promise<Planned> {
  const plan = await ExpertsPlan.create({ world, shape, received });
  const { dtype, hidden } = shape.output;
  return { plan, received, rows: emptyTensor(world.device, dtype, [plan.rows, hidden], 'rows of experts') };
}

/**
 * The rows that a rank's experts leave in `output`, from those that the rank received: `[sources, maxTokens, hidden]`, or
 * `[sources, maxTokens, topK, hidden]` where combine applies the weights. `lives`: as ExampleExperts has it.
 */
export function exampleOutput(
  shape: Shape,
  received: ReferenceReceived,
  weights = true,
  lives?: readonly number[],
): Bits {
  const { topK, output } = shape;
  const slots = slotsOf(shape);
  const { hidden, dtype } = output;
  const perRoute = combineWeighs(shape);
  const plane = bitsArray(dtype, slots * hidden * (perRoute ? topK : 1));
  const x = bitsOf(dtype, received.payloads[exampleInput]!);
  for (let slot = 0; slot < slots; slot++) {
    const routes = Array.from({ length: topK }, (_, k) => slot * topK + k).filter(
      (route) => received.experts[route]! >= 0,
    );
    if (routes.length === 0) continue;
    const row = toF32(dtype, x.subarray(slot * hidden, (slot + 1) * hidden));
    const sum = new Float32Array(hidden);
    for (const route of routes) {
      const expert = expertIn(lives, received.experts[route]!);
      if (perRoute) {
        const own = new Float32Array(hidden).fill(-0); // which changes nothing that is added to it
        addExpert(own, row, 1, scaleOf(expert), biasOf(expert));
        plane.set(fromF32(dtype, own), route * hidden);
        continue;
      }
      const weight = weights ? received.weights[route]! : 1;
      addExpert(sum, row, weight, scaleOf(expert), biasOf(expert));
    }
    if (!perRoute) plane.set(fromF32(dtype, sum), slot * hidden);
  }
  return plane;
}

/** Each product and sum is rounded to f32 by itself. */
function addExpert(sum: Float32Array, row: Float32Array, weight: number, scale: number, bias: number): void {
  for (let i = 0; i < sum.length; i++) {
    const y = Math.fround(Math.fround(row[i]! * scale) + bias);
    sum[i] = sum[i]! + Math.fround(weight * y);
  }
}

const scaleOf = (expert: number): number => Math.fround(0.5 + random(expert, 6).uniform());
const biasOf = (expert: number): number => Math.fround(random(expert, 7).uniform() - 0.5);

const expertIn = (lives: readonly number[] | undefined, place: number): number => lives?.[place] ?? place;

const slotsOf = (shape: Shape): number => sharing(shape).groups * shape.maxTokens;

/** A block for each slot, as many as a GPU holds; simulated threads cost time, so there they are few. */
function exampleSpread(shape: Shape, kind: 'sim' | 'cuda'): ExampleExpertsOptions {
  const slots = slotsOf(shape);
  return kind === 'sim'
    ? { blocks: Math.min(slots, 32), threads: 32 }
    : { blocks: Math.min(slots, 528), threads: 256 };
}
