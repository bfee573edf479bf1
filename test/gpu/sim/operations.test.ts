import { describe, expect, it } from 'vitest';
import { type IrModule, kernel, pointer } from '../../../src/lang/index.js';
import { reverseTwice } from '../../lang/cuda/large-shared.js';
import { download, launch, machineOf, upload } from './harness.js';

describe.each(['fast', 'checked'] as const)('on a %s machine', (mode) => {
  /** Runs a kernel with one output of u32 and one input; returns the words it wrote. */
  async function words(
    kernel: { ir(): IrModule },
    outWords: number,
    shape: { grid?: number; block?: number } = {},
    input?: ArrayBufferView,
  ): Promise<number[]> {
    const { machine, rank } = machineOf({ ranks: 1, mode });
    const out = rank.device.allocate(outWords * 4, 'out');
    rank.stream.fill(out.address, out.bytes, 0);
    const args = input === undefined ? { out } : { out, input: upload(rank, input) };
    await launch(rank, kernel.ir(), shape, args);
    const got = new Uint32Array(await download(rank, out));
    expect(machine.findings).toEqual([]);
    return [...got];
  }

  it('atomics return the value before and are never torn', async () => {
    const counting = kernel({ name: 'counting', params: { out: pointer('u32') } }, (g, { out }) => {
      const before = g.atomicAdd(out, 1, { order: 'relaxed', scope: 'gpu' });
      g.atomicAdd(out.at(1 + before), 1, { order: 'relaxed', scope: 'gpu' });
    });
    const got = await words(counting, 1 + 64, { grid: 2, block: 32 });
    expect(got).toEqual([64, ...new Array(64).fill(1)]);
  });

  it('an assertion that fails names its line and the thread', async () => {
    const small = kernel({ name: 'small', params: { out: pointer('u32') } }, (g, { out }) => {
      g.store(out.at(g.threadIdx.x), g.threadIdx.x);
      g.assert(g.threadIdx.x < 2);
    });
    expect(await words(small, 2, { block: 2 })).toEqual([0, 1]);
    await expect(words(small, 3, { block: 3 })).rejects.toThrow(
      /the assertion at .*operations\.test\.ts:\d+:\d+ fails on rank 0, block 0, thread 2: g\.assert\(g\.threadIdx\.x < 2\)/,
    );
  });

  it('prints values as they are, behind the rank, the block and the thread', async () => {
    const lines: string[] = [];
    const talks = kernel({ name: 'talks', params: { out: pointer('u32') } }, (g, { out }) => {
      g.store(out.at(g.threadIdx.x), 0xffffffff);
      const word = g.load(out.at(g.threadIdx.x));
      if (g.threadIdx.x === 1) {
        g.print('100 % of', word, g.bits('i32', word), word > 5, g.u64(word) * g.u64(2), g.f32(word), 0.5);
        g.print('epoch', 7, g.bf16(1.5));
        g.print();
      }
    });
    const { rank } = machineOf({ ranks: 1, mode, print: (line) => lines.push(line) });
    await launch(rank, talks.ir(), { block: 2 }, { out: rank.device.allocate(8, 'out') });
    await rank.stream.synchronize();
    expect(lines).toEqual([
      'rank 0, block 0, thread 1: 100 % of 4294967295 -1 true 8589934590 4294970000 0.5',
      'rank 0, block 0, thread 1: epoch 7 1.5',
      'rank 0, block 0, thread 1: ',
    ]);
  });

  it('atomics know signs and widths', async () => {
    const signs = kernel({ name: 'signs', params: { out: pointer('u32') } }, (g, { out }) => {
      g.store(out.as('i32'), g.i32(-5));
      const before = g.atomicAdd(out.as('i32'), g.i32(3), { order: 'relaxed', scope: 'gpu' });
      g.store(out.at(1).as('i32'), before);
      const wide = out.as('u64').at(1);
      g.store(wide, g.u64(0xffffffffn));
      g.atomicAdd(wide, g.u64(1n), { order: 'acq_rel', scope: 'gpu' });
    });
    expect(await words(signs, 4, { block: 1 })).toEqual([0xfffffffe, 0xfffffffb, 0, 1]);
  });

  it('keeps the larger or the smaller, by the sign of its type', async () => {
    const limits = kernel({ name: 'limits', params: { out: pointer('u32') } }, (g, { out }) => {
      const how = { order: 'relaxed', scope: 'gpu' } as const;
      g.store(out.at(0), 0xfffffff0);
      g.store(out.at(4), g.atomicMax(out.at(0), 5, how));
      g.store(out.at(1).as('i32'), g.i32(-5));
      g.atomicMax(out.at(1).as('i32'), g.i32(3), how);
      g.atomicMin(out.at(1).as('i32'), g.i32(-7), how);
      const wide = out.as('u64').at(1);
      g.store(wide, 0xffffffffn);
      g.atomicMin(wide, 9n, how);
      g.atomicMax(wide, g.u64(0xffffffff) * g.u64(2), how);
      g.atomicMin(out.at(0), 0xffffff00, how);
    });
    expect(await words(limits, 5, { block: 1 })).toEqual([0xffffff00, 0xfffffff9, 0xfffffffe, 1, 0xfffffff0]);
  });

  it('exchanges, and swaps only where it finds what is expected', async () => {
    const swaps = kernel({ name: 'swaps', params: { out: pointer('u32') } }, (g, { out }) => {
      const how = { order: 'acq_rel', scope: 'gpu' } as const;
      g.store(out.at(1), 7);
      g.store(out.at(0), g.atomicExchange(out.at(1), 0xffffffff, how));
      g.store(out.at(2), g.atomicCas(out.at(1), 7, 8, how));
      g.store(out.at(3), g.atomicCas(out.at(1), 0xffffffff, 9, how));
      const long = out.as('u64').at(2);
      g.store(long, g.u64(0xffffffff) * g.u64(4));
      g.store(out.as('u64').at(3), g.atomicCas(long, g.u64(0xffffffff) * g.u64(4), 5n, how));
    });
    const bits = 0xffffffff;
    expect(await words(swaps, 8, { block: 1 })).toEqual([7, 9, bits, bits, 5, 0, bits - 3, 3]);
  });

  it('blocks of a cluster reach the shared memory of each other', async () => {
    const turn = kernel({ name: 'turn', params: { out: pointer('u32') }, cluster: 4 }, (g, { out }) => {
      const row = g.shared('v16', 2);
      const bytes = g.shared('u8', 1);
      const rank = g.blockIdx.x % 4;
      g.store(row.at(1), g.pack('u32', [rank, 1, 2, 3]));
      g.cluster.barrier();
      g.cluster.store(
        bytes,
        0x1f0 + g.lane(g.cluster.load(row.at(1), (rank + 1) % 4), 'u32', 0),
        (rank + 3) % 4,
      );
      g.cluster.barrier();
      g.store(out.at(g.blockIdx.x), g.load(bytes));
    });
    // Block r was given by block r + 1 what block r + 2 holds.
    const got = [2, 3, 0, 1].map((rank) => 0xf0 + rank);
    expect(await words(turn, 8, { grid: 8, block: 1 })).toEqual([...got, ...got]);
  });

  it('lanes of a warp exchange values', async () => {
    const exchange = kernel({ name: 'exchange', params: { out: pointer('u32') } }, (g, { out }) => {
      const me = g.laneId;
      const row = out.at(g.threadIdx.x * 7);
      g.store(row, g.warp.shuffle(me * 2, 31 - me));
      g.store(row.at(1), g.warp.shuffleXor(me, 5));
      g.store(row.at(2), g.warp.shuffleUp(me, 3));
      g.store(row.at(3), g.warp.ballot(me % 3 === 0));
      g.store(row.at(4), g.u32(g.warp.any(me === 7)) + g.u32(g.warp.any(me === 32)) * 2);
      g.store(row.at(5), g.warp.match(me / 10));
      g.store(row.at(6), g.bits('u32', g.warp.shuffle(g.f32(me) + 0.5, 4)));
    });
    const got = await words(exchange, 64 * 7, { block: 64 });
    const lanes = (are: (lane: number) => boolean) =>
      Array.from({ length: 32 }, (_, lane) => (are(lane) ? 2 ** lane : 0)).reduce((a, b) => a + b);
    for (let thread = 0; thread < 64; thread++) {
      const lane = thread % 32;
      expect(got.slice(thread * 7, thread * 7 + 7)).toEqual([
        (31 - lane) * 2,
        lane ^ 5,
        lane < 3 ? lane : lane - 3,
        lanes((other) => other % 3 === 0),
        1,
        lanes((other) => Math.floor(other / 10) === Math.floor(lane / 10)),
        0x40900000,
      ]);
    }
  });

  it('vectors open and close as every type', async () => {
    const vectors = kernel(
      { name: 'vectors', params: { out: pointer('u32'), input: pointer('v16') } },
      (g, { out, input }) => {
        const v = g.load(input);
        g.store(
          out.as('v16'),
          g.pack('u32', [g.lane(v, 'u32', 3), g.lane(v, 'u32', 2), g.lane(v, 'u32', 1), g.lane(v, 'u32', 0)]),
        );
        g.store(out.as('v16').at(1), g.pack('u64', [g.lane(v, 'u64', 1), g.lane(v, 'u64', 0)]));
        const halves = g.registers('f32', 8);
        for (const i of g.unroll(8)) halves[i] = g.f32(g.lane(v, 'bf16', i)) * g.f32(2);
        g.store(out.as('v16').at(2), g.pack('bf16', halves));
        const bytes = g.registers('u32', 16);
        for (const i of g.unroll(16)) bytes[i] = g.lane(v, 'u8', 15 - i);
        g.store(out.as('v16').at(3), g.pack('u8', bytes));
        const small = g.registers('f32', 16, g.f32(1.0625));
        g.store(out.as('v16').at(4), g.pack('e4m3', small));
      },
    );
    const input = new Float32Array([1, 2, -3, 0.5]);
    const bits = [...new Uint32Array(input.buffer)];
    const got = await words(vectors, 20, { block: 1 }, input);
    expect(got.slice(0, 4)).toEqual([...bits].reverse());
    expect(got.slice(4, 8)).toEqual([bits[2], bits[3], bits[0], bits[1]]);
    // The upper half of an f32 is the bf16 of the same value; the lower halves here are zero.
    expect(got.slice(8, 12)).toEqual([...new Uint32Array(input.map((x) => x * 2).buffer)]);
    const bytes = new Uint8Array(input.buffer.slice(0)).reverse();
    expect(got.slice(12, 16)).toEqual([...new Uint32Array(bytes.buffer)]);
    // 1.0625 lies between 1 and 1.125: the tie goes to the even 1.
    expect(got.slice(16)).toEqual(new Array(4).fill(0x38383838));
  });

  it('small integers widen when loaded and are cut off when stored', async () => {
    const bytes = kernel(
      { name: 'bytes', params: { out: pointer('u32'), input: pointer('u8') } },
      (g, { out, input }) => {
        g.store(out, g.load(input.at(3)) * 1000);
        g.store(out.at(1).as('u8'), 0x1ff);
        g.store(out.at(1).as('u16').at(1), 0x1fffe);
        g.store(out.at(2), g.load(input.as('u16').at(1)));
      },
    );
    const got = await words(bytes, 3, { block: 1 }, Uint8Array.from([1, 2, 3, 200]));
    expect(got).toEqual([200_000, 0xfffe00ff, 0xc803]);
  });

  it('assigns vectors and pointers from themselves', async () => {
    const swap = kernel(
      { name: 'swap', params: { out: pointer('u32'), input: pointer('u32') } },
      (g, { out, input }) => {
        let v = g.load(input.as('v16'));
        v = g.pack('u32', [
          g.lane(v, 'u32', 1),
          g.lane(v, 'u32', 0),
          g.lane(v, 'u32', 3),
          g.lane(v, 'u32', 2),
        ]);
        g.store(out.as('v16'), v);
        let p = input;
        p = p.at(1);
        p = p.at(2);
        g.store(out.at(4), g.load(p));
      },
    );
    expect(await words(swap, 5, { block: 1 }, Uint32Array.from([1, 2, 3, 4]))).toEqual([2, 1, 4, 3, 4]);
  });

  it('bulk copies arrive by the time their mbarrier or their group says so', async () => {
    const bulk = kernel(
      { name: 'bulk', params: { out: pointer('u32'), input: pointer('u32') } },
      (g, { out, input }) => {
        const tile = g.shared('v16', 4);
        const gate = g.shared('u64', 1);
        if (g.threadIdx.x === 0) g.mbarrier.init(gate, 1);
        g.barrier();
        if (g.threadIdx.x === 0) {
          g.mbarrier.expect(gate, 64);
          g.bulk.load(tile, input.as('v16'), 64, gate);
        }
        g.mbarrier.await(gate, 0);
        const mine = tile.as('u32').at(g.threadIdx.x);
        const value = g.load(mine) + 1;
        g.barrier();
        g.store(mine, value);
        g.barrier();
        if (g.threadIdx.x === 0) {
          g.proxyFence('shared');
          g.bulk.store(out.as('v16'), tile, 64);
          g.bulk.commit();
          g.bulk.wait(0);
        }
      },
    );
    const input = Uint32Array.from({ length: 16 }, (_, i) => i * i);
    expect(await words(bulk, 16, { block: 16 }, input)).toEqual([...input].map((x) => x + 1));
  });

  it('asynchronous loads come in groups', async () => {
    const loads = kernel(
      { name: 'loads', params: { out: pointer('u32'), input: pointer('u32') } },
      (g, { out, input }) => {
        const stages = g.shared('v16', 3 * 4);
        const at = g.threadIdx.x;
        for (const i of g.unroll(2)) {
          g.async.load(stages.at(4 * i + at), input.as('v16').at(4 * i + at));
          g.async.commit();
        }
        for (let i = g.u32(0); i < 4; i += 1) {
          if (i + 2 < 4)
            g.async.load(stages.at(4 * ((i + 2) % 3) + at), input.as('v16').at(4 * (i + 2) + at));
          g.async.commit();
          g.async.wait(2);
          g.barrier();
          g.store(out.as('v16').at(4 * i + at), g.load(stages.at(4 * (i % 3) + 3 - at)));
          g.barrier();
        }
      },
    );
    const input = Uint32Array.from({ length: 64 }, (_, i) => i);
    const swapped = [...input].map((i) => 16 * (i >> 4) + 4 * (3 - ((i >> 2) & 3)) + (i & 3));
    expect(await words(loads, 64, { block: 4 }, input)).toEqual(swapped);
  });

  it('a warp loads matrices: a lane gets two elements of a row of each', async () => {
    const matrices = kernel(
      { name: 'matrices', params: { out: pointer('u32'), input: pointer('u32') } },
      (g, { out, input }) => {
        const tile = g.shared('v16', 32);
        g.store(tile.at(31 - g.laneId), g.load(input.as('v16').at(g.laneId)));
        g.barrier();
        g.store(out.as('v16').at(g.laneId), g.warp.ldmatrix(tile.at(31 - g.laneId)));
      },
    );
    const input = Uint32Array.from({ length: 128 }, (_, i) => i);
    const got = await words(matrices, 128, { block: 32 }, input);
    const expected = Array.from({ length: 128 }, (_, i) => {
      const [lane, matrix] = [i >> 2, i & 3];
      return 4 * (8 * matrix + (lane >> 2)) + (lane & 3);
    });
    expect(got).toEqual(expected);
  });

  it('a warp multiplies matrices, spread over its lanes as ldmatrix deals them', async () => {
    const multiply = kernel(
      { name: 'multiply', params: { out: pointer('f32'), input: pointer('bf16') } },
      (g, { out, input }) => {
        // Rows 0 … 15 are a's, 16 … 31 are b's, of 16 elements each.
        const tile = g.shared('v16', 64);
        const lane = g.laneId;
        for (const i of g.unroll(2))
          g.store(tile.at(32 * i + lane), g.load(input.as('v16').at(32 * i + lane)));
        g.barrier();
        const a = g.warp.ldmatrix(tile.at(2 * (lane % 16) + lane / 16));
        const b = g.warp.ldmatrix(tile.at(32 + 2 * (8 * (lane / 16) + (lane % 8)) + ((lane / 8) % 2)));
        for (const half of g.unroll(2)) {
          const one = g.f32(1);
          const product = g.warp.mma(a, b, half, g.pack('f32', [one, one, one, one]));
          for (const i of g.unroll(4)) {
            const [row, column] = [lane / 4 + 8 * (i >> 1), 8 * half + 2 * (lane % 4) + (i % 2)];
            g.store(out.at(16 * row + column), g.lane(product, 'f32', i));
          }
        }
      },
    );
    // Integers that are exact in bf16, and their sums in f32.
    const elements = Array.from({ length: 512 }, (_, i) => ((i * 37) % 23) - 11);
    const bits = new Uint32Array(new Float32Array(elements).buffer);
    const input = Uint16Array.from(bits, (word) => word >>> 16);
    const got = new Float32Array(Uint32Array.from(await words(multiply, 256, { block: 32 }, input)).buffer);
    const expected = Array.from({ length: 256 }, (_, i) => {
      const [row, column] = [i >> 4, i & 15];
      let sum = 1;
      for (let k = 0; k < 16; k++) sum += elements[16 * row + k]! * elements[256 + 16 * column + k]!;
      return sum;
    });
    expect([...got]).toEqual(expected);
  });

  it('shared memory may be large, and declared where it is used', async () => {
    const input = Uint32Array.from({ length: 64 }, (_, i) => i * i);
    const got = await words(reverseTwice, 128, { block: 64 }, input);
    expect(got).toEqual([...input.toReversed(), ...input]);
  });

  it('a loop that polls by itself lets the others go on', async () => {
    const spin = kernel({ name: 'spin', params: { out: pointer('u32') } }, (g, { out }) => {
      if (g.threadIdx.x === 0) {
        while (g.load(out, { order: 'acquire', scope: 'gpu' }) !== 31) g.sleep(100);
        g.store(out.at(1), g.load(out.at(2)));
      } else {
        if (g.threadIdx.x === 31) g.store(out.at(2), 77);
        g.atomicAdd(out, 1, { order: 'release', scope: 'gpu' });
      }
    });
    expect(await words(spin, 3)).toEqual([31, 77, 77]);
  });

  it('a loop that polls for a block that has not started lets it start', async () => {
    const later = kernel({ name: 'later', params: { out: pointer('u32') } }, (g, { out }) => {
      if (g.blockIdx.x === 0) {
        while (g.load(out, { order: 'acquire', scope: 'gpu' }) !== 3) g.sleep(10);
      } else {
        g.awaitEpoch(out, g.blockIdx.x - 1, { order: 'acquire', scope: 'gpu', limit: 1000 });
        g.store(out, g.blockIdx.x, { order: 'release', scope: 'gpu' });
      }
    });
    expect(await words(later, 1, { grid: 4, block: 1 })).toEqual([3]);
  });

  it('a loop that polls can give up after a time', async () => {
    const patient = kernel({ name: 'patient', params: { out: pointer('u32') } }, (g, { out }) => {
      const start = g.clock();
      let looks = g.u32(0);
      while (g.load(out, { order: 'acquire', scope: 'gpu' }) === 0) {
        looks += 1;
        if (g.clock() - start >= 100_000n) break;
      }
      g.store(out.at(1), g.u32(looks > 0));
    });
    expect(await words(patient, 2, { block: 1 })).toEqual([0, 1]);
  });

  it('time passes, also while asleep', async () => {
    const clock = kernel({ name: 'clock', params: { out: pointer('u32') } }, (g, { out }) => {
      const start = g.clock();
      g.sleep(5000);
      const end = g.clock();
      g.store(out, g.u32(end - start >= 5000n));
    });
    expect(await words(clock, 1, { block: 1 })).toEqual([1]);
  });

  it('the last threads may make an incomplete warp', async () => {
    const partial = kernel({ name: 'partial', params: { out: pointer('u32') } }, (g, { out }) => {
      g.store(out.at(g.threadIdx.x), g.warp.ballot(true));
    });
    const got = await words(partial, 40, { block: 40 });
    expect(got).toEqual([...new Array(32).fill(0xffffffff), ...new Array(8).fill(0xff)]);
  });
});

