// Two ranks' proxies in one process, turn about, over a network that is a copy or libfabric: runs rounds as kernels would ask for
// them, and prints what the heap does meanwhile. Started with --expose-gc.

import { allocate } from '../../../../src/base/native/index.js';
import { NativeView } from '../../../../src/gpu/index.js';
import { byteSize } from '../../../../src/lang/index.js';
import { initialEpoch } from '../../../../src/moe/families/common/waits.js';
import type { ProxyData } from '../../../../src/moe/families/hybrid/proxy.js';
import { hybrid, type WirePlan } from '../../../../src/moe/families/index.js';
import type { Layer } from '../../../../src/moe/layer/index.js';
import { LocalCircle } from '../../../../src/net/world/index.js';
import { type Connect, overFabric } from '../../../../src/net/world/proxy/network.js';
import { type PreparedProxy, prepareProxy, proxyMaker } from '../../../../src/net/world/proxy/program.js';
import { targetOn } from '../target.js';

const [network, roundsText] = process.argv.slice(2) as [string, string];
const rounds = Number(roundsText);
/** What the compiler does once, it has done in one of them. */
const spans = 3;

const layer: Layer = {
  ...{ ranks: 2, experts: 4, topK: 2, maxTokens: 5, weights: true, counts: false },
  payloads: [{ name: 'x', rowBytes: 32 }],
  output: { dtype: 'bf16', hidden: 16 },
};

interface Rank {
  readonly memory: NativeView;
  /** What NICs reach. */
  readonly raw: Uint8Array;
  proxy: PreparedProxy;
}
const ranks: Rank[] = [];

/** A write is a copy, and its tag is there at once. */
const loopBack: Connect = async (circle) => {
  const { rank } = circle;
  const tags = queues[rank]!;
  await circle.barrier();
  return {
    ...{ provider: null, flush: null },
    network: {
      write({ peer, from, to, bytes, tag }) {
        const source = ranks[rank]!.raw;
        const target = ranks[peer]!.raw;
        for (let i = 0; i < bytes; i++) target[to + i] = source[from + i]!;
        queues[peer]!.add(tag);
        return true;
      },
      arrived: () => tags.take(),
    },
    progress: () => false,
    allCame: () => true,
    close: async () => {},
  };
};
class Tags {
  readonly #tags = new Int32Array(64);
  #head = 0;
  #tail = 0;

  add(tag: number): void {
    this.#tags[this.#tail++ & 63] = tag;
  }

  take(): number {
    return this.#head === this.#tail ? -1 : this.#tags[this.#head++ & 63]!;
  }
}
const queues = [new Tags(), new Tags()];

/** Both ranks' proxies take turns until a word of each has that value. */
function turn(at: number, value: number): void {
  for (let turns = 0; turns < 1e7; turns++) {
    ranks[0]!.proxy.step();
    ranks[1]!.proxy.step();
    if (ranks[0]!.memory.load(at) === value && ranks[1]!.memory.load(at) === value) return;
  }
  throw new Error(`round ${value} did not come`);
}

/** Every message of a round, each with all its rows. */
function round({ phases, share, chunk }: ProxyData, epoch: number): void {
  for (const { ready, counts, came, out, room } of phases) {
    for (let c = 0; c * chunk < share; c++) {
      const tokens = Math.min(chunk, share - c * chunk);
      for (const { memory } of ranks) {
        memory.store(out + c * room, epoch);
        memory.store(out + c * room + 4, share);
        memory.store(out + c * room + 8, 2 ** tokens - 1);
        memory.store(out + c * room + 12, tokens);
        memory.store(counts + 4 * c, tokens);
        memory.store(ready + 4 * c, epoch);
      }
      turn(came + 4 * c, epoch);
    }
  }
}

const wireOf = (rank: number): WirePlan => {
  const target = targetOn([0, 1], { kind: 'sim', rank });
  return hybrid.plan(layer, target, hybrid.defaults(layer, target)).wire!;
};

await LocalCircle.run(2, async (circle) => {
  const { layout, front, program, allOnes = [] } = wireOf(circle.rank);
  const { address, buffer } = allocate(layout.bytes);
  const raw = new Uint8Array(buffer);
  for (const { offset, type, length } of allOnes) raw.fill(0xff, offset, offset + byteSize[type] * length);
  const memory = new NativeView(raw);
  const connect =
    network === 'copies' ? loopBack : overFabric({ provider: network as never, devices: ['lo'] });
  const made = { ...program, make: await proxyMaker(program) };
  const nics = { kind: 'host', raw: raw.subarray(front) } as const;
  const wire = { address, front, side: 'host', host: memory, nics } as const;
  const proxy = await prepareProxy(circle, connect, made, wire);
  ranks[circle.rank] = { memory, raw: nics.raw, proxy };
  await circle.barrier('both are there');
  if (circle.rank === 0) measure(program.data as ProxyData);
  await circle.barrier('measured');
  await proxy.close();
});

function measure(data: ProxyData): void {
  const used = (): number => process.memoryUsage().heapUsed;
  let epoch = initialEpoch;
  const run = (): void => {
    for (let n = 0; n < rounds; n++) {
      epoch = (epoch + 1) >>> 0;
      round(data, epoch);
    }
  };
  run();
  for (let span = 0; span < spans; span++) {
    global.gc!();
    const before = used();
    run();
    const allocated = used() - before;
    global.gc!();
    console.log(JSON.stringify({ allocated, kept: used() - before }));
  }
}
