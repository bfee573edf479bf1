import { PerformanceObserver } from 'node:perf_hooks';
import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import {
  type Counter,
  type EngineOptions,
  type ImmediateCounter,
  TransferEngine,
} from '../../../net/fabric/index.js';

/** The programs of the benchmark's ranks; each function runs in several processes (rank.ts). */

/** A process of the benchmark, as its own program sees it. */
export interface Rank {
  readonly rank: number;
  readonly ranks: number;
  readonly args: unknown;
  /** Gives a value to everybody and gets everybody's, by rank. */
  exchange<T>(value: T): Promise<T[]>;
}

type Setup = Awaited<ReturnType<typeof meet>>;

/**
 * Opens an engine, meets everybody, and exchanges a region of `bytes` each. Peers and regions are by rank, this rank's own undefined;
 * the group is of everybody else's.
 */
export async function meet(rank: Rank, options: EngineOptions, bytes: number) {
  const engine = await TransferEngine.open(options);
  const region = engine.allocate(bytes);
  const all = await rank.exchange({ address: engine.address, descriptor: region.descriptor });
  const peers = all.map(({ address }, r) =>
    r === rank.rank ? undefined : engine.addPeer(address, `rank ${r}`),
  );
  const remotes = all.map(({ descriptor }, r) =>
    peers[r] ? engine.remote(peers[r], descriptor) : undefined,
  );
  const group = engine.group(remotes.filter((remote) => remote !== undefined));
  return { engine, peers, region, remotes, group };
}

/** Meets everybody, does what is to be done, and leaves when all have done it. */
async function among<T>(
  rank: Rank,
  options: EngineOptions,
  bytes: number,
  body: (setup: Setup & { readonly counter: Counter }) => T | Promise<T>,
): Promise<T> {
  const setup = await meet(rank, options, bytes);
  const result = await body({ ...setup, counter: setup.engine.counter() });
  await rank.exchange(null);
  await setup.engine.close();
  return result;
}

/** The same of two ranks, with a write from the first half of this one's region to the second half of the other's. */
const between = <T>(
  rank: Rank,
  options: EngineOptions,
  bytes: number,
  body: (pair: ReturnType<typeof pairOf>) => T | Promise<T>,
): Promise<T> => among(rank, options, bytes, (setup) => body(pairOf(rank, setup)));

function pairOf({ rank }: Rank, setup: Setup & { readonly counter: Counter }) {
  const { engine, region, remotes, counter } = setup;
  const to = { target: remotes[1 - rank]!, targetOffset: region.bytes / 2 };
  const write = { source: region, sourceOffset: 0, ...to, bytes: 8, immediate: 1, counter };
  return { ...setup, write, landed: engine.immediate(1) };
}

/** The median of `count` samples, after some that do not count. */
function median(count: number, warmUp: number, sample: (n: number) => number): number {
  const samples = new Float64Array(count);
  for (let n = -warmUp; n < count; n++) {
    const value = sample(n);
    if (n >= 0) samples[n] = value;
  }
  return samples.sort()[count >> 1]!;
}

/** All to all: every rank scatters a slice to every other, and checks every byte it gets. */
export async function allToAll(rank: Rank): Promise<{ bytesChecked: number }> {
  const { options, slice, rounds } = rank.args as { options: EngineOptions; slice: number; rounds: number };
  const { ranks, rank: me } = rank;
  // Two halves take turns: a rank may send round r+1 while another still reads round r, but not r+2, because it
  // needs everybody's r+1 first. Each half holds what goes out and what comes in.
  const half = slice * ranks;
  return among(rank, options, 4 * half, async ({ engine, region, group, counter }) => {
    const bytes = new Uint8Array(region.buffer);
    const others = Array.from({ length: ranks }, (_, r) => r).filter((r) => r !== me);
    // The halves have a tag each: with one tag, a quick rank's next round would be counted for a slow rank's this.
    const landed = [engine.immediate(70), engine.immediate(71)] as const;
    // The content of each place in round 0; a round only adds to it, so checking is one comparison of whole slices.
    const expected = Buffer.alloc(slice);
    let bytesChecked = 0;
    for (let round = 0; round < rounds; round++) {
      const out = (round & 1) * half;
      const into = 2 * half + (round & 1) * half;
      for (const to of others) fill(bytes.subarray(out + to * slice, out + (to + 1) * slice), me, to, round);
      engine.scatter({
        source: region,
        group,
        sourceOffsets: others.map((to) => out + to * slice),
        targetOffsets: others.map(() => into + me * slice),
        bytes: others.map(() => slice),
        immediate: 70 + (round & 1),
        counter,
      });
      await landed[(round & 1) as 0 | 1].wait(ranks - 1, { from: group.peers });
      for (const from of others) {
        fill(expected, from, me, round);
        const got = bytes.subarray(into + from * slice, into + (from + 1) * slice);
        if (expected.compare(got) !== 0) {
          const at = expected.findIndex((byte, i) => byte !== got[i]);
          throw new Error(`round ${round}: byte ${at} from rank ${from} is ${got[at]}, not ${expected[at]}`);
        }
        bytesChecked += slice;
      }
      await counter.wait();
    }
    return { bytesChecked };
  });
}

