/**
 * The seam between the simulated machine and its race detector. In checked mode the machine reports every
 * synchronising event and every memory access to `Detector`, in the order in which they happen in the simulated run; the
 * detector answers with findings. It influences the run in two ways only: it knows which older values an atomic load may
 * still read, and which stores an atomic store may come before, and the schedule picks one.
 *
 * docs/races.md has the edges of happens-before, and the two paths to memory. Copies happen in agents of their issuing thread; a network's
 * writes are actors of their own.
 *
 * It turns these events into clocks (who knows what) and shadow memory (who touched what).
 */
import { getOrMake } from '../../../base/maps.js';
import type { Scope } from '../../../lang/index.js';
import { isAtomic, isRead, type Made, noSite, packAccess } from './access.js';
import {
  Actor,
  type AtomicWrite,
  BlockState,
  type CopyPart,
  distance,
  gpu,
  happenedBefore,
  hasAsyncProxy,
  isKnown,
  LaunchState,
  type Observation,
  PastThreads,
  ReleaseHead,
  reachOf,
  StreamState,
  sys,
  theNetwork,
} from './actors.js';
import { Clock, joinBlocks, nothing } from './clock.js';
import type {
  BufferInfo,
  BufferPlace,
  CopyEngine,
  DetectedForm,
  FenceKind,
  Finding,
  Origin,
  ProxyPath,
  SiteId,
  StaleRead,
} from './detector.js';
import { Location, type Version, wordsAt } from './location.js';
import { type DetectorOptions, RaceReports } from './report.js';
import { type Access, type Cell, locationOf, Shadow } from './shadow.js';
import { StaleReads } from './stale.js';
import * as sync from './sync.js';

/** How many observations are kept to explain races with. */
const observationsKept = 8192;
const mbarrierBytes = 8;
const nothingOlder: readonly never[] = [];
/** A number that no stream of the machine has. */
const noStream = -1;
/** The number of an actor that makes no accesses of its own. */
const noActor = -1;
/** With fewer actors none are forgotten. */
const fewActors = 2 ** 14;

/** A write of a network: who does it, and the moment at which it was posted. */
interface NetworkWrite {
  readonly nic: Actor;
  readonly poster: Actor;
  readonly epoch: number;
}

/** Detector of one run of the simulated machine. Threads, blocks, launches and streams have numbers, each unique in the run. Feed it events; read `findings` at any time. */
export class Detector {
  readonly #streams = new Map<number, StreamState>();
  #streamCount = 0;
  /** Streams that stand for the networks of ranks, by rank. */
  readonly #networks = new Map<number, StreamState>();
  /** Network writes whose tags nobody has heard of. */
  readonly #networkWrites = new Map<number, NetworkWrite>();
  /** The work that the host program of each rank has seen to be finished. */
  readonly #hosts = new Map<number, Clock>();
  /** The host programs that have accessed mapped memory, by rank. */
  readonly #hostPrograms = new Map<number, Actor>();
  readonly #launches = new Map<number, LaunchState>();
  readonly #blocks = new Map<number, BlockState>();
  /** From the first one on that may still be asked for. */
  #threads: (Actor | undefined)[] = [];
  #firstThread = 0;
  readonly #actors: (Actor | PastThreads)[] = [];
  #sweepAt = fewActors;
  readonly #shadows: (Shadow | undefined)[] = [];
  /** The effects of statements, packed: each does the same whenever it runs. */
  readonly #packed: { readonly form: DetectedForm; readonly meta: number }[] = [];
  /** A ring of the latest. */
  readonly #observations: Observation[] = [];
  #observed = 0;
  #sequence = 0;
  readonly #fences = new sync.FenceOrder();
  readonly #reports: RaceReports;
  readonly #stale: StaleReads;
  /** The latest store that came before others. */
  #behind: Version | null = null;

