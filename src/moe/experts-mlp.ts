/**
 * The experts themselves: for each row of a plan down · (silu(gate · x) * (up · x)), and of a slot's rows the weighted
 * sum. Rows are gathered from where dispatch left them, so nothing is expanded, and only rows that a route needs are read.
 */
import type { Stream } from '../device/index.js';
import { ArgumentError, DisposedError, requireObject } from '../errors/index.js';
import { expertsOf } from '../layer/index.js';
import type { Received } from './expert-parallel.js';
import { ExpertsPlan, type Receiving } from './experts-plan.js';
import type { MemoryUse } from './memory.js';
import { type MlpSites, mlpSites } from './mlp-sites.js';
import { type MlpWeights, requireWeights } from './mlp-weights.js';
import { describe, emptyTensor, type OwnedTensor } from './tensor.js';

export interface ExpertsMlpOptions extends MlpWeights {
  /** The payload that experts take, bf16 rows of the output's length. Default 'x'. */
  readonly payload?: string;
}

type Rows = Readonly<Record<'inner' | 'made', OwnedTensor>>;

export class ExpertsMlp {
  /** What lies between and behind the two GEMMs: a row for each of the plan's. */
  readonly memory: MemoryUse;
  readonly #plan: ExpertsPlan;
  readonly #rows: Rows;
  readonly #sites: MlpSites;
  #disposed = false;

  private constructor(plan: ExpertsPlan, rows: Rows, sites: MlpSites) {
    this.#plan = plan;
    this.#rows = rows;
    this.#sites = sites;
    const part = (purpose: string, { bytes }: OwnedTensor) => ({ purpose, section: null, bytes });
    const parts = [part('inner rows of experts', rows.inner), part('rows that experts made', rows.made)];
    this.memory = { bytes: rows.inner.bytes + rows.made.bytes, parts };
  }

  /** Allocates the rows between and compiles the kernels, for this rank alone. `plan` is one of `of`. */
  static async create(of: Receiving, plan: ExpertsPlan, options: ExpertsMlpOptions): Promise<ExpertsMlp> {
    requireObject('ep', of, 'an ExpertParallel');
    if (!(plan instanceof ExpertsPlan))
      throw new ArgumentError('plan', plan, 'what ExpertsPlan.create gives');
    requireObject('options', options, 'weights: { gateUp, down }');
    const { world, shape: layer, received } = of;
    const { device, rank } = world;
    const { hidden, dtype } = layer.output;
    const { payload = 'x' } = options;
    if (dtype !== 'bf16') throw new ArgumentError('output.dtype', dtype, "'bf16', what experts make");
    const from = received.payloads[payload];
    if (from === undefined || from.bytes !== 2 * hidden * layer.ranks * layer.maxTokens)
      throw new ArgumentError(
        'payload',
        from === undefined ? payload : describe(from),
        `rows of ${hidden} bf16`,
      );
    const experts = expertsOf(layer, rank).count;
    const { inner } = requireWeights(options, experts, hidden);
    const { topK, ranks, maxTokens } = layer;
    // With even routes.
    const rows = Math.ceil((ranks * maxTokens * topK) / layer.experts);
    const sites = await mlpSites(device, { of: 'plan', experts, hidden, inner, topK, rows }, rank);
    const between = {
      inner: emptyTensor(device, 'bf16', [plan.rows, inner], 'inner rows of experts'),
      made: emptyTensor(device, 'bf16', [plan.rows, hidden], 'rows that experts made'),
    };
    const { counts, offsets, routes } = plan.planned;
    for (const { set } of [sites.gateUp, sites.down]) {
      set.counts(counts.data);
      set.offsets(offsets.data);
      set.routes(routes.data);
      set.count(0);
    }
    sites.gateUp.set.from(from.data);
    sites.gateUp.set.weights(options.gateUp.data);
    sites.gateUp.set.to(between.inner.data);
    sites.down.set.from(between.inner.data);
    sites.down.set.weights(options.down.data);
    sites.down.set.to(between.made.data);
    return new ExpertsMlp(plan, between, sites);
  }

  /** From the rows of the last plan of `received` to `received.output`. Between the plan and combine. */
  run(received: Received, stream: Stream): void {
    if (this.#disposed) throw new DisposedError('this ExpertsMlp');
    this.#plan.requirePlanned('run', received, stream);
    this.#sites.gateUp.launch(stream);
    this.#sites.down.launch(stream);
    this.#plan.reduce(received, this.#rows.made, stream);
  }

  /** Frees the rows between. Nothing enqueued may still use them. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    for (const tensor of Object.values(this.#rows)) tensor.free();
  }
}
