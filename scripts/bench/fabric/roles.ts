import {
  type EngineOptions,
  type ImmediateCounter,
  type Region,
  type RemoteRegion,
  TransferEngine,
} from '../../../src/net/fabric/index.js';

/** The programs of the benchmark's two ranks; each function runs in both (rank.ts). */

/** A process of the benchmark, as its own program sees it. */
export interface Rank extends Sizes {
  readonly rank: number;
  readonly options: EngineOptions;
  /** Gives a value to the other, and gets those of both, by rank. */
  exchange<T>(value: T): Promise<T[]>;
}

/** So many writes, or rounds of them, each of so many bytes. */
export interface Sizes {
  readonly bytes: number;
  /** The writes that are under way at a time, a batch, or the peers of a scatter. */
  readonly window: number;
  readonly count: number;
}

/** Meets the other rank, does what is to be done, and leaves when both have done it. */
async function between<T>(
  { rank, options, exchange }: Rank,
  room: number,
  body: (pair: ReturnType<typeof pairOf>) => T | Promise<T>,
): Promise<T> {
  const engine = await TransferEngine.open(options);
  const region = engine.allocate(room);
  const all = await exchange({ address: engine.address, descriptor: region.descriptor });
  const { address, descriptor } = all[1 - rank]!;
  const target = engine.remote(engine.addPeer(address, `rank ${1 - rank}`), descriptor);
  const result = await body(pairOf(engine, region, target));
  await exchange(null);
  await engine.close();
  return result;
}

function pairOf(engine: TransferEngine, region: Region, target: RemoteRegion) {
  const counter = engine.counter();
  // From the first half of this rank's region to the second half of the other's.
  const to = { target, targetOffset: region.bytes / 2 };
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

/**
 * Rounds before those that count. A thread that polls leaves the compiler behind it little of a processor, so the
 * code takes longer to become what it will be for hours.
 */
const warmUpOf = ({ thread }: EngineOptions, caller: number, worker: number): number =>
  thread === 'caller' ? caller : worker;

/** Rank 0 writes and rank 1 writes back, `count` times. Microseconds of one way. */
export function pingPong(rank: Rank): Promise<number> {
  const { options, bytes, count } = rank;
  return between(rank, 4096, async ({ engine, write, counter, landed }) => {
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
  const { options, bytes, window, count } = rank;
  const room = 2 * Math.max(bytes * 4, 4096);
  return between({ ...rank, options: { ...options, queue: window } }, room, async (pair) => {
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
  const { options, bytes, window: batch, count } = rank;
  return between(rank, 4096, ({ engine, write, counter }) => {
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
  const { options, bytes, window: peers, count } = rank;
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
