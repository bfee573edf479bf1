/**
 * Launches, blocks and threads, and what a thread can do by itself. Generated code calls the methods of `Thread`;
 * everything that involves other threads goes through the `ThreadServices`, which the machine implements.
 */
import { HeddleError } from '../../base/errors.js';
import { matrixWords, type Scope, type Tile } from '../../lang/index.js';
import type { SimTensor } from './boxes.js';
import {
  type Compiled,
  type Condition,
  holds,
  type IndexedPlace,
  isPtx,
  pause,
  type StatementAccess,
  type StatementWait,
} from './compiled.js';
import { Copies, requireInitialised } from './copies.js';
import {
  type AccessReport,
  type CopyEngine,
  type FenceKind,
  type Origin,
  originOf,
  type ProxyPath,
  type SiteId,
} from './detector/detector.js';
import { wordsAt } from './detector/location.js';
import type { Detector } from './detector/race-detector.js';
import { inWordsOf } from './detector/words.js';
import { factorOf } from './factors.js';
import type { NetworkServices } from './flights.js';
import { Groups } from './groups.js';
import { type LaneMeeting, LaneMeetings, type Open } from './lanes.js';
import { type MBarrier, MBarriers, mbarrierBytes, mostCounted } from './mbarriers.js';
import { type AddressSpace, type ByteAt, SimBuffer } from './memory.js';
import { type Factors, Products, type WarpProducts } from './products.js';
import { clusterRank, mostShared, windows } from './ptx/addresses.js';
import { type Address, printed } from './ptx/printf.js';
import type { Puts } from './puts.js';
import { WarpRegisters } from './registers.js';
import { Task } from './schedule.js';
import type { AccessAt, Spins } from './spins.js';
import {
  copyToTensorMemory,
  formOf,
  multiplyInTensorMemory,
  TensorMemory,
  tensorMemoryBytes,
} from './tensor-core.js';
import { tensorAt } from './tensor-maps.js';

const groupThreads = 128;

/** The services of the machine that threads need. */
export interface ThreadServices extends NetworkServices {
  /** Checked mode: who looks at memory until it changes. */
  readonly spins: Spins;
  readonly puts: Puts;
  /** Where atomic loads leave what they read. */
  readonly seen: SimBuffer;
  newBuffer(rank: number, bytes: number, purpose: string): SimBuffer;
  /** The time, after a thread has gone so many times round. */
  clock(turns: number): bigint;
  print(line: string): void;
  sleep(thread: Thread, nanoseconds: number): void;
  /** The block has called releaseNext or ended. */
  blockReleased(block: Block): void;
}

interface LaunchStream extends Task {
  readonly key: string;
  kick(): void;
  launchEnded(launch: SimLaunch): void;
}

export class SimLaunch {
  startStep = 0;
  endStep = 0;
  ended = false;
  /** A thread that goes round a loop so often without a pause never comes out. */
  mostTurns = 4_000_000;
  /** The call of the program that enqueued it. */
  origin: Origin | null = null;
  error: HeddleError | null = null;
  nextBlock = 0;
  liveBlocks = 0;
  /** Blocks that have called releaseNext or ended. */
  releasedBlocks = 0;
  /** Threads in awaitPrevious of the next launch. */
  readonly followers: Thread[] = [];

  constructor(
    readonly id: number,
    readonly stream: LaunchStream,
    readonly compiled: Compiled,
    /** The rank that the kernel sees. */
    readonly rank: number,
    readonly grid: number,
    readonly block: number,
    /** Threads of a block along x, y and z, then blocks of the grid. */
    readonly extents: readonly number[],
    readonly args: readonly unknown[],
    /** The machine's number of this module's first site. */
    readonly firstSite: SiteId,
    /** The launch before it on its stream, if that is still running. */
    public previous: SimLaunch | null,
  ) {}

  get home(): number {
    return this.stream.rank;
  }

  get kernel(): string {
    return this.compiled.module.name;
  }

  get released(): boolean {
    return this.releasedBlocks === this.grid;
  }

  /** The place in the grid of the n-th block that starts: those of a cluster start together. */
  placeOf(n: number): number {
    const { module } = this.compiled;
    if (module.cluster === 1 || !isPtx(module)) return n;
    let [cluster, block, step, place] = [Math.floor(n / module.cluster), n % module.cluster, 1, 0];
    for (const [axis, along] of module.clusterExtents.entries()) {
      const blocks = this.extents[3 + axis]!;
      const clusters = blocks / along;
      place += step * ((cluster % clusters) * along + (block % along));
      [cluster, block, step] = [Math.floor(cluster / clusters), Math.floor(block / along), step * blocks];
    }
    return place;
  }
}

export class Block {
  threads: Thread[] = [];
  live = 0;
  arrived = 0;
  released = false;
  /** Operands and results of operations of warps: `matrixWords` words a thread. */
  readonly words: Int32Array | null;
  /** Barriers of groups of its warps. */
  groups: Groups<Thread> | null = null;
  /** Checked mode: a word for each, by which those who wait learn of those who only arrive. */
  arrivals: SimBuffer | null = null;
  mbarriers: MBarriers | null = null;
  /** The blocks of its cluster, by rank in it: itself alone, where there are no clusters. */
  cluster: readonly Block[] = [this];
  /** Products of tiles that are under way, by warp. */
  readonly products: WarpProducts[] = [];
  tensorMemory: TensorMemory | null = null;
  /** The number of registers of each thread, where warp groups give and take. */
  registers: WarpRegisters | null = null;
  /** At which side of fences its threads stay, if at one. */
  stays: number | null = null;
  /** Operations of its warps for which lanes wait. */
  readonly lanesMet = new LaneMeetings(this.threads);

