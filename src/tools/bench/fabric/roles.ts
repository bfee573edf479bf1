import { type EngineOptions, type ImmediateCounter, TransferEngine } from '../../../net/fabric/index.js';

/** The programs of the benchmark's ranks; each function runs in several processes (rank.ts). */

/** A process of the benchmark, as its own program sees it. */
export interface Rank {
  readonly rank: number;
  readonly ranks: number;
  readonly args: unknown;
  /** Gives a value to everybody and gets everybody's, by rank. */
  exchange<T>(value: T): Promise<T[]>;
}

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

/**
 * Meets the other of two ranks, does what is to be done, and leaves when both have done it. A write goes from the first half of this one's
 * region to the second half of the other's.
 */
async function between<T>(
  rank: Rank,
  options: EngineOptions,
  bytes: number,
  body: (pair: ReturnType<typeof pairOf>) => T | Promise<T>,
): Promise<T> {
  const setup = await meet(rank, options, bytes);
  const result = await body(pairOf(rank, setup));
  await rank.exchange(null);
  await setup.engine.close();
  return result;
}

function pairOf({ rank }: Rank, { engine, region, remotes }: Awaited<ReturnType<typeof meet>>) {
  const counter = engine.counter();
  const to = { target: remotes[1 - rank]!, targetOffset: region.bytes / 2 };
  const write = { source: region, sourceOffset: 0, ...to, bytes: 8, immediate: 1, counter };
  return { engine, region, counter, write, landed: engine.immediate(1) };
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

/** In microseconds, of reading the clock twice. */
const clockCost = (): number =>
  median(2001, 0, () => {
    const begun = performance.now();
    return (performance.now() - begun) * 1000;
  });