it('a compare-and-swap that found something else has released nothing', async () => {
  const fails = kernel({ name: 'fails', params: { out: pointer('u32') } }, (g, { out }) => {
    if (g.blockIdx.x === 0) {
      g.store(out.at(4), 1, { order: 'relaxed', scope: 'gpu' });
    } else if (g.blockIdx.x === 1) {
      g.store(out, 7);
      g.awaitEpoch(out.at(4), 1, { order: 'relaxed', scope: 'gpu', limit: 1000 });
      g.atomicCas(out.at(4), 0, 2, { order: 'release', scope: 'gpu' });
      g.store(out.at(8), 1, { order: 'relaxed', scope: 'gpu' });
    } else {
      g.awaitEpoch(out.at(8), 1, { order: 'relaxed', scope: 'gpu', limit: 1000 });
      g.load(out.at(4), { order: 'acquire', scope: 'gpu' });
      g.store(out.at(1), g.load(out));
    }
  });
  for (let seed = 0; seed < 20; seed++) {
    const { machine, rank } = machineOf({ ranks: 1, mode: 'checked', seed: `${seed}` });
    const out = rank.device.allocateWindow(64, 'out');
    await launch(rank, fails.ir(), { grid: 3, block: 1 }, { out });
    await rank.stream.synchronize();
    expect(machine.findings.map(({ kind }) => kind)).toEqual(['race']);
  }
});