/** Bytes that depend on who wrote them, to whom, in which round and where; quick, because the tests check gigabytes. */
function fill(slice: Uint8Array, from: number, to: number, round: number): void {
  const period = Math.min(slice.length, 1 << 16);
  const own = from * 31 + to * 17 + round * 7;
  for (let at = 0; at < period; at++) slice[at] = (own + at * 13 + (at >> 8)) & 0xff;
  for (let at = period; at < slice.length; at += period)
    slice.copyWithin(at, 0, Math.min(period, slice.length - at));
  // Repeats must not hide a slice that landed shifted by a period.
  for (let at = 0, n = 0; at + 4 <= slice.length; at += period, n++) slice[at] = n;
}

/** So many writes, or rounds of them, each of so many bytes. */
export interface Sizes {
  readonly bytes: number;
  /** The writes that are under way at a time, a batch, or the peers of a scatter. */
  readonly window: number;
  readonly count: number;
}

export interface StreamArgs extends Sizes {
  readonly options: EngineOptions;
}

/**
 * Rounds before those that count. A thread that polls leaves the compiler behind it little of a processor, so the
 * code takes longer to become what it will be for hours.
 */
function warmUpOf(options: EngineOptions, caller: number, worker: number): number {
  return options.thread === 'caller' ? caller : worker;
}

/** Rank 0 writes and rank 1 writes back, `count` times. Microseconds of one way. */
export function pingPong(rank: Rank): Promise<number> {
  const { options, bytes, count } = rank.args as StreamArgs;
  return between(rank, options, 4096, async ({ engine, write, counter, landed }) => {
    write.bytes = bytes;
    await rank.exchange(null);
    const oneWay = median(count, warmUpOf(options, 20_000, Math.min(count, 5000)), () => {
      const begun = performance.now();
      if (rank.rank === 0) {
        engine.write(write);
        take(landed, options);
      } else {
        take(landed, options);
        engine.write(write);
      }
      return (performance.now() - begun) * 500;
    });
    counter.waitSync();
    return oneWay;
  });
}

/** The caller's own thread has nothing better to do than to poll; a thread of the engine's needs the processor. */
function take(landed: ImmediateCounter, options: EngineOptions): void {
  if (options.thread === 'caller') while (!landed.take(1));
  else landed.waitSync(1);
}

/** Rank 0 writes `count` times with `window` under way. Seconds from the first call to the last completion. */
export function stream(rank: Rank): Promise<number> {
  const { options, bytes, window, count } = rank.args as StreamArgs;
  const room = 2 * Math.max(bytes * 4, 4096);
  return between(rank, { ...options, queue: window }, room, async (pair) => {
    const { engine, region, write, counter, landed } = pair;
    new Uint8Array(region.buffer).fill(rank.rank + 1);
    const run = (n: number, size: number) => {
      write.bytes = size;
      if (rank.rank === 0) {
        for (let i = 0; i < n; i++) {
          write.sourceOffset = (i & 3) * bytes;
          write.targetOffset = room / 2 + (i & 3) * bytes;
          engine.write(write);
        }
        counter.waitSync();
      } else landed.waitSync(n, { timeoutMs: 600_000 });
    };
    // Small writes warm up the just-in-time compiler as well as large ones do, in much less time.
    run(20_000, Math.min(bytes, 64));
    run(Math.ceil(count / 10), bytes);
    await rank.exchange(null);
    const begun = performance.now();
    run(count, bytes);
    return (performance.now() - begun) / 1000;
  });
}

/** The time of the call itself: `batch` writes at a time, each batch ended before the next. Microseconds a write. */
export function posting(rank: Rank): Promise<number> {
  const { options, bytes, window: batch, count } = rank.args as StreamArgs;
  return between(rank, options, 4096, ({ engine, write, counter }) => {
    if (rank.rank === 1) {
      // Only answers: its own progress is all that is asked of it.
      engine.immediate(2).waitSync(1, { timeoutMs: 600_000 });
      return 0;
    }
    write.bytes = bytes;
    const clock = clockCost();
    const microseconds = median(count, warmUpOf(options, 20_000, 5000), () => {
      const begun = performance.now();
      for (let n = 0; n < batch; n++) engine.write(write);
      const took = performance.now() - begun;
      counter.waitSync();
      return (took * 1000 - clock) / batch;
    });
    engine.write({ ...write, immediate: 2 });
    counter.waitSync();
    return microseconds;
  });
}

