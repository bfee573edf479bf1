/**
 * Experts want the rows that dispatch delivers sorted by expert. A plan says which row each route gets; experts
 * may then gather rows by it, or have them copied (`expand`) and what they made of them added up (`reduce`).
 */

import { ArgumentError, DisposedError, requireObject } from '../../base/errors.js';
import {
  type CallSite,
  callSite,
  type Device,
  inRange,
  requireStream,
  type Stream,
} from '../../gpu/index.js';
import { unitBytes, widestUnit } from '../families/index.js';
import {
  combineWeighs,
  dtypes,
  type ExpertForm,
  expertsOf,
  type Layer,
  outputRowBytes,
  sharing,
} from '../layer/index.js';
import type { Received } from '../rounds/in-flight.js';
import type { MadeRows } from '../rounds/inputs.js';
import {
  describe,
  elements,
  emptyTensors,
  isContiguous,
  isOfType,
  type OwnedTensor,
  requireTensor,
  requireVectors,
  type Tensor,
  wrap,
} from '../rounds/tensor.js';
import { type ExpertsPlanOptions, expertsKernels, expertsShapeOf, notPlanned } from './experts-options.js';
import {
  type ExpertsShape,
  fewRows,
  keepsWeights,
  rowsOfPlan,
  sizesOfPlan,
  slotsOf,
} from './kernels/shape.js';

/** The ExpertParallel whose rows are planned: an ExpertParallel. */
export interface Receiving<P extends string = string> {
  readonly world: { readonly device: Device; readonly rank: number };
  readonly shape: Layer;
  readonly received: Received<P>;
}

export function requireReceiving(of: Receiving): void {
  requireObject('ep', of, 'an ExpertParallel');
  for (const name of ['world', 'shape', 'received'] as const)
    requireObject(`ep.${name}`, of[name], 'that of an ExpertParallel');
}

/** Views of a plan's memory, valid until the next plan. Experts are this rank's, from its first on. */
export interface PlannedRows {
  /** u32 [local experts]: rows of each. */
  readonly counts: Tensor;
  /** u32 [local experts + 1]: where they begin; at the end, `total`. */
  readonly offsets: Tensor;
  /**
   * i32 [rows]: the route of each row, slot · topK + k, in this order for each expert. −1 in rows that only align the next
   * expert; nothing defined in those that no expert's rows reach.
   */
  readonly routes: Tensor;
  /** i32 [sources, maxTokens, topK]: the row of each route; −1 where it is elsewhere, or found no room. */
  readonly scatter: Tensor;
  /** f32 [sources, maxTokens, topK]: the weights of routes, kept for combine; null unless it takes the plan's rows. */
  readonly weights: Tensor | null;
  /** u32 [1]: where the rows of the last expert end. */
  readonly total: Tensor;
  /** u32 [1]: routes that found no room. */
  readonly overflow: Tensor;
}

/** The part of a plan that a host reads. */
export interface ExpertSizes {
  readonly counts: Uint32Array;
  /** One more than experts: the last is `total`. */
  readonly offsets: Uint32Array;
  readonly total: number;
  readonly overflow: number;
}

export class ExpertsPlan<P extends string = string> {
  /** Rows that a plan can hand out: what tensors of expanded rows have. */
  readonly rows: number;
  readonly form: ExpertForm;
  /** The views that every plan fills. */
  readonly planned: PlannedRows;
  readonly #of: Receiving<P>;
  readonly #experts: number;
  readonly #shape: ExpertsShape;
  readonly #memory: Buffers;
  readonly #sites: Sites;
  #wasPlanned = false;
  #disposed = false;