  readonly #launchesFence: boolean;
  readonly #barriersCarry: boolean;
  readonly #placesOrder: boolean;
  readonly #volatileGoesOn: boolean;
  /** Where launches end with a fence: loads that were over when a thread of the rank, which has ended, saw a write behind them. */
  readonly #readsOver = new Map<number, Clock>();

  constructor(options: DetectorOptions) {
    const { assume = [] } = options;
    this.#launchesFence = assume.includes('launches');
    this.#barriersCarry = assume.includes('barriers');
    this.#placesOrder = assume.includes('places');
    this.#volatileGoesOn = assume.includes('volatile');
    this.#reports = new RaceReports(options, this.#observations);
    this.#stale = new StaleReads(options, this.#observations);
  }

  get findings(): readonly Finding[] {
    return this.#reports.findings;
  }

  /** The loads of this run that read something older than what was there, for explaining what followed from it. */
  get staleReads(): readonly StaleRead[] {
    return this.#stale.reports();
  }

  streamCreated(stream: number, rank: number): void {
    this.#streams.set(stream, new StreamState(this.#streamCount++, stream, rank));
  }

  /** Stream operations other than launches: copies and fills, by the host through the stream. */
  streamAccess(
    stream: number,
    kind: 'read' | 'write',
    buffer: BufferInfo,
    offset: number,
    bytes: number,
    origin: Origin | null = null,
  ): void {
    if (bytes === 0) return;
    const state = this.#stream(stream);
    const block = new BlockState(++this.#sequence, ++state.step, state, null, 0);
    block.origin = origin;
    const actor = this.#actor(block, 0, null, state.now);
    const meta = packAccess({ kind, order: 'weak', scope: 'sys', bytes }, noSite);
    this.#shadow(buffer).weak(actor, actor, meta, offset, bytes);
    state.now = state.now.withCompleted(state.index, state.step);
    state.settled = state.now;
  }

  /** All that the stream has completed, for those that await the event. */
  eventRecorded(stream: number): Clock {
    return this.#stream(stream).now;
  }

  /** The host of `rank` has awaited everything on the stream. Work that it enqueues later, on any stream, is after it. */
  hostSynchronized(stream: number, rank: number): void {
    this.hostHeard(rank, this.#stream(stream).now);
  }

  /**
   * A thread of a host begins; its accesses of mapped memory are told by `access`. It starts behind what the host program
   * of the rank knows and did. That program itself is the one without a name; all others end with `hostThreadEnded`.
   */
  hostThreadStarted(thread: number, rank: number, name: string | null): void {
    const stream = new StreamState(this.#streamCount++, noStream, rank, true);
    const actor = this.#aside(stream, name ?? 'the host', this.hostKnows(rank));
    this.#threads[thread - this.#firstThread] = actor;
    if (name === null) this.#hostPrograms.set(rank, actor);
  }

  /** The host program has waited for the thread's end. */
  hostThreadEnded(thread: number, rank: number): void {
    this.hostHeard(rank, release(this.#thread(thread)));
  }

  /** The knowledge and deeds of the host program of `rank` so far; the machine keeps it from when something is enqueued to when it begins. */
  hostKnows(rank: number): Clock {
    const program = this.#hostPrograms.get(rank);
    return program === undefined ? (this.#hosts.get(rank) ?? nothing) : release(program);
  }

  /** The host of `rank` has heard of that, from hosts or from its GPU. */
  hostHeard(rank: number, known: Clock): void {
    const program = this.#hostPrograms.get(rank);
    if (program === undefined) this.#hosts.set(rank, this.hostKnows(rank).join(known));
    else program.learn(known);
  }

  /** The stream goes on behind that: an event, or what the host knew when it enqueued what comes next. */
  streamHeard(stream: number, known: Clock): void {
    const state = this.#stream(stream);
    state.now = state.now.join(known);
    state.settled = state.settled.join(known);
  }

  launchStarted(
    launch: number,
    stream: number,
    info: {
      rank: number;
      kernel: string;
      grid: number;
      block: number;
      programmatic: boolean;
      origin?: Origin | null;
    },
  ): void {
    const state = this.#stream(stream);
    if (!info.programmatic) state.settled = state.now;
    state.handedOn = Clock.joinAll([state.handedOn, ...(state.last?.released ?? [])]);
    const started = new LaunchState(
      state,
      ++state.step,
      info.kernel,
      info.programmatic ? state.settled.join(state.handedOn) : state.now,
      info.programmatic ? state.settled : null,
    );
    started.origin = info.origin ?? null;
    state.running.push(started);
    state.last = started;
    this.#launches.set(launch, started);
  }

  blockStarted(block: number, launch: number, index: number, firstThread: number, threads: number): void {
    const owner = this.#launches.get(launch)!;
    const state = new BlockState(++this.#sequence, owner.step, owner.stream, owner, index);
    const actors: Actor[] = [];
    for (let lane = 0; lane < threads; lane++) {
      const actor = this.#actor(state, lane, null, owner.start);
      actor.settled = owner.settled;
      if (this.#launchesFence) sync.enter(actor);
      actors.push(actor);
      this.#threads[firstThread + lane - this.#firstThread] = actor;
    }
    state.threads = actors;
    state.firstThread = firstThread;
    this.#blocks.set(block, state);
  }

  blockEnded(block: number): void {
    const state = this.#blocks.get(block)!;
    const launch = state.launch!;
    if (this.#launchesFence) {
      const known = this.#readsOver.get(state.rank) ?? nothing;
      this.#readsOver.set(state.rank, Clock.joinAll([known, ...state.threads.flatMap(sync.leave)]));
    }
    launch.end = launch.end.join(knownTogether(state.threads));
    launch.done.push(state);
    for (const thread of state.threads) thread.retire();
    this.#blocks.delete(block);
    // Copies go on, and are known by their thread.
    if (state.threads.some(({ hasCopied }) => hasCopied)) return;
    const past = new PastThreads(state);
    this.#actors.fill(past, past.warp, past.warp + past.count);
    const first = state.firstThread - this.#firstThread;
    this.#threads.fill(undefined, first, first + past.count);
  }

  launchEnded(launch: number): void {
    const ended = this.#launches.get(launch)!;
    ended.ended = true;
    this.#launches.delete(launch);
    // A stream finishes in order, even where a programmatic launch has overtaken its predecessor.
    const { stream } = ended;
    while (stream.running[0]?.ended) {
      const done = stream.running.shift()!;
      stream.now = stream.now.join(done.end).withCompleted(stream.index, done.step);
    }
  }

  awaitPrevious(thread: number): void {
    const actor = this.#thread(thread);
    const { owner, step } = actor.block;
    const previous = owner.running.find((launch) => launch.step === step - 1);
    const now = previous?.ended ? owner.now.join(previous.over) : owner.now;
    const { clock, relied } = actor.block.launch!.awaits(now);
    actor.awaited = clock;
    actor.learn(clock);
    actor.own = actor.own.relying(relied);
    actor.settled = null;
  }

  /**
   * Orders nothing of this launch: of that only `awaitPrevious` of the next one does. But the next one starts behind
   * this, and so behind all that this thread has awaited.
   */
  releaseNext(thread: number): void {
    const { awaited, block } = this.#thread(thread);
    if (awaited !== null) block.launch!.released.add(awaited);
  }

  /**
   * One access by one thread, before it changes memory. `older`: a load reads not what is there but that entry, counted
   * from 1, of `olderValues`; a store comes before so many of `newerStores`.
   */
  access(
    thread: number,
    form: DetectedForm,
    site: SiteId,
    buffer: BufferInfo,
    offset: number,
    older = 0,
  ): void {
    this.#access(this.#thread(thread), form, site, buffer, offset, older);
  }

  #access(
    me: Actor,
    form: DetectedForm,
    site: SiteId,
    buffer: BufferInfo,
    offset: number,
    older: number,
  ): void {
    const { kind, order, scope, bytes } = form;
    const shadow = this.#shadow(buffer);
    const meta = this.#pack(form, site);
    me.touched = true;
    if (order === 'weak') {
      shadow.weak(me, me, meta, offset, bytes);
      return;
    }
    const cells = shadow.cells(offset, bytes);
    const location = locationOf(cells);
    const acquires = order === 'acquire' || order === 'acq_rel';
    const newest = location?.newest ?? null;
    const behind = kind === 'write' ? older : 0;
    const read = older === behind ? newest : location!.olderFor(me)[older - 1]!;
    const before = kind === 'write' ? null : (read?.write ?? null);
    if (location !== null && kind !== 'write') {
      const linked = before !== null && this.#observe(me, location, before, meta, acquires);
      if (linked && kind === 'read') location.saw(read!, me, meta);
      if (acquires && location.is(offset, bytes)) sync.acquireEarlier(me, location, reachOf[scope]);
    }
    shadow.strong(cells, { me, as: me, meta, offset });
    if (read !== newest) {
      read!.misled(me);
      this.#stale.add(me, meta, location!, read!, buffer);
      // So that what explains this is told from what comes later.
      me.endEpoch();
    }
    if (kind === 'read') return;
    const releases = order === 'release' || order === 'acq_rel';
    const target = this.#location(cells, offset, bytes);
    const words = wordsAt(buffer.i32, offset, bytes);
    const stored = target.store(sync.publish(me, target, meta, releases, before), words, behind);
    if (behind === 0) return;
    this.#behind = stored;
    this.#stale.add(me, meta, target, stored, buffer);
  }

  /** An access has come behind a store of its thread that stands behind it. */
  cameLate(
    thread: number,
    late: { readonly form: DetectedForm; readonly site: SiteId },
    passed: { readonly form: DetectedForm; readonly site: SiteId },
    buffer: BufferInfo,
    offset: number,
  ): void {
    const [one, other] = [late, passed].map(({ form, site }) => this.#pack(form, site));
    this.#stale.came(this.#thread(thread), one!, other!, buffer, offset);
  }

  /** How many stores that the run has made an atomic store may come before. */
  newerStores(thread: number, buffer: BufferInfo, offset: number, bytes: number): number {
    const location = locationOf(this.#shadow(buffer).cells(offset, bytes));
    if (location === null || !location.is(offset, bytes)) return 0;
    return location.newerFor(this.#thread(thread));
  }

  /** The value that the latest of the stores before others has stored. */
  cameBehind(words: readonly number[]): void {
    this.#behind!.words = words;
  }

  /** The older values that an atomic load may read: the words that hold those bytes, latest first. */
  olderValues(
    thread: number,
    buffer: BufferInfo,
    offset: number,
    bytes: number,
  ): readonly { readonly words: readonly number[] }[] {
    const location = locationOf(this.#shadow(buffer).cells(offset, bytes));
    if (location === null || !location.is(offset, bytes)) return nothingOlder;
    return location.olderFor(this.#thread(thread));
  }

  /** True if the read and the write are of the same bytes, and each one's scope includes the other. */
  #observe(me: Actor, location: Location, write: AtomicWrite, meta: number, acquires: boolean): boolean {
    const number = this.#observed++;
    this.#observations[number % observationsKept] = sync.observe(me, location, write, meta, acquires, number);
    return sync.mutual(write.meta, meta, distance(write.moment.by, me));
  }

  /** The location of exactly these bytes, for a store. */
  #location(cells: readonly Cell[], offset: number, bytes: number): Location {
    const known = locationOf(cells);
    if (known?.is(offset, bytes)) return known;
    const location = new Location(offset, bytes);
    for (const cell of cells) cell.location = location;
    return location;
  }

  fence(thread: number, order: FenceKind, scope: Scope): void {
    const me = this.#thread(thread);
    const reach = reachOf[scope];
    if (order === 'seq_cst') this.#fences.pass(me, reach);
    else ({ acquire: sync.acquireFence, release: sync.releaseFence, acq_rel: sync.fence })[order](me, reach);
  }

  /** Asynchronous operations that come after this may rely on what the thread knows and did in such memory. */
  proxyFence(thread: number, path: ProxyPath): void {
    this.#thread(thread).fenceProxy(path);
  }

  fenceTensor(thread: number, side: 'before' | 'after'): void {
    this.#thread(thread).fenceTensor(side);
  }

  blockBarrier(block: number): void {
    this.#meet(this.#blocks.get(block)!.threads, 'block');
  }

  /** Blocks that have started are a cluster; such blocks have met. */
  clusterStarted(ids: readonly number[]): void {
    const cluster = ids.map((id) => this.#blocks.get(id)!);
    for (const block of cluster) block.cluster = cluster;
  }

  /** `relaxed`: threads whose coming releases no more than a fence before it has. */
  clusterMet(ids: readonly number[], relaxed: readonly number[]): void {
    const blocks = ids.map((id) => this.#blocks.get(id)!);
    if (relaxed.length > 0) {
      const quiet = new Set(relaxed.map((id) => this.#thread(id)));
      const released = blocks.flatMap(({ threads }) =>
        threads.flatMap((thread) => (quiet.has(thread) ? fenced(thread) : [release(thread)])),
      );
      const all = Clock.joinAll([nothing, ...released]);
      for (const { threads } of blocks) for (const thread of threads) thread.learn(all);
      return;
    }
    for (const id of ids) this.blockBarrier(id);
    // All of a block know the same now: one speaks for it.
    const known = blocks.map(({ threads }) => {
      threads[0]!.touched = true;
      return release(threads[0]!);
    });
    for (const [i, { threads }] of blocks.entries())
      for (const thread of threads)
        for (const [j, clock] of known.entries()) if (i !== j) thread.learn(clock);
  }

  /** Nobody can go on but these: each comes behind what all in its scope have done. */
  quiet(threads: readonly { readonly id: number; readonly quietScope: Scope }[]): void {
    const all = [...this.#blocks.values()];
    const known = new Map<string, Clock>();
    for (const { id, quietScope } of threads) {
      const me = this.#thread(id);
      const reach = reachOf[quietScope];
      const there = all.filter(({ threads }) => distance(threads[0]!, me) <= reach);
      const key = `${quietScope} ${there.map(({ step, index }) => `${step}.${index}`)}`;
      const clock = getOrMake(known, key, () =>
        Clock.joinAll([nothing, ...there.flatMap(({ threads }) => threads.map(release))]),
      );
      me.learn(clock);
    }
  }

  /** Threads of a block met: whole warps of it, or lanes of one. */
  groupMet(are: 'warps' | 'lanes', there: readonly { readonly id: number }[]): void {
    const threads = there.map(({ id }) => this.#thread(id));
    this.#meet(threads, are);
  }

  /** The warp whose first thread is `firstLane` met at a warp barrier. */
  warpMet(firstLane: number, lanes: number): void {
    // Shuffles come in rows; only the first after an access has anything to order.
    let idle = true;
    for (let i = firstLane; idle && i < firstLane + lanes; i++) idle = this.#thread(i).idleSinceMeeting;
    if (!idle)
      this.#meet(
        Array.from({ length: lanes }, (_, lane) => this.#thread(firstLane + lane)),
        'warps',
      );
  }

  #meet(threads: readonly Actor[], are: 'block' | 'warps' | 'lanes'): void {
    if (this.#barriersCarry) sync.shareFences(threads);
    if (this.#volatileGoesOn) sync.shareReads(threads);
    meet(threads, are);
  }

  /** A copy, or a product, that the thread issues reads or writes there; `map`: a bulk copy reads its tensor map. `own`: by the thread's own path. */
  copyIssued(
    thread: number,
    engine: CopyEngine | 'map',
    group: number,
    does: CopyPart['does'],
    { buffer, offset }: BufferPlace,
    bytes: number,
    site: SiteId,
    own = false,
  ): void {
    if (bytes === 0) return;
    const me = this.#thread(thread);
    const agents = me.agents[engine] ?? {
      reads: this.#actor(me.block, me.lane, { engine, does: 'read' }, nothing),
      writes: this.#actor(me.block, me.lane, { engine, does: 'write' }, nothing),
      proxy: hasAsyncProxy(engine) ? new Actor(noActor, me.block, me.lane, null, nothing) : null,
    };
    me.agents = { ...me.agents, [engine]: agents };
    agents.reads.epoch = group + 1;
    agents.writes.epoch = group + 1;
    me.touched = true;
    const meta = packAccess({ kind: does, order: 'weak', scope: 'cta', bytes }, site);
    // Products of tensor memory follow each other.
    const before = engine === 'tcgen05' ? [agents.reads.agentKey, agents.writes.agentKey] : [];
    const { proxy } = agents;
    const knows = own
      ? proxy?.standForTensorOf(me, before, group + 1)
      : proxy?.standForProxyOf(me, engine === 'map' ? 'map' : buffer.space);
    this.#shadow(buffer).weak(
      knows ?? me,
      does === 'read' ? agents.reads : agents.writes,
      meta,
      offset,
      bytes,
    );
  }

  /** For `thread`, all groups of `issuer` numbered up to `group` are complete (or only their reads). */
  copiesAwaited(
    thread: number,
    engine: CopyEngine,
    group: number,
    readsOnly: boolean,
    issuer: number = thread,
  ): void {
    const me = this.#thread(thread);
    const keys = keysOf(this.#thread(issuer), engine, readsOnly);
    if (engine === 'tmem') me.moved = me.moved.withAgents(keys, group + 1);
    else me.own = me.own.withAgents(keys, group + 1);
    me.touched = true;
  }

  /** A copy that the thread issues will arrive at that mbarrier, which it therefore has to know. */
  mbarrierNamed(thread: number, { buffer, offset }: BufferPlace, site: SiteId): void {
    const me = this.#thread(thread);
    me.touched = true;
    const shadow = this.#shadow(buffer);
    const scope = reachOfMBarriers(me.block);
    const meta = packAccess({ kind: 'read', order: 'relaxed', scope, bytes: mbarrierBytes }, site);
    shadow.strong(shadow.cells(offset, mbarrierBytes), { me, as: me, meta, offset });
  }

  /** What a thread did and knows: products come behind it, and hand it on, as behind a fence. */
  released(thread: number): ReleaseHead {
    const me = this.#thread(thread);
    me.fenceTensor('before');
    const head = new ReleaseHead(me, sys);
    me.endEpoch();
    return head;
  }

  /** The copies of a thread up to a group have arrived at an mbarrier: who acquires it from now on sees them. */
  copiesArrived(
    thread: number,
    engine: CopyEngine,
    group: number,
    { buffer, offset }: BufferPlace,
    site: SiteId,
    behind: ReleaseHead | null = null,
  ): void {
    // Of a launch that is over, nobody is left to see them.
    const issuer = this.#threads[thread - this.#firstThread];
    const agents = issuer?.agents[engine];
    if (issuer === undefined || agents === undefined) return;
    const cells = this.#shadow(buffer).cells(offset, mbarrierBytes);
    const scope = reachOfMBarriers(issuer.block);
    const meta = packAccess({ kind: 'update', order: 'release', scope, bytes: mbarrierBytes }, site);
    const location = this.#location(cells, offset, mbarrierBytes);
    const keys = keysOf(issuer, engine, false);
    const write = sync.arrive(agents, keys, group + 1, meta, location.newest.write, behind);
    location.store(write, wordsAt(buffer.i32, offset, mbarrierBytes));
  }

  /** A thread, of a host or of a kernel, posts a write to a network; the write does what it does from now on, for itself. */
  networkPosted(write: number, by: number): void {
    const poster = this.#thread(by);
    poster.touched = true;
    const { epoch } = poster;
    const { rank } = poster.block;
    const make = (): StreamState => new StreamState(this.#streamCount++, noStream, rank, true);
    const stream = getOrMake(this.#networks, rank, make);
    const known = release(poster);
    this.#networkWrites.set(write, { nic: this.#aside(stream, theNetwork, known), poster, epoch });
  }

  /** Who acts in no kernel, from here on and knowing that. */
  #aside(stream: StreamState, name: string, known: Clock): Actor {
    const launch = new LaunchState(stream, ++stream.step, name, known, null);
    return this.#actor(new BlockState(++this.#sequence, launch.step, stream, launch, 0), 0, null, known);
  }

  /** Whether the thread comes behind the posting of a write. */
  knowsPosted(thread: number, write: number): boolean {
    const { poster, epoch } = this.#networkWrites.get(write)!;
    return happenedBefore(poster, epoch, this.#thread(thread));
  }

  networkMoved(write: number, source: BufferPlace, target: BufferPlace, bytes: number, site: SiteId): void {
    const { nic } = this.#networkWrites.get(write)!;
    nic.touched = true;
    for (const kind of ['read', 'write'] as const) {
      const { buffer, offset } = kind === 'read' ? source : target;
      const meta = packAccess({ kind, order: 'weak', scope: 'sys', bytes }, site);
      this.#shadow(buffer).weak(nic, nic, meta, offset, bytes);
    }
  }

  /** A thread of a host hears that the write has come: it knows all that led to it, and what the write did. */
  networkArrived(write: number, at: number): void {
    const { nic } = this.#networkWrites.get(write)!;
    this.#networkWrites.delete(write);
    this.#thread(at).learn(release(nic));
    nic.retire();
  }

  /** A write changes a word, atomically; as a release it comes behind others that have landed, and what they did. */
  networkSignalled(
    write: number,
    behind: readonly number[],
    form: DetectedForm,
    site: SiteId,
    { buffer, offset }: BufferPlace,
  ): void {
    const { nic } = this.#networkWrites.get(write)!;
    for (const one of behind) nic.learn(release(this.#networkWrites.get(one)!.nic));
    this.#access(nic, form, site, buffer, offset, 0);
  }

  /** Nobody reaches it any more. */
  bufferGone({ id }: BufferInfo): void {
    this.#shadows[id] = undefined;
  }

  #stream(id: number): StreamState {
    return this.#streams.get(id)!;
  }

  #thread(id: number): Actor {
    return this.#threads[id - this.#firstThread]!;
  }

  /** Forgets actors that act no more and that the memory of accesses does not name; others get new numbers, and warps stay together. */
  #sweep(): void {
    const actors = this.#actors;
    const isOfUse = new Uint8Array(actors.length);
    for (const { warp, isOver } of actors) if (!isOver) isOfUse[warp] = 1;
    let records = 0;
    for (const shadow of this.#shadows)
      records +=
        shadow?.renumber((index) => {
          isOfUse[actors[index]!.warp] = 1;
          return index;
        }) ?? 0;
    const moved = new Int32Array(actors.length);
    let kept = 0;
    for (let index = 0; index < actors.length; ) {
      const actor = actors[index]!;
      const end = index + actor.count;
      if (isOfUse[actor.warp] === 1) {
        actor.moveTo(kept);
        for (; index < end; index++) {
          moved[index] = kept;
          actors[kept++] = actor;
        }
      }
      index = end;
    }
    actors.length = kept;
    for (const shadow of this.#shadows) shadow?.renumber((index) => moved[index]!);
    // So that it costs little beside what the actors did.
    this.#sweepAt = Math.max(fewActors, 2 * kept, kept + (records >> 3));
    const asked = this.#threads.findIndex(
      (thread) => thread !== undefined && thread.block.launch?.ended !== true,
    );
    const gone = asked < 0 ? this.#threads.length : asked;
    this.#threads = this.#threads.slice(gone);
    this.#firstThread += gone;
  }

  #actor(block: BlockState, lane: number, copies: CopyPart | null, known: Clock): Actor {
    if (this.#actors.length >= this.#sweepAt) this.#sweep();
    const actor = new Actor(this.#actors.length, block, lane, copies, known);
    this.#actors.push(actor);
    return actor;
  }

  #pack(form: DetectedForm, site: SiteId): number {
    const known = this.#packed[site];
    if (known?.form === form) return known.meta;
    const meta = packAccess(form, site);
    this.#packed[site] = { form, meta };
    return meta;
  }

  /** By one of the rules that the run takes for granted. */
  #isOrderedToday({ by, epoch, meta }: Made, { me, as, meta: now }: Access, { location }: Cell): boolean {
    if (isRead(meta)) {
      const over = this.#readsOver.get(as.block.rank);
      return over !== undefined && isKnown(over, by, epoch);
    }
    if (!this.#placesOrder || !isAtomic(meta) || isAtomic(now) || isRead(now)) return false;
    return location?.newest.isKnownTo(me) === true;
  }

  #shadow(buffer: BufferInfo): Shadow {
    const shadow = this.#shadows[buffer.id];
    if (shadow !== undefined) return shadow;
    const made = new Shadow(this.#actors, (earlier, now, cell) => {
      if (!this.#isOrderedToday(earlier, now, cell)) this.#reports.race(earlier, now, buffer, cell);
    });
    this.#shadows[buffer.id] = made;
    return made;
  }
}

/** The agents of a thread whose work is done with its copies. */
function keysOf({ agents }: Actor, engine: CopyEngine, readsOnly: boolean): readonly number[] {
  const { reads, writes } = agents[engine] ?? {};
  const maps = engine === 'bulk' ? agents.map?.reads : undefined;
  return [reads, readsOnly ? undefined : writes, maps].flatMap((one) =>
    one === undefined ? [] : [one.agentKey],
  );
}

/** All that a fence of the thread has released to its GPU. */
const fenced = ({ sync }: Actor): Clock[] =>
  [sync?.fences[gpu], sync?.fences[sys]].flatMap((head) => (head ? [head.clock] : []));

/** The deeds and knowledge of a thread so far, for the one that is told. */
function release(thread: Actor): Clock {
  const { clock } = new ReleaseHead(thread, sys);
  thread.endEpoch();
  return clock;
}

/** In a cluster all of its blocks see an mbarrier. */
const reachOfMBarriers = ({ cluster }: BlockState): 'cta' | 'gpu' => (cluster.length > 1 ? 'gpu' : 'cta');

/** All of a block meet, or whole warps of it, or lanes that may not be all of their warp: they know the same from now on. */
function meet(threads: readonly Actor[], are: 'block' | 'warps' | 'lanes'): void {
  let { own } = threads[0]!;
  let epoch = 0;
  for (const thread of threads) {
    epoch = Math.max(epoch, thread.epoch);
    own = joinBlocks(own, thread.own);
  }
  const known = knownTogether(threads);
  if (are === 'block') own = own.withFloor(epoch);
  let warp = -1;
  for (const { lane } of are === 'warps' ? threads : []) {
    if (lane >> 5 === warp) continue;
    warp = lane >> 5;
    own = own.withWarp(warp, epoch);
  }
  for (const { lane } of are === 'lanes' ? threads : []) own = own.withLane(lane, epoch);
  for (const thread of threads) thread.meet(known, own, epoch, are !== 'lanes');
}

/** Mostly they all know the same. */
function knownTogether(threads: readonly Actor[]): Clock {
  const [base] = threads[0]!.knownParts;
  const alike = threads.every((thread) => thread.knowsJust(base!));
  return alike ? base! : Clock.joinAll(threads.flatMap((thread) => thread.knownParts));
}