/** Rank 0 scatters to `window` engines, which rank 1 hosts. Microseconds of the call. */
export async function scatterCall(rank: Rank): Promise<number> {
  const { options, bytes, window: peers, count } = rank.args as StreamArgs;
  if (rank.rank === 1) {
    const engines: TransferEngine[] = [];
    const offers: { address: Uint8Array; descriptor: Uint8Array }[] = [];
    for (let i = 0; i < peers; i++) {
      const engine = await TransferEngine.open({ ...options, thread: 'caller' });
      engines.push(engine);
      offers.push({ address: engine.address, descriptor: engine.allocate(Math.max(bytes, 4096)).descriptor });
    }
    await rank.exchange(offers);
    let over = false;
    rank.exchange(null).then(() => {
      over = true;
    });
    while (!over) {
      for (let round = 0; round < 200; round++) for (const engine of engines) engine.poll();
      await new Promise((resolve) => setImmediate(resolve));
    }
    for (const engine of engines) await engine.close();
    return 0;
  }
  const engine = await TransferEngine.open(options);
  const offers = (await rank.exchange<{ address: Uint8Array; descriptor: Uint8Array }[]>([]))[1]!;
  const group = engine.group(
    offers.map(({ address, descriptor }, i) => engine.remote(engine.addPeer(address, `${i}`), descriptor)),
  );
  const source = engine.allocate(bytes * peers);
  const counter = engine.counter();
  const scatter = {
    source,
    group,
    sourceOffsets: Float64Array.from(offers, (_, i) => i * bytes),
    targetOffsets: new Float64Array(peers),
    bytes: new Float64Array(peers).fill(bytes),
    immediate: 1,
    counter,
  };
  const call = median(count, warmUpOf(options, 1000, 200), () => {
    const begun = performance.now();
    engine.scatter(scatter);
    const took = performance.now() - begun;
    counter.waitSync();
    return took * 1000;
  });
  await rank.exchange(null);
  await engine.close();
  return call;
}

/** Every rank scatters to all others, then meets them at a barrier. Microseconds a round of each, median. */
export function rounds(rank: Rank): Promise<{ scatter: number; barrier: number }> {
  const { options, bytes, count } = rank.args as StreamArgs;
  return among(rank, options, 2 * bytes * rank.ranks, async ({ engine, region, group, counter }) => {
    const n = group.members.length;
    const landed = [engine.immediate(10), engine.immediate(11)];
    const scatter = {
      source: region,
      group,
      sourceOffsets: Float64Array.from({ length: n }, (_, i) => i * bytes),
      targetOffsets: new Float64Array(n).fill((rank.ranks + rank.rank) * bytes),
      bytes: new Float64Array(n).fill(bytes),
      immediate: 10,
      counter,
    };
    const barrier = { group, immediate: 10, counter };
    const measure = async (post: (tag: number) => void) => {
      await rank.exchange(null);
      const took = median(count, 50, (i) => {
        const begun = performance.now();
        post(10 + (i & 1));
        landed[i & 1]!.waitSync(n);
        return (performance.now() - begun) * 1000;
      });
      counter.waitSync();
      return took;
    };
    const scattered = await measure((tag) => {
      scatter.immediate = tag;
      engine.scatter(scatter);
    });
    const met = await measure((tag) => {
      barrier.immediate = tag;
      engine.barrier(barrier);
    });
    return { scatter: scattered, barrier: met };
  });
}

/** Writes of 8 bytes, millions of them, and as many before: counts completions, arrivals, heap and resident memory. */
export function steady(rank: Rank) {
  const { options, count } = rank.args as StreamArgs;
  return between(rank, options, 4096, async ({ engine, write, counter, landed }) => {
    const run = (n: number) => {
      if (rank.rank === 0) {
        for (let i = 0; i < n; i++) engine.write(write);
        counter.waitSync();
      } else landed.waitSync(n, { timeoutMs: 3_600_000 });
    };
    // As many before as are counted: what is left on the heap by then is what each operation leaves there.
    run(count);
    await rank.exchange(null);
    const collected: number[] = [];
    const observer = new PerformanceObserver((list) => {
      for (const { startTime } of list.getEntries()) collected.push(startTime);
    });
    observer.observe({ entryTypes: ['gc'] });
    collectGarbage();
    const residentBefore = process.memoryUsage.rss();
    const heapBefore = getHeapStatistics().used_heap_size;
    const begun = performance.now();
    run(count);
    const ended = performance.now();
    const heapAfter = getHeapStatistics().used_heap_size;
    const residentAfter = process.memoryUsage.rss();
    await new Promise((resolve) => setTimeout(resolve, 50));
    observer.disconnect();
    return {
      completed: counter.completed,
      landed: landed.landed,
      heapBytesPerOperation: (heapAfter - heapBefore) / count,
      // Memory that V8 frees before, and when the event loop turns again, does not belong to these writes.
      collections: collected.filter((at) => at >= begun && at <= ended).length,
      residentBefore,
      residentAfter,
    };
  });
}

/** Collects all garbage now: V8 would otherwise do it at a time of its own, and hide what is allocated meanwhile. */
function collectGarbage(): void {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
}

/** In microseconds, of reading the clock twice. */
const clockCost = (): number =>
  median(2001, 0, () => {
    const begun = performance.now();
    return (performance.now() - begun) * 1000;
  });