  private constructor(of: Receiving<P>, shape: ExpertsShape, memory: Buffers, sites: Sites) {
    this.rows = rowsOfPlan(shape);
    this.form = shape.form;
    this.#of = of;
    this.#experts = expertsOf(of.shape, of.world.rank).count;
    this.#shape = shape;
    this.#memory = memory;
    this.#sites = sites;
    const { sizes, routes, scatter, weights = null } = memory;
    const words = (first: number, length: number) => wrap(sizes.data + 4 * first, 'u32', [length]);
    const end = 2 * shape.experts;
    this.planned = {
      ...{ routes, scatter, weights, total: words(end, 1), overflow: words(end + 1, 1) },
      counts: words(0, this.#experts),
      offsets: words(end - this.#experts, this.#experts + 1),
    };
  }

  /** Allocates a plan's memory and compiles its kernels, for this rank alone. */
  static async create<P extends string>(
    of: Receiving<P>,
    options: ExpertsPlanOptions = {},
  ): Promise<ExpertsPlan<P>> {
    requireReceiving(of);
    const { world, shape: layer, received } = of;
    const { device, rank } = world;
    const { kind, multiprocessors } = device;
    const shape = {
      ...expertsShapeOf(layer, rank, options),
      ...(received.reached && { reached: true as const }),
    };
    const kernels = expertsKernels({ shape, kind, multiprocessors });
    const launch = ({ blocks, threads }: { readonly blocks: number; readonly threads: number }) => ({
      ...{ grid: blocks, block: threads, programmatic: true, rank },
    });
    const [plan, expand, reduce] = await Promise.all([
      callSite(device, kernels.plan.kernel, launch(kernels.plan)),
      callSite(device, kernels.expand.kernel, launch(kernels.expand)),
      callSite(device, kernels.reduce.kernel, launch(kernels.reduce)),
    ]);
    const routes = [sharing(layer).groups, layer.maxTokens, layer.topK];
    const memory: Buffers = emptyTensors(device, {
      sizes: ['u32', [sizesOfPlan(shape)], 'sizes of experts'],
      routes: ['i32', [rowsOfPlan(shape)], 'routes of rows'],
      scatter: ['i32', routes, 'rows of routes'],
      ...(keepsWeights(layer) ? { weights: ['f32', routes, 'weights of routes'] as const } : {}),
    });
    plan.set.ids(received.experts.data);
    if (received.reached !== undefined) plan.set.reached(0, received.reached.data);
    plan.set.first(expertsOf(layer, rank).first);
    plan.set.sizes(memory.sizes.data);
    plan.set.routes(memory.routes.data);
    plan.set.scatter(memory.scatter.data);
    if (memory.weights !== undefined) {
      plan.set.weights(0, received.weights!.data);
      plan.set.kept(0, memory.weights.data);
    }
    const payloads: Readonly<Record<string, Tensor>> = received.payloads;
    for (const [p, { name }] of layer.payloads.entries()) expand.set.from(p, payloads[name]!.data);
    reduce.set.ids(received.experts.data);
    if (received.weights !== null) reduce.set.weights(0, received.weights.data);
    reduce.set.to(received.output.data);
    return new ExpertsPlan(of, shape, memory, { plan, expand, reduce });
  }

  /**
   * Sorts the routes that have arrived by expert. Between a round's dispatch and its combine; one launch, which waits for
   * nobody.
   */
  plan(received: Received<P>, stream: Stream): PlannedRows {
    this.#require('plan', received, stream);
    inRange('plan', stream, this.#sites.plan.launch);
    this.#wasPlanned = true;
    return this.planned;
  }

  /** The numbers of the last plan, once the stream has come here: one small copy. */
  async sizes(stream: Stream): Promise<ExpertSizes> {
    requireStream('stream', stream);
    if (this.#disposed) throw new DisposedError('this ExpertsPlan');
    if (!this.#wasPlanned) throw notPlanned('sizes');
    const { sizes } = this.#memory;
    const end = 2 * this.#shape.experts;
    const bytes = await stream.copyOut(sizes.data, 4 * (end + 2));
    const words = new Uint32Array(bytes.buffer, bytes.byteOffset, end + 2);
    const offsets = words.slice(end - this.#experts, end + 1);
    return {
      ...{ counts: words.slice(0, this.#experts), offsets },
      ...{ total: words[end]!, overflow: words[end + 1]! },
    };
  }

  /**
   * Copies rows of payloads to `to`, by name: [rows, …] of the payload's type each. Of rows that no route has nothing is written. `scatter`: the
   * caller's own rows of routes, as `PlannedRows.scatter` has them; then there may be as many rows as it likes.
   */
  expand(
    received: Received<P>,
    to: Readonly<Partial<Record<P, Tensor>>>,
    stream: Stream,
    scatter?: Tensor,
  ): void {
    this.#require('expand', received, stream);
    requireObject('to', to, 'tensors by the names of payloads');
    const { payloads } = this.#of.shape;
    const { set, launch } = this.#sites.expand;
    const arrived: Readonly<Record<string, Tensor>> = received.payloads;
    for (const name in to) {
      if (Object.hasOwn(arrived, name)) continue;
      const names = payloads.map((payload) => `'${payload.name}'`).join(', ');
      throw new ArgumentError(`to.${name}`, to[name], `absent: payloads are ${names || 'none'}`);
    }
    const given: Readonly<Partial<Record<string, Tensor>>> = to;
    let wanted = 0;
    let rows: number | undefined = scatter === undefined ? this.rows : undefined;
    for (const [p, { name, rowBytes }] of payloads.entries()) {
      const tensor = given[name];
      const { dtype, data } = arrived[name]!;
      // Results that are not wanted are not written; the parameter must name some memory.
      set.to(p, tensor?.data ?? data);
      if (tensor === undefined) continue;
      requireTensor(`to.${name}`, tensor);
      if (!isOfType(tensor, dtype))
        throw new ArgumentError(`to.${name}`, describe(tensor), `${dtype}, as the payload is`);
      rows = requireRows(`to.${name}`, tensor, rows, rowBytes, unitBytes[widestUnit(rowBytes)]);
      wanted += 2 ** p;
    }
    if (wanted === 0) throw new ArgumentError('to', to, 'tensors by the names of payloads');
    set.wanted(wanted);
    set.rows(rows!);
    set.scatter(this.#scatter('expand', scatter));
    launch(stream);
  }

  /**
   * Adds up what the experts made, `rows` [rows, hidden] of the output's dtype, into `received.output`: for each slot the
   * sum of weight · row over its routes, in order of k. Without router weights each counts as 1.
   */
  reduce(received: Received<P>, rows: Tensor, stream: Stream, scatter?: Tensor): void {
    this.#require('reduce', received, stream);
    requireTensor('rows', rows);
    const { output } = this.#of.shape;
    if (combineWeighs(this.#of.shape)) {
      const possible = "'experts': otherwise combine itself reduces what `made` gives";
      throw new ArgumentError('weighting', output.weighting, possible);
    }
    if (rows.dtype !== output.dtype)
      throw new ArgumentError('rows', describe(rows), `rows of ${output.hidden} ${output.dtype}`);
    const rowBytes = outputRowBytes(this.#of.shape);
    const unit = rowBytes % 16 === 0 ? 16 : dtypes[output.dtype].size;
    const { set, launch } = this.#sites.reduce;
    const count = requireRows('rows', rows, scatter === undefined ? this.rows : undefined, rowBytes, unit);
    set.rows(count);
    set.from(rows.data);
    set.scatter(this.#scatter('reduce', scatter));
    launch(stream);
  }

  /**
   * `rows`, as experts leave them, in the words of a combine that takes them (`weighting: 'plan'` or `'source'`) and does what `reduce` would. It may be
   * kept for all rounds.
   */
  made(rows: Tensor): MadeRows {
    const { output } = this.#of.shape;
    const { scatter, weights } = this.planned;
    if (weights === null) {
      const possible = "'plan' or 'source' for a combine that takes rows of a plan";
      throw new ArgumentError('weighting', output.weighting, possible);
    }
    requireVectors('rows', rows, [output.dtype], [this.rows, output.hidden]);
    return { rows, scatter, weights };
  }

  /** Frees the plan's memory. Nothing enqueued may still use it. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    for (const tensor of Object.values(this.#memory)) tensor.free();
  }

  #require(call: string, received: Received<P>, stream: Stream): void {
    requireStream('stream', stream);
    if (this.#disposed) throw new DisposedError('this ExpertsPlan');
    if (received === this.#of.received) return;
    const possible = 'what dispatch of the ExpertParallel returned that this plan was created for';
    throw new ArgumentError('received', `another, given to ${call}`, possible);
  }

  /** The counts of a plan for kernels that take few rows, and for those that take many: zeros for one of them. Null where it tells neither. @internal */
  get byRows(): { readonly few: Tensor; readonly many: Tensor; readonly rows: number } | null {
    const rows = fewRows(this.#shape);
    if (rows === 0) return null;
    const { experts } = this.#shape;
    const words = (first: number) => wrap(this.#memory.sizes.data + 4 * first, 'u32', [this.#experts]);
    return { few: words(2 * experts + 2), many: words(3 * experts + 2), rows };
  }

  /** For whoever takes `planned` as it is: refuses to go on where there is no plan of `received`. @internal */
  requirePlanned(call: string, received: Received<P>, stream: Stream): void {
    this.#require(call, received, stream);
    if (!this.#wasPlanned) throw notPlanned(call);
  }

  #scatter(call: string, own: Tensor | undefined): number {
    const { scatter } = this.#memory;
    if (own === undefined) {
      if (!this.#wasPlanned) throw notPlanned(call);
      return scatter.data;
    }
    requireTensor('scatter', own);
    const routes = slotsOf(this.#of.shape) * this.#of.shape.topK;
    if (own.dtype !== 'i32' || elements(own.shape) !== routes || !isContiguous(own) || own.data === 0)
      throw new ArgumentError('scatter', describe(own), `${describe(scatter)}, contiguous`);
    return own.data;
  }
}

type Kernels = ReturnType<typeof expertsKernels>;
type Sites = {
  readonly [K in keyof Kernels]: CallSite<Kernels[K]['kernel']['params']>;
};

interface Buffers extends Readonly<Record<'sizes' | 'routes' | 'scatter', OwnedTensor>> {
  /** Where combine takes the plan's rows. */
  readonly weights?: OwnedTensor;
}

/** Requires `count` rows, or as many as there are; returns how many. */
function requireRows(
  argument: string,
  tensor: Tensor,
  count: number | undefined,
  rowBytes: number,
  unit: number,
): number {
  const { shape, dtype, data } = tensor;
  const rows = count ?? shape[0] ?? 0;
  const bytes = elements(shape) * dtypes[dtype].size;
  if (shape[0] !== rows || bytes !== rows * rowBytes || !isContiguous(tensor))
    throw new ArgumentError(argument, describe(tensor), `${rows} rows of ${rowBytes} bytes, contiguous`);
  if (rows > 0 && (data === 0 || data % unit !== 0))
    throw new ArgumentError(`${argument}.data`, data, `a device address, a multiple of ${unit}`);
  return rows;
}