  constructor(
    readonly id: number,
    readonly launch: SimLaunch,
    readonly index: number,
    readonly shared: readonly SimBuffer[],
    readonly firstThread: number,
  ) {
    this.words = launch.compiled.usesWords ? new Int32Array(launch.block * matrixWords) : null;
  }
}

/** The word or phase for which a parked thread waits; of a phase `wanted` is the parity. */
export interface Wait extends StatementWait, Condition, AccessAt {
  /** Microseconds; 0 looks once. */
  readonly limit: number;
  /** For how many of them nobody in the machine could have ended it. */
  waited: number;
  /** The mbarrier whose phase it waits for; null for a place in memory. */
  readonly mbarrier: MBarrier | null;
  /** The machine has decided that nobody will end it. */
  expired: boolean;
}

/** An access that comes later than it stands. */
interface Late extends AccessAt {
  /** The last store or update that came before it. */
  passed: StatementAccess | null;
}

/** The facts about an access in a finding, besides who made it. */
type Reported = Pick<AccessReport, 'kind' | 'order' | 'scope'> & Pick<StatementAccess, 'site'>;

type ThreadState =
  | 'ready'
  | 'barrier'
  | 'cluster'
  | 'group'
  | 'lanes'
  | 'parked'
  | 'previous'
  | 'quiet'
  | 'sleep'
  | 'ended';

export class Thread extends Task {
  readonly isThread = true;
  iterator: Iterator<number, void> | undefined;
  state: ThreadState = 'ready';
  /** It waits for the quiet of these. */
  quietScope: Scope = 'cta';
  site = 0;
  wait: Wait | null = null;
  /** How often it has gone round in loops since its last pause. */
  turns = 0;
  /** The threads that its coming to a barrier of a group lets go on. */
  released: readonly Thread[] = [];
  satisfied = false;
  /** It comes to a barrier of its cluster and releases nothing. */
  arrivesRelaxed = false;
  /** Its vote at a barrier at which threads vote, and how many say yes. */
  says = false;
  yes = 0;
  /** The part that it has brought to a product of tiles. */
  factors: Factors | null = null;
  /** The meeting of lanes to which it has come last, if it waits there. */
  meeting: Open | null = null;
  /** The upper word of the time that `clockWords` gave. */
  clockHigh = 0;
  #local: SimBuffer | null = null;
  #zeros: SimBuffer | null = null;
  #said = '';
  /** The value that an atomic load has read in checked mode, at the offset that it has within 16 bytes. */
  readonly seen: SimBuffer;
  readonly #copies: { [E in CopyEngine]?: Copies } = {};
  readonly #sums: (Float32Array | Int32Array)[] = [];
  #products: Products | null = null;
  /** Where its store is about to come before others, and what they left there. */
  overtaken: { buffer: SimBuffer; offset: number; bytes: number; words: readonly number[] } | null = null;
  readonly #machine: ThreadServices;

  constructor(
    public block: Block,
    public index: number,
    readonly rank: number,
    machine: ThreadServices,
  ) {
    super();
    this.#machine = machine;
    this.seen = machine.seen;
  }

  /** Becomes a thread of another block: objects that have ended are used again. */
  become(block: Block, index: number): void {
    this.block = block;
    this.index = index;
    this.state = 'ready';
    this.priority = 0;
    this.#said = '';
    this.chosen = 0;
  }

  /** Unique in the run. */
  get id(): number {
    return this.block.firstThread + this.index;
  }

  /** Checks an access and tells the detector. False where it must not happen. */
  access(access: StatementAccess, buffer: SimBuffer, offset: number): boolean {
    if (!this.mayAccess(access, buffer, offset)) return false;
    this.#tell(access, buffer, offset, 0);
    if (access.kind === 'read') {
      this.#machine.spins.glance(this, access, buffer, offset);
    } else {
      this.overwrites(access, buffer, offset, access.bytes);
      this.#machine.spins.stir();
    }
    return true;
  }

  /** An atomic store or update: like `access`. */
  change(access: StatementAccess, buffer: SimBuffer, offset: number): boolean {
    if (!this.mayAccess(access, buffer, offset)) return false;
    const { bytes } = access;
    const newer =
      access.kind === 'write' ? this.#machine.detector!.newerStores(this.id, buffer, offset, bytes) : 0;
    const behind = newer === 0 ? 0 : this.#machine.schedule.pickStore(1 + newer, access.site);
    if (behind > 0) this.overtaken = { buffer, offset, bytes, words: wordsAt(buffer.i32, offset, bytes) };
    this.#tell(access, buffer, offset, behind);
    this.overwrites(access, buffer, offset, access.bytes);
    const { spins } = this.#machine;
    if (access.kind === 'update') spins.look(this, access, buffer, offset, buffer.i32[offset >>> 2]!);
    spins.writes(buffer, offset, access.bytes);
    return true;
  }

  /** Puts its last store before what was there, which stays. */
  giveWay(): void {
    const { buffer, offset, bytes, words } = this.overtaken!;
    this.overtaken = null;
    this.#machine.detector!.cameBehind(wordsAt(buffer.i32, offset, bytes));
    buffer.i32.set(words, offset >>> 2);
  }

  /** An atomic load: like `access`, and puts what it reads into `seen`. */
  look(access: StatementAccess, buffer: SimBuffer, offset: number): boolean {
    if (!this.mayAccess(access, buffer, offset)) return false;
    const { bytes } = access;
    const older = this.#machine.detector!.olderValues(this.id, buffer, offset, bytes);
    const choice = older.length === 0 ? 0 : this.#machine.schedule.pickStore(1 + older.length, access.site);
    this.#see(buffer, offset, bytes, choice === 0 ? null : older[choice - 1]!.words);
    this.#tell(access, buffer, offset, choice);
    const value = this.seen.i32[((offset & 15) + bytes - 1) >>> 2]!;
    this.#machine.spins.look(this, access, buffer, offset, value);
    return true;
  }

