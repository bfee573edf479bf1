/** Threads that meet: at a barrier of their block, of a group of its warps, or in an operation of their warp. */
import type { MachineServices } from './blocks.js';
import { isPtx } from './compiled.js';
import type { Open } from './lanes.js';
import { multiplyTiles } from './products.js';
import type { Block, Thread } from './thread.js';

export class Meetings {
  readonly #machine: MachineServices;

  constructor(machine: MachineServices) {
    this.#machine = machine;
  }

  atBarrier(thread: Thread): void {
    thread.state = 'barrier';
    if (++thread.block.arrived === thread.block.live) this.#releaseBarrier(thread.block);
  }

  /** `thread.released` says whom its coming lets go on. */
  inGroup(thread: Thread): void {
    thread.state = 'group';
    this.#releaseGroup(thread.released);
  }

  /** It does not wait for those whom its coming lets go on. */
  arrived(thread: Thread): void {
    this.#releaseGroup(thread.released);
    this.#machine.makeReady(thread);
  }

  inCluster(thread: Thread): void {
    thread.state = 'cluster';
    this.#releaseCluster(thread.block.cluster, false);
  }

  /** Once all that are left have come; or, where some never will, those that have. */
  #releaseCluster(cluster: readonly Block[], anyway: boolean): void {
    const there = cluster.flatMap(({ threads }) => threads.filter(({ state }) => state === 'cluster'));
    const live = cluster.reduce((sum, { live }) => sum + live, 0);
    if (there.length === 0 || (there.length < live && !anyway)) return;
    if (this.#machine.detector !== null) {
      for (const block of cluster) {
        const mine = there.filter((thread) => thread.block === block);
        if (mine.length > 0) this.#reportDivergence('a barrier of the cluster', block, mine, block.threads);
      }
      const relaxed = there.filter(({ arrivesRelaxed }) => arrivesRelaxed).map(({ id }) => id);
      const blocks = cluster.filter(({ live }) => live > 0).map(({ id }) => id);
      this.#machine.detector.clusterMet(blocks, relaxed);
    }
    for (const thread of there) {
      thread.arrivesRelaxed = false;
      this.#machine.makeReady(thread);
    }
  }

  /** `thread.meeting` says whether its coming lets others go on. */
  inLanes(thread: Thread): void {
    thread.state = 'lanes';
    if (thread.meeting!.missing === 0) this.#releaseLanes(thread.block, thread.meeting!);
  }

  #releaseLanes(block: Block, open: Open): void {
    const { meeting, warp } = open;
    const there = block.lanesMet.lanes(warp).filter((thread) => thread.meeting === open);
    let mask = 0;
    for (const { index } of there) mask |= 1 << (index & 31);
    if (this.#machine.detector !== null) this.#tellLanes(block, open, there);
    meeting.complete?.(block.words!, 32 * warp, mask);
    if (meeting.multiplies) multiplyOf(block, warp, mask);
    for (const thread of there) {
      thread.meeting = null;
      this.#machine.makeReady(thread);
    }
  }

  #tellLanes(block: Block, open: Open, there: readonly Thread[]): void {
    const { meeting, warp, mask } = open;
    const { detector } = this.#machine;
    const lanes = block.lanesMet.lanes(warp);
    if (meeting.whole) this.#reportDivergence(ofWarp, block, there, lanes);
    if (meeting.orders && mask === allLanes) detector!.warpMet(block.firstThread + 32 * warp, lanes.length);
    else if (meeting.orders) detector!.groupMet('lanes', there);
  }

  /** A thread of the block has ended, and others may have waited for it alone. */
  left({ block, index }: Thread): void {
    for (const open of block.lanesMet.left(index)) this.#releaseLanes(block, open);
    if (block.arrived > 0 && block.arrived === block.live) this.#releaseBarrier(block);
    this.clusterLeft(block);
  }

  /** A thread of a block has ended, the last one maybe, and its cluster may have waited for it alone. */
  clusterLeft({ cluster }: Block): void {
    if (cluster.length > 1) this.#releaseCluster(cluster, false);
  }

  #releaseBarrier(block: Block): void {
    const there = block.threads.filter((thread) => thread.state === 'barrier');
    if (this.#machine.detector !== null) {
      this.#reportMissed(block, there);
      this.#machine.detector.blockBarrier(block.id);
    }
    block.arrived = 0;
    for (const thread of there) this.#machine.makeReady(thread);
  }

  /** Reports threads that missed a barrier of the block. In TypeScript all must be at one statement. Compilers to PTX make several of one: there
   * the lanes of a warp that are left must all be at some. */
  #reportMissed(block: Block, there: readonly Thread[]): void {
    const operation = 'a barrier of the block';
    if (!isPtx(block.launch.compiled.module)) {
      this.#reportDivergence(operation, block, there, block.threads);
      return;
    }
    for (const warp of new Set(there.map(({ index }) => index >>> 5))) {
      const lanes = there.filter(({ index }) => index >>> 5 === warp);
      this.#reportDivergence(operation, block, lanes, lanes);
    }
  }

  /** Each of its warps must be there whole, and at one statement. */
  #releaseGroup(there: readonly Thread[]): void {
    if (there.length === 0) return;
    if (this.#machine.detector !== null) {
      const { block } = there[0]!;
      for (const warp of new Set(there.map(({ index }) => index >>> 5))) {
        const ofWarp = ({ index }: Thread) => index >>> 5 === warp;
        const lanes = block.threads.filter(ofWarp);
        this.#reportDivergence('a barrier of a group of warps', block, there.filter(ofWarp), lanes);
      }
      this.#machine.detector.groupMet('warps', there);
    }
    for (const thread of there) this.#machine.makeReady(thread);
  }

  /** All must be there, and at the same statement. */
  #reportDivergence(
    operation: string,
    block: Block,
    there: readonly Thread[],
    expected: readonly Thread[],
  ): void {
    const { site } = there[0]!;
    if (there.length === expected.length && there.every((thread) => thread.site === site)) return;
    const present = there.filter((thread) => thread.site === site);
    this.#reportAbsent(
      operation,
      block,
      present,
      expected.filter((thread) => !present.includes(thread)),
    );
  }

  #reportAbsent(
    operation: string,
    block: Block,
    present: readonly Thread[],
    absent: readonly Thread[],
  ): void {
    const { launch } = block;
    const { site } = present[0]!;
    this.#machine.log.add({
      kind: 'divergence',
      operation,
      where: launch.compiled.sites[site]!.where,
      rank: launch.home,
      kernel: launch.kernel,
      block: block.index,
      present: present.map((thread) => thread.index),
      absent: absent.map((thread) => thread.index),
    });
  }

  /** Meetings to which some never come go on without them. False where there are none; while others `wait`, some may come yet. */
  endHopeless(blocks: Iterable<Block>, wait: boolean): boolean {
    const all = [...blocks];
    const ends = [this.#endLanes, ...(wait ? [] : [this.#endGroups, this.#endCluster])];
    return ends.some((end) => all.filter((block) => end.call(this, block)).length > 0);
  }

  /** Lanes wait in an operation of their warp while the others wait elsewhere, or have left. */
  #endLanes(block: Block): boolean {
    const { lanesMet } = block;
    const hopeless = lanesMet.hopeless();
    for (const open of hopeless) {
      const there = lanesMet.lanes(open.warp).filter((thread) => thread.meeting === open);
      this.#reportAbsent(ofWarp, block, there, lanesMet.absent(open));
      lanesMet.close(open);
      this.#releaseLanes(block, open);
    }
    return hopeless.length > 0;
  }

  /** Barriers of groups to which the others never come. */
  #endGroups(block: Block): boolean {
    const abandoned = [...(block.groups?.abandoned() ?? [])];
    for (const { id, there } of abandoned) {
      const absent = block.threads.filter((thread) => !there.includes(thread));
      this.#reportAbsent(`barrier ${id} of a group of warps`, block, there, absent);
      for (const thread of there) this.#machine.makeReady(thread);
    }
    return abandoned.length > 0;
  }

  /** Barriers of clusters to which some threads never come. */
  #endCluster(block: Block): boolean {
    if (!block.threads.some(({ state }) => state === 'cluster')) return false;
    this.#releaseCluster(block.cluster, true);
    return true;
  }
}

const ofWarp = 'an operation of the warp';

/** The product that the lanes of a warp have brought their parts of. Where some are missing there is none. */
function multiplyOf({ threads }: Block, warp: number, mask: number): void {
  if (mask !== allLanes) return;
  const lanes = threads.slice(32 * warp, 32 * warp + 32);
  const factors = lanes.map((lane) => lane.factors!);
  if (lanes[0]!.isChecked) lanes[0]!.products.multiply(factors);
  else multiplyTiles(factors, warp);
}

const allLanes = -1;
