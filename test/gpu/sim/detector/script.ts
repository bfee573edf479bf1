/** Little scripted runs: drives the detector as the machine would, in the order of the calls. */

import type {
  AccessKind,
  BufferInfo,
  CopyEngine,
  Finding,
  Site,
} from '../../../../src/gpu/sim/detector/detector.js';
import { Detector } from '../../../../src/gpu/sim/detector/race-detector.js';
import type { FenceOrder, Order, Scope, Space } from '../../../../src/lang/index.js';

export type Race = Extract<Finding, { kind: 'race' }>;

export interface LaunchOptions {
  readonly blocks?: number;
  readonly threads?: number;
  readonly programmatic?: boolean;
  readonly kernel?: string;
}

/** A running launch: `thread(block, lane)`. */
export interface Running {
  thread(block: number, lane: number): number;
  barrier(block: number): void;
  warp(block: number, warp: number): void;
  endBlock(block: number): void;
  /** Ends the blocks that are left, and the launch. */
  end(): void;
}

export class Script {
  readonly #sites: Site[] = [];
  readonly #ranks = new Map<number, number>();
  #streams = 0;
  #launches = 0;
  #blocks = 0;
  #threads = 0;
  #buffers = 0;
  readonly detector = new Detector({
    site: (id) => this.#sites[id]!,
    seed: '7',
    configuration: 'script',
  });

  /** The races, as 'first second' of the labels given to the accesses. */
  get races(): string[] {
    return this.findings.map((race) => `${race.first.where} ${race.second.where}`);
  }

  get findings(): Race[] {
    return this.detector.findings.filter((finding): finding is Race => finding.kind === 'race');
  }

  buffer(purpose = 'window', rank = 0, space: Space = 'global'): BufferInfo {
    return {
      id: this.#buffers++,
      purpose,
      rank,
      space,
      bytes: 1 << 20,
      i32: new Int32Array(1 << 18),
      describe: (offset) => `byte ${offset}`,
    };
  }

  stream(rank = 0): number {
    const stream = this.#streams++;
    this.#ranks.set(stream, rank);
    this.detector.streamCreated(stream, rank);
    return stream;
  }

  /** The program of a rank's host. */
  host(rank: number): number {
    const thread = this.#threads++;
    this.detector.hostThreadStarted(thread, rank, null);
    return thread;
  }

  launch(stream: number, options: LaunchOptions = {}): Running {
    const { blocks = 1, threads = 1, programmatic = false, kernel = 'test' } = options;
    const { detector } = this;
    const launch = this.#launches++;
    const rank = this.#ranks.get(stream)!;
    detector.launchStarted(launch, stream, { rank, kernel, grid: blocks, block: threads, programmatic });
    const first = this.#threads;
    const firstBlock = this.#blocks;
    this.#threads += blocks * threads;
    this.#blocks += blocks;
    const open = new Set<number>();
    for (let block = 0; block < blocks; block++) {
      detector.blockStarted(firstBlock + block, launch, block, first + block * threads, threads);
      open.add(block);
    }
    const endBlock = (block: number) => {
      detector.blockEnded(firstBlock + block);
      open.delete(block);
    };
    return {
      thread: (block, lane) => first + block * threads + lane,
      barrier: (block) => detector.blockBarrier(firstBlock + block),
      warp: (block, warp) => {
        const lane = warp * 32;
        detector.warpMet(first + block * threads + lane, Math.min(32, threads - lane));
      },
      endBlock,
      end: () => {
        for (const block of [...open]) endBlock(block);
        detector.launchEnded(launch);
      },
    };
  }

  read(thread: number, buffer: BufferInfo, offset: number, label: string, bytes = 4): void {
    this.access(thread, 'read', 'weak', 'cta', buffer, offset, bytes, label);
  }

  write(thread: number, buffer: BufferInfo, offset: number, label: string, bytes = 4): void {
    this.access(thread, 'write', 'weak', 'cta', buffer, offset, bytes, label);
  }

  load(thread: number, order: Order, scope: Scope, buffer: BufferInfo, offset: number, label: string): void {
    this.access(thread, 'read', order, scope, buffer, offset, 4, label);
  }

  store(thread: number, order: Order, scope: Scope, buffer: BufferInfo, offset: number, label: string): void {
    this.access(thread, 'write', order, scope, buffer, offset, 4, label);
  }

  rmw(thread: number, order: Order, scope: Scope, buffer: BufferInfo, offset: number, label: string): void {
    this.access(thread, 'update', order, scope, buffer, offset, 4, label);
  }

  fence(thread: number, scope: Scope, order: FenceOrder = 'acq_rel'): void {
    this.detector.fence(thread, order, scope);
  }

  proxyFence(thread: number, space: Space = 'global'): void {
    this.detector.proxyFence(thread, space);
  }

  bulk(
    thread: number,
    group: number,
    source: BufferInfo,
    target: BufferInfo,
    offset: number,
    bytes: number,
    label: string,
    engine: CopyEngine = 'bulk',
    to = offset,
  ): void {
    const site = this.site(label);
    this.detector.copyIssued(thread, engine, group, 'read', { buffer: source, offset }, bytes, site);
    this.detector.copyIssued(thread, engine, group, 'write', { buffer: target, offset: to }, bytes, site);
  }

  access(
    thread: number,
    kind: AccessKind,
    order: Order,
    scope: Scope,
    buffer: BufferInfo,
    offset: number,
    bytes: number,
    label: string,
    older = 0,
  ): void {
    this.detector.access(thread, { kind, order, scope, bytes }, this.site(label), buffer, offset, older);
  }

  site(label: string): number {
    const span = { start: 0, end: 0, source: 0 };
    return this.#sites.push({ kernel: 'test', span, where: label, text: `${label};` }) - 1;
  }
}