  /** Whether an access comes later than it stands: the schedule's choice. Null if not. */
  defers(access: StatementAccess, buffer: SimBuffer, offset: number): Late | null {
    return this.#machine.schedule.pickStore(2) === 0 ? null : { access, buffer, offset, passed: null };
  }

  /** Whether an access touches the bytes of one that has waited; if not, it comes before that. */
  meets(late: Late, access: StatementAccess, buffer: SimBuffer, offset: number): boolean {
    const end = late.offset + late.access.bytes;
    if (buffer === late.buffer && offset < end && late.offset < offset + access.bytes) return true;
    if (access.kind !== 'read') late.passed = access;
    return false;
  }

  /**
   * Whether others pass it, before (1) or behind (2) a fence that has its place in the order of all: the schedule's choice, for
   * each block. So fences come in other orders than what stands behind them.
   */
  stays(where: 1 | 2): boolean {
    const { schedule } = this.#machine;
    this.block.stays ??= schedule.pickStore(3);
    return this.block.stays === where;
  }

  /** It comes when others have done much meanwhile. */
  lingers(nanoseconds = 1): number {
    this.#machine.sleep(this, nanoseconds);
    return pause.sleep;
  }

  cameLate({ access, passed, buffer, offset }: Late): void {
    const { firstSite } = this.block.launch;
    if (passed === null) return;
    const behind = { form: passed, site: firstSite + passed.site };
    this.#machine.detector!.cameLate(
      this.id,
      { form: access, site: firstSite + access.site },
      behind,
      buffer,
      offset,
    );
  }

  /** A compare-and-swap that found something else: it has read the newest, and written nothing. */
  missed(access: StatementAccess, buffer: SimBuffer, offset: number): boolean {
    if (!this.mayAccess(access, buffer, offset)) return false;
    this.#tell(access, buffer, offset, 0);
    this.#machine.spins.look(this, access, buffer, offset, buffer.i32[offset >>> 2]!);
    return true;
  }

  /** Puts what is there into `seen`, or what a load reads instead. */
  #see(buffer: SimBuffer, offset: number, bytes: number, instead: readonly number[] | null): void {
    const to = this.seen.i32;
    const first = (offset & 15) >>> 2;
    const words = bytes <= 4 ? 1 : bytes >>> 2;
    for (let i = 0; i < words; i++)
      to[first + i] = instead === null ? buffer.i32[(offset >>> 2) + i]! : instead[i]!;
  }

  #tell(access: StatementAccess, buffer: SimBuffer, offset: number, older: number): void {
    const { firstThread, launch } = this.block;
    const thread = firstThread + this.index;
    this.#machine.detector!.access(thread, access, launch.firstSite + access.site, buffer, offset, older);
  }

  mayAccess(access: StatementAccess, buffer: SimBuffer, offset: number): boolean {
    const { kind, bytes } = access;
    if (!isPlace(buffer, offset, bytes)) {
      this.refuse(access, buffer, offset);
      return false;
    }
    if (buffer.initialised === null) return true;
    // A read that was reported counts as written: the same bytes are reported once.
    if (kind === 'write' || !requireInitialised(this, this.#machine.log, access, buffer, offset))
      buffer.markInitialised(offset, bytes);
    return true;
  }

  refuse(access: StatementAccess, buffer: SimBuffer, offset: number): void {
    const { bytes } = access;
    if (Number.isNaN(offset)) return; // its index was outside its field, which has been said
    const outside = offset < 0 || offset + bytes > buffer.bytes || buffer.freed;
    this.#machine.log.add({
      kind: outside ? 'out-of-bounds' : 'misaligned',
      buffer: buffer.purpose,
      location: buffer.freed
        ? `${buffer.describe(offset)}, after it was freed`
        : outside
          ? buffer.describeOutside(offset, bytes)
          : `${buffer.describe(offset)}, not a multiple of ${bytes} bytes`,
      access: this.report(access),
    });
  }

  /** An index is outside its field: whatever it would have addressed is nowhere. */
  outside(
    { layout, field, before, dimensions, extents }: IndexedPlace,
    indices: readonly number[],
    site: number,
  ): number {
    const parts = indices.map((index, i) => {
      const name = dimensions[before + i];
      const shown = `${name === undefined ? '' : `${name} `}${index < 2 ** 31 ? index : index - 2 ** 32}`;
      return index < extents[i]! ? `[${shown}]` : `[${shown} of ${extents[i]}]`;
    });
    this.#machine.log.add({
      kind: 'out-of-bounds',
      buffer: layout,
      location: `${field}${'[…]'.repeat(before)}${parts.join('')}`,
      access: this.report({ kind: 'address', order: 'weak', scope: 'cta', site }),
    });
    return Number.NaN;
  }

  /** A pointer into a field of a window has left it: what it points at is nowhere. */
  strayed(field: string, all: number, bytes: number, within: number, site: number): number {
    if (Number.isNaN(within)) return within; // an index of it was outside, which has been said
    const last = within + bytes - 1;
    const kind = 'address';
    this.#machine.log.add({
      kind: 'out-of-bounds',
      buffer: field,
      location: `bytes ${within} to ${last} of its ${all}, by a pointer into it`,
      access: this.report({ kind, order: 'weak', scope: 'cta', site }),
    });
    return Number.NaN;
  }

  report({ kind, order, scope, site }: Reported): AccessReport {
    const { launch } = this.block;
    const { where, text } = launch.compiled.sites[site]!;
    return {
      kind,
      order,
      scope,
      rank: this.rank,
      kernel: launch.kernel,
      block: this.block.index,
      thread: this.index,
      where,
      text,
      ...originOf(launch.origin),
    };
  }

  /** Comes to a barrier of a group of warps; who may go on is for the machine to say. False where it is the block's barrier. */
  joinGroup(id: number, wanted: number, site: number, least = 0): boolean {
    this.site = site;
    if (id === 0 && least === 0 && wanted === this.block.launch.block) return false;
    this.#arriveAt(id, wanted, true, least);
    return true;
  }

  #arriveAt(id: number, wanted: number, waits: boolean, least = 0): void {
    this.block.groups ??= new Groups();
    this.released = this.block.groups.arrive(this, id, wanted, waits, least);
  }

  /** Comes to a barrier at which threads vote, with its vote. `yes` becomes the number of those who say yes. */
  voteInGroup(id: number, wanted: number, says: boolean, site: number): void {
    this.site = site;
    this.says = says;
    this.#arriveAt(id, wanted, true);
    const yes = this.released.filter((thread) => thread.says).length;
    for (const thread of this.released) thread.yes = yes;
  }

  /** Comes to a barrier at which others wait, and goes on. Its actions come before what they do then. */
  arriveAtGroup(access: StatementAccess, id: number, wanted: number): void {
    this.site = access.site;
    this.#arriveAt(id, wanted, false);
    if (this.isChecked) this.#tell(access, this.#arrivals, 8 * id, 0);
  }

  /** Has waited at a barrier at which others may only have arrived. */
  awaitedGroup(access: StatementAccess, id: number): void {
    this.#tell(access, this.#arrivals, 8 * id, 0);
  }

  get #arrivals(): SimBuffer {
    this.block.arrivals ??= this.#machine.newBuffer(this.rank, 128, 'barriers');
    return this.block.arrivals;
  }

  wrote(buffer: SimBuffer, offset: number, bytes: number): void {
    if (buffer.waiters !== 0) this.#machine.wake(buffer, offset, bytes);
  }

  fence(order: FenceKind, scope: Scope): void {
    this.#machine.detector!.fence(this.id, order, scope);
  }

  proxyFence(path: ProxyPath): void {
    this.#machine.detector!.proxyFence(this.id, path);
    if (path === 'shared') this.showMBarriers();
  }

  showMBarriers(): void {
    this.block.mbarriers?.show();
  }

  waitFor(
    { kind, until, access }: StatementWait,
    buffer: SimBuffer,
    offset: number,
    { mask, wanted, limit }: Pick<Wait, 'mask' | 'wanted' | 'limit'>,
  ): void {
    const expired = this.#machine.detector !== null && !isPlace(buffer, offset, access.bytes);
    if (expired) this.refuse(access, buffer, offset);
    const place = { buffer, offset, mask, wanted };
    this.wait = { kind, until, access, ...place, limit, waited: 0, mbarrier: null, expired };
  }

  /** Whether what it waits for has come; the wait is over if so, or if it has run out. */
  poll(): boolean {
    const wait = this.wait!;
    const { detector } = this.#machine;
    if (detector !== null && wait.kind !== 'phase') return this.#pollStores(wait, detector);
    const there =
      !wait.expired &&
      (wait.kind === 'phase'
        ? wait.mbarrier!.isOver(wait.wanted)
        : satisfies(wait, wait.buffer.i32, wait.offset >>> 2));
    if (!there && !wait.expired && wait.limit !== 0) return false;
    this.wait = null;
    this.satisfied = there;
    if (wait.expired) wait.mbarrier?.givenUp();
    if (there && detector !== null) {
      this.access(wait.access, wait.buffer, wait.offset);
    }
    return true;
  }

  /**
   * Every look may see an older store; those that end nothing go unseen. So a wait is one load, at the moment at which
   * it ends: of any store that ends it, or of any at all if it looks once. A wait whose limit has run out may still see one that ends it
   * in its last look.
   */
  #pollStores(wait: Wait, detector: Detector): boolean {
    const { access, buffer, offset, limit, expired } = wait;
    const looks = !expired || isPlace(buffer, offset, access.bytes);
    const older = looks ? detector.olderValues(this.id, buffer, offset, access.bytes) : [];
    const stores = [
      looks && satisfies(wait, buffer.i32, offset >>> 2),
      ...older.map(({ words }) => satisfies(wait, words, 0)),
    ];
    const options = stores.flatMap((there, i) => (there || limit === 0 ? [i] : []));
    if (options.length === 0 && !expired) return false;
    this.wait = null;
    const ends = expired ? [null, ...options] : options;
    const end = ends[ends.length === 1 ? 0 : this.#machine.schedule.pickStore(ends.length, access.site)]!;
    this.satisfied = end !== null && stores[end]!;
    const words = end === null || end === 0 ? null : older[end - 1]!.words;
    this.#see(buffer, offset, access.bytes, words);
    if (this.satisfied && this.mayAccess(access, buffer, offset)) this.#tell(access, buffer, offset, end!);
    // Waits in a loop may never come to an end either.
    this.#machine.spins.look(this, access, buffer, offset, words?.[0] ?? buffer.i32[offset >>> 2]!);
    return true;
  }

  endless(site: number): never {
    const { launch } = this.block;
    const { where } = launch.compiled.sites[site]!;
    // The launch has failed: its other threads, which may be many in that loop, need not go round so often.
    launch.mostTurns = 1000;
    throw new Error(
      `the loop at ${where} has no end: ${this.turns} times round, and nothing that it looks at can have changed`,
    );
  }

  clock(): bigint {
    return this.#machine.clock(this.turns);
  }

  /** The time's lower word; the upper one is left in `clockHigh`. */
  clockWords(): number {
    const now = this.clock();
    this.clockHigh = Number(BigInt.asIntN(32, now >> 32n));
    return Number(BigInt.asIntN(32, now));
  }

  /** Fails the launch unless the kernel's claim about itself is true. */
  assert(test: boolean | number, site: number): void {
    if (test) return;
    const { where, text } = this.block.launch.compiled.sites[site]!;
    throw new Error(`the assertion at ${where} fails on ${this.#name}: ${text}`);
  }

  get #name(): string {
    return `rank ${this.rank}, block ${this.block.index}, thread ${this.index}`;
  }

  say(text: string): void {
    this.#machine.print(`${this.#name}: ${text}`);
  }

  /** The kernel has given up, at a statement that says so. */
  trap(site: number): never {
    const { where, text } = this.block.launch.compiled.sites[site]!;
    throw new Error(`trap at ${where}  ${text}${this.#said === '' ? '' : `, which said: ${this.#said}`}`);
  }

  /** The output of `printf`, or a text without values. It is kept for the message of a trap, before which kernels say why. */
  print(format: Address, values: Address | null): void {
    const text = this.find(format.slot, format.low);
    const end = text.u8.indexOf(0, format.low);
    const of = String.fromCharCode(...text.u8.subarray(format.low, end));
    this.#said = values === null ? of : printed(of, this.find(values.slot, values.low), values.low).trim();
    this.say(this.#said);
  }

  // Of kernels in PTX, whose addresses are numbers.

  /** Memory that no other thread sees. */
  localMemory(bytes: number): SimBuffer {
    this.#local ??= this.#machine.newBuffer(this.rank, bytes, 'local memory');
    return this.#local;
  }

  /** Names a place of shared memory as it lies in another block of the cluster. */
  inBlock(place: ByteAt, rank: number, site: number): readonly ByteAt[] {
    return [sameIn(this.#inCluster(rank, site), this.block, place)];
  }

  /** The places on all ranks for which a multicast address stands. */
  everywhere({ buffer: { everywhere, purpose }, offset: by }: ByteAt): readonly ByteAt[] {
    if (everywhere === null)
      throw new Error(`multimem is for multicast addresses, not for one of '${purpose}'`);
    return everywhere.map(({ buffer, offset }) => ({ buffer, offset: offset + by }));
  }

  /** The buffer to which addresses of this upper word belong, where it is not one of the first that there were. */
  find(slot: number, low: number, site = 0): SimBuffer {
    const { shared, cluster } = this.block;
    if (slot === windows.shared && shared.length > 0) return shared[0]!;
    if (slot >= windows.cluster && slot - windows.cluster < cluster.length && shared.length > 0)
      return this.#inCluster(slot - windows.cluster, site).shared[0]!;
    if (slot === windows.local && this.#local !== null) return this.#local;
    const { args } = this.block.launch;
    if (slot === windows.param) return args[0] as SimBuffer;
    if (slot === windows.grid && this.isCooperative) return args.at(-3) as SimBuffer;
    const found = (args.at(-1) as AddressSpace).at(slot);
    if (found !== undefined) return found;
    const address = `0x${(slot * 2 ** 32 + low).toString(16)}`;
    if (this.#machine.detector === null) throw new Error(`no memory is at address ${address}`);
    return new SimBuffer(-1, `address ${address}, where no memory is`, -1, 0);
  }

  get isCooperative(): boolean {
    return this.block.launch.args.at(-3) !== null;
  }

  get rankInCluster(): number {
    return this.block.cluster.indexOf(this.block);
  }

  /** The block of the cluster whose shared memory this address names. */
  rankAt(address: number): number {
    return clusterRank(address) ?? this.rankInCluster;
  }

  /** The tensor whose map is at this address: a parameter, or in memory. */
  tensor(slot: number, low: number): SimTensor {
    const tensors = this.block.launch.args.at(-2) as ReadonlyMap<number, SimTensor>;
    const addresses = this.block.launch.args.at(-1) as AddressSpace;
    const told = slot === windows.param ? tensors.get(low) : undefined;
    return told ?? tensorAt({ buffer: this.find(slot, low), offset: low }, addresses);
  }

  /** The block's shared memory, or that of another of its cluster which `mapa` has named. */
  sharedAt(address: number, site: number): SimBuffer {
    const rank = clusterRank(address);
    return (rank === null ? this.block : this.#inCluster(rank, site)).shared[0]!;
  }

  /** Arrives at an mbarrier of its own block, or of another of the cluster. */
  arriveAt(access: StatementAccess, address: number): void {
    const offset = address & mostShared;
    this.clusterArrive(access, { buffer: this.block.shared[0]!, offset }, this.rankAt(address));
  }

  /** Comes to an operation of the lanes that a mask names. */
  meetLanes(meeting: LaneMeeting, mask: number, site: number): void {
    this.site = site;
    const { block } = this;
    // A lane that is not named meets them all the same, which the machine then reports.
    this.meeting = block.lanesMet.come(this.index, meeting, mask | (1 << (this.index & 31)));
    if ((mask >>> (this.index & 31)) & 1) return;
    const { launch } = block;
    this.#machine.log.add({
      kind: 'divergence',
      operation: 'an operation of the warp, whose mask leaves out a lane that executes it',
      where: launch.compiled.sites[site]!.where,
      rank: launch.home,
      kernel: launch.kernel,
      block: block.index,
      present: [this.index],
      absent: [],
    });
  }

  sleep(nanoseconds: number): void {
    this.#machine.sleep(this, nanoseconds >>> 0);
  }

  /** Bytes from one place to another of the same buffer. */
  distance(to: ByteAt, from: ByteAt): number {
    if (to.buffer !== from.buffer)
      throw new HeddleError(
        'HEDDLE_DISTANCE',
        `from '${from.buffer.purpose}' to '${to.buffer.purpose}' there is no distance: both addresses must lie in one allocation, or in one shared array`,
      );
    return (to.offset - from.offset) | 0;
  }

  releaseNext(): void {
    this.#machine.detector?.releaseNext(this.id);
    this.#machine.blockReleased(this.block);
  }

  /** Sends bytes over a network, or a signal behind such bytes. */
  put(to: ByteAt, from: ByteAt, bytes: number, site: number): void {
    if (bytes > 0) this.#machine.puts.put(this, { to, from, bytes }, site);
  }

  signal(access: StatementAccess, to: ByteAt, value: bigint): void {
    this.#machine.puts.signal(this, access, to, value);
  }

  get bulk(): Copies {
    return this.#copiesBy('bulk');
  }

  get async(): Copies {
    return this.#copiesBy('async');
  }

  /** An asynchronous load of `bytes`, of which `given` are copied; the others are zeros. */
  loadAsync(to: ByteAt, from: ByteAt, bytes: number, given: number, site: number): void {
    const copied = Math.min(bytes, given >>> 0);
    if (copied > 0) this.async.post(to, from, copied, site, bytes);
    if (copied === bytes) return;
    this.#zeros ??= this.#machine.newBuffer(this.rank, 16, 'zeros');
    const rest = { buffer: to.buffer, offset: to.offset + copied };
    this.async.post(rest, { buffer: this.#zeros, offset: 0 }, bytes - copied, site, 1);
  }

  #copiesBy(engine: CopyEngine): Copies {
    this.#copies[engine] ??= new Copies(engine, this, this.#machine);
    return this.#copies[engine];
  }

  // Tensor memory.

  get tensorMemory(): TensorMemory {
    const { block } = this;
    block.tensorMemory ??= new TensorMemory(
      this.#machine.newBuffer(this.rank, tensorMemoryBytes, 'tensor memory'),
    );
    return block.tensorMemory;
  }

  fenceTensor(side: 'before' | 'after'): void {
    this.#machine.detector!.fenceTensor(this.id, side);
  }

  get tensorMoves(): Copies {
    return this.#copiesBy('tmem');
  }

  allocateTensor(columns: number, site: number): number {
    const first = this.tensorMemory.allocate(columns);
    if (typeof first === 'number') return first;
    if (!this.isChecked) this.#wrongTensor(first, site);
    this.#reportTensor(first, site);
    return 0;
  }

  freeTensor(address: number, columns: number, site: number): void {
    if (!this.tensorMemory.free(address & 0xffff, columns))
      this.#wrongTensor(`${columns} columns were not allocated there`, site);
  }

  /** The columns of the lane's own row that it loads or stores. */
  tensorAt(address: number, columns: number, loads: boolean, site: number): ByteAt {
    const warp = 32 * ((this.index >>> 5) & 3);
    const lane = address >>> 16;
    // Without a lane it is of the warp's own ones.
    const place = this.tensorMemory.at(address & 0xffff, warp + (this.index & 31), columns);
    if (lane !== 0 && lane !== warp)
      this.#wrongTensor(`this warp reaches lanes ${warp} to ${warp + 31} of tensor memory alone`, site);
    if (place === null) this.#wrongTensor('that tensor memory is not allocated', site);
    this.tensorMoves.touch(loads ? 'read' : 'write', place, 4 * columns, site, true);
    return place;
  }

  multiplyTensor(
    kind: string,
    pair: boolean,
    to: number,
    a: number | readonly [number, number],
    b: readonly [number, number],
    bits: number,
    adds: boolean,
    leaves: number,
    scales: readonly [a: number, b: number, each: number] | null,
    site: number,
  ): void {
    const form = formOf(kind, bits);
    const { cluster } = this.block;
    const rank = this.rankInCluster & ~1;
    const blocks = pair ? [0, 1].map((i) => this.#inCluster(rank + i, site)) : [this.block];
    if (leaves !== 0) this.#wrongTensor('lanes that a product leaves out are not simulated', site);
    if (pair && cluster.length < 2) this.#wrongTensor('a pair of blocks multiplies in a cluster', site);
    const parts = blocks.map(({ shared: [shared], tensorMemory }) => {
      if (tensorMemory === null) this.#wrongTensor('a block has no tensor memory yet', site);
      return {
        a: typeof a === 'number' ? a : factorOf(shared!, ...a, form.turnedA),
        b: factorOf(shared!, ...b, form.turnedB),
        memory: tensorMemory,
      };
    });
    const wrong = multiplyInTensorMemory(parts, { form, to, adds, site, scales }, this.#copiesBy('tcgen05'));
    if (wrong !== null) this.#wrongTensor(wrong, site);
  }

  /** Rows of shared memory go to tensor memory, of this block or of both of a pair. */
  copyToTensor(
    pair: boolean,
    address: number,
    from: readonly [number, number],
    shape: readonly [number, number],
    site: number,
  ): void {
    const first = this.rankInCluster & ~1;
    const blocks = pair ? [0, 1].map((i) => this.#inCluster(first + i, site)) : [this.block];
    for (const { shared, tensorMemory: memory } of blocks) {
      if (memory === null) this.#wrongTensor('a block has no tensor memory yet', site);
      const rows = factorOf(shared[0]!, ...from, false);
      if (!copyToTensorMemory(rows, { memory, address }, shape, site, this.#copiesBy('tcgen05')))
        this.#wrongTensor('that tensor memory is not allocated', site);
    }
  }

  /** Arrives at an mbarrier, here or in each block that a mask names, once its products are done. */
  commitTensor(barrier: ByteAt, mask: number | null, site: number): void {
    const engine = this.#copiesBy('tcgen05');
    const { block } = this;
    const places =
      mask === null
        ? [[block, barrier] as const]
        : block.cluster.flatMap((there, rank) =>
            (mask >>> rank) & 1 ? [[there, sameIn(there, block, barrier)] as const] : [],
          );
    for (const [there, place] of places) {
      const owner = block.cluster.find(({ shared }) => shared.includes(place.buffer)) ?? there;
      engine.arriveAfterAll(mbarrierOf(owner, place), site);
    }
    this.#machine.spins.stir();
  }

  /** A register is used that a load of tensor memory may not have filled. */
  usedEarly(site: number): void {
    this.#reportTensor(
      'this register is loaded from tensor memory, and no tcgen05.wait::ld stands between',
      site,
    );
  }

  #wrongTensor(message: string, site: number): never {
    const { where, text } = this.block.launch.compiled.sites[site]!;
    throw new Error(`${message}: ${where}  ${text}`);
  }

  #reportTensor(message: string, site: number): void {
    const access = this.report({ kind: 'read', order: 'weak', scope: 'cta', site });
    this.#machine.log.add({
      kind: 'misuse',
      message,
      buffer: 'registers',
      location: 'of the thread',
      access,
    });
  }

  // Products of tiles.

  /** Registers that products take whole, sums or words of a factor: so many, all zeros at first, in the n-th array of its kind. */
  sums(n: number, length: number, areWords = false): Float32Array | Int32Array {
    this.#sums[n] ??= areWords ? new Int32Array(length) : new Float32Array(length);
    return this.#sums[n];
  }

  bringProduct(
    sums: Float32Array,
    a: ByteAt,
    b: ByteAt,
    begin: boolean,
    columns: number,
    swizzle: Tile['swizzle'],
    isE4m3: boolean,
    site: number,
  ): void {
    const form = { swizzle, turned: false, leading: 0, stride: 8 * swizzle };
    this.bring({
      ...{ sums, a: { ...a, ...form }, b: { ...b, ...form }, begin, columns },
      ...{ type: isE4m3 ? 'e4m3' : 'bf16', bytes: swizzle, sign: 1, atOnce: false, site },
    });
  }

  bringHeldProduct(
    sums: Float32Array,
    a: Int32Array,
    b: ByteAt,
    begin: boolean,
    columns: number,
    swizzle: Tile['swizzle'],
    site: number,
  ): void {
    const form = { swizzle, turned: false, leading: 0, stride: 8 * swizzle };
    this.bring({
      ...{ sums, a, b: { ...b, ...form }, begin, columns },
      ...{ type: 'bf16', bytes: swizzle, sign: 1, atOnce: false, site },
    });
  }

  bring(factors: Factors): void {
    if (this.block.launch.block % groupThreads !== 0)
      throw new Error(
        `products of tiles are made by whole warp groups: a block has a multiple of ${groupThreads} threads`,
      );
    this.factors = factors;
    if (this.isChecked) this.products.takePart(factors);
  }

  get isChecked(): boolean {
    return this.#machine.detector !== null;
  }

  /** Its products, in checked mode. */
  get products(): Products {
    this.#products ??= new Products(this, this.#machine);
    return this.#products;
  }

  /** Block `rank` of the cluster, whose shared memory is reached. */
  #inCluster(rank: number, site: number): Block {
    const { cluster } = this.block;
    const block = cluster[rank];
    if (block === undefined)
      throw new Error(`block ${rank} of a cluster of ${cluster.length} does not exist`);
    if (this.isChecked && block.live === 0) {
      const access = this.report({ kind: 'address', order: 'weak', scope: 'cta', site });
      const message = inWordsOf(
        access.where,
        "the block has ended, and its shared memory may be another's: the cluster meets (g.cluster.barrier()) before the first of its blocks ends",
      );
      const location = 'of another block of the cluster';
      this.#machine.log.add({ kind: 'misuse', message, buffer: 'shared memory', location, access });
    }
    return block;
  }

  /** Arrives at the mbarrier of another block of the cluster. */
  clusterArrive(access: StatementAccess, barrier: ByteAt, rank: number): void {
    const there = this.#inCluster(rank, access.site);
    const theirs = sameIn(there, this.block, barrier);
    if (this.isChecked && !this.#accessMBarrier(access, theirs)) return;
    const wrong = mbarrierOf(there, theirs).expect(0);
    if (this.isChecked && wrong !== null) this.#misuse(access, theirs, wrong);
  }

  multicastBox(
    to: ByteAt,
    tensor: SimTensor,
    at: readonly number[],
    barrier: ByteAt,
    blocks: number,
    site: number,
  ): void {
    for (let rank = 0; rank < 32; rank++) {
      if (((blocks >>> rank) & 1) === 0) continue;
      const there = this.#inCluster(rank, site);
      const mbarrier = mbarrierOf(there, sameIn(there, this.block, barrier));
      this.bulk.loadBoxAt(sameIn(there, this.block, to), tensor, at, mbarrier, site);
    }
  }

  /** Its warp group takes registers, so many a thread in all, or gives others away. */
  keepRegisters(count: number, takes: boolean, site: number): void {
    const { block } = this;
    block.registers ??= new WarpRegisters(block.launch.compiled.module.maxThreads, block.launch.block);
    const wrong = block.registers.keep(this.index, count, takes, site);
    if (wrong !== null) this.reportRegisters(wrong, site);
  }

  reportRegisters(message: string, site: number): void {
    const access = this.report({ kind: 'update', order: 'weak', scope: 'cta', site });
    this.#machine.log.add({ kind: 'misuse', message, buffer: 'registers', location: 'of the block', access });
  }

  // Barriers of bulk copies.

  /** `isShown`: to the copy engine, by a fence that is part of it. */
  mbarrierInit(access: StatementAccess, barrier: ByteAt, count: number, isShown = true): void {
    const machine = this.#machine;
    if (machine.detector !== null) {
      if (!this.#accessMBarrier(access, barrier)) return;
      const misuse = (message: string) => this.#misuse(access, barrier, message);
      if (this.block.mbarriers?.at(barrier) !== undefined)
        misuse(
          'this mbarrier has been initialised before: once a block is all, its phases follow each other',
        );
      if (count < 1 || count > mostCounted)
        misuse(`an mbarrier is for 1 to ${mostCounted} arrivals, not for ${count}`);
    }
    this.block.mbarriers ??= new MBarriers(
      machine.detector === null ? null : machine.random,
      ({ buffer, offset }) => {
        if (buffer.waiters !== 0) machine.wake(buffer, offset, mbarrierBytes);
      },
    );
    this.block.mbarriers.init(barrier, count, isShown);
  }

  /** `drops`: its arrivals are for this phase and all that follow. */
  mbarrierExpect(access: StatementAccess, barrier: ByteAt, bytes: number, arrivals = 1, drops = false): void {
    const checked = this.#machine.detector !== null;
    if (checked && !this.#accessMBarrier(access, barrier)) return;
    const wrong = this.mbarrier(barrier).expect(bytes, arrivals, drops);
    if (checked && wrong !== null) this.#misuse(access, barrier, wrong);
  }

  /** Arrives at an mbarrier once its asynchronous copies are made. `extra`: its phase takes that arrival beside those that it is for. */
  arriveAfterCopies(barrier: ByteAt, extra: boolean, site: number): void {
    const access = { kind: 'update', order: 'relaxed', scope: 'cta', bytes: mbarrierBytes, site } as const;
    if (this.#machine.detector !== null && !this.mayAccess(access, barrier.buffer, barrier.offset)) return;
    if (extra) this.mbarrier(barrier).expect(0, -1);
    this.async.arriveAfterAll(this.mbarrier(barrier), site);
    this.#machine.spins.stir();
  }

  /** The effects of its own operations on an mbarrier. */
  #accessMBarrier(access: StatementAccess, { buffer, offset }: ByteAt): boolean {
    if (!this.mayAccess(access, buffer, offset)) return false;
    this.#tell(access, buffer, offset, 0);
    this.#machine.spins.stir();
    return true;
  }

  overwrites(access: StatementAccess, buffer: SimBuffer, offset: number, bytes: number): void {
    const at = this.block.mbarriers?.within(buffer, offset, bytes) ?? null;
    if (at === null) return;
    const message = 'this writes where an mbarrier is: only g.mbarrier may change one';
    this.#misuse(access, { buffer, offset: at }, message);
  }

  #misuse(access: StatementAccess, { buffer, offset }: ByteAt, message: string): void {
    this.#machine.log.misuse(message, buffer, offset, this.report(access));
  }

  waitForPhase({ kind, until, access }: StatementWait, barrier: ByteAt, parity: number, limit: number): void {
    const mbarrier = this.mbarrier(barrier);
    const wanted = parity & 1;
    if (this.#machine.detector !== null && wanted !== parity)
      this.#misuse(
        access,
        barrier,
        `parities are 0 and 1, not ${parity >>> 0}: take the number of the phase % 2`,
      );
    const place = { ...barrier, mask: 1, wanted };
    this.wait = { kind, until, access, ...place, limit, waited: 0, mbarrier, expired: false };
  }

  mbarrier(place: ByteAt): MBarrier {
    return mbarrierOf(this.block, place);
  }

  end(): void {
    this.state = 'ended';
    const failed = this.block.launch.error !== null;
    this.#copies.bulk?.end(failed);
    this.#copies.async?.end(failed);
    this.#copies.tcgen05?.end(failed);
    this.#copies.tmem?.end(failed);
    this.#products?.end(failed);
    if (!failed && this.block.live === 1) {
      const lack = this.block.registers?.lack() ?? null;
      if (lack !== null) this.reportRegisters(lack.message, lack.site);
      if (this.isChecked && (this.block.tensorMemory?.unfreed ?? 0) > 0)
        this.#reportTensor(
          'the block ends with tensor memory that it has not given back (tcgen05.dealloc)',
          this.site,
        );
    }
  }
}

function mbarrierOf({ mbarriers, cluster }: Block, place: ByteAt): MBarrier {
  const barrier = mbarriers?.at(place);
  if (barrier !== undefined) return barrier;
  throw new Error(
    `no mbarrier is initialised at ${place.buffer.describe(place.offset)} yet: one thread does it (g.mbarrier.init), and a barrier ` +
      `${cluster.length > 1 ? 'of the block, or of the cluster, ' : ''}stands between that and all others`,
  );
}

/** The place in another block's shared memory that is this one in its own. */
const sameIn = (other: Block, own: Block, { buffer, offset }: ByteAt): ByteAt => {
  return { buffer: other.shared[own.shared.indexOf(buffer)]!, offset };
};

/** Whether so many bytes may be accessed there. */
function isPlace(buffer: SimBuffer, offset: number, bytes: number): boolean {
  return offset >= 0 && offset + bytes <= buffer.bytes && !buffer.freed && offset % bytes === 0;
}

/** `at` is where the words of the place begin; of more than one the last counts, of a long one the first. */
function satisfies(wait: Wait, words: ArrayLike<number>, at: number): boolean {
  return holds(wait, words[at + (wait.kind === 'filled' ? 3 : 0)]!);
}
