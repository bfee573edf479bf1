/** Whatever cannot work is refused before anything is launched, by an error that names the argument. */
import { describe, expect, it } from 'vitest';
import { ArgumentError, DisposedError } from '../../src/base/errors.js';
import { SimMachine } from '../../src/gpu/sim/index.js';
import { kernel } from '../../src/lang/index.js';
import {
  type DispatchInputs,
  ExpertParallel,
  type ExpertParallelOptions,
  emptyTensor,
  row,
  tensorFrom,
  wrap,
} from '../../src/moe/index.js';
import { type LocalWorldOptions, World } from '../../src/net/world/index.js';
import { liveMemory } from './live-memory.js';

const good: ExpertParallelOptions = {
  experts: 4,
  topK: 2,
  maxTokens: 3,
  payloads: { x: row('bf16', 8), scales: row('u8', 3) },
  output: row('bf16', 8),
};

const spread = { blocks: 1, threads: 32, parts: 1, inFlight: 4, teams: 1 } as const;
const tuning = { dispatch: spread, combine: { ...spread, way: 'push', ahead: 1 } } as const;
const dispatchOf = (change: object) => ({ tuning: { ...tuning, dispatch: { ...spread, ...change } } });
const combineOf = (change: object) => ({ tuning: { ...tuning, combine: { ...tuning.combine, ...change } } });

const nothing = kernel({ name: 'nothing', params: {} }, () => {});

/** Values that no caller's types allow, but JavaScript and JSON do. */
const any = (value: unknown): never => value as never;

/** What a call throws, on a machine that must not have launched anything. */
async function refusal(
  body: (world: World) => Promise<unknown>,
  options: Partial<LocalWorldOptions> = {},
): Promise<unknown> {
  const ranks = options.ranks ?? 1;
  const machine =
    Number.isInteger(ranks) && ranks > 0 && ranks <= 128 ? SimMachine.create({ ranks }) : undefined;
  const error = await World.local(
    { ranks, device: 'sim', ...(machine && { sim: machine }), ...options },
    body,
  ).then(
    () => 'nothing was thrown',
    (thrown: unknown) => thrown,
  );
  expect(machine?.statistics.launches ?? 0).toBe(0);
  return error;
}

function expectArgument(error: unknown, argument: string): void {
  expect(error).toBeInstanceOf(ArgumentError);
  expect((error as ArgumentError).argument).toBe(argument);
  expect((error as ArgumentError).message).toMatch(/ is .+; it must be /);
}

describe('World.local refuses', () => {
  const cases: Record<string, [argument: string, options: Partial<LocalWorldOptions>]> = {
    'no ranks': ['ranks', { ranks: 0 }],
    'a device that there is not': ['device', { device: any('tpu') }],
    'a seed that is no text': ['seed', { sim: { seed: any(7) } }],
    'a limit that is no number': ['stepLimit', { sim: { stepLimit: any('many') } }],
    'a substitute that cannot be called': ['substitute', { sim: { substitute: any({}) } }],
    'a machine that is none': ['sim', { sim: any(3) }],
  };
  it.each(Object.entries(cases))('%s', async (_, [argument, options]) => {
    expectArgument(await refusal(async () => {}, options), argument);
  });

  it.each([-1, 1.5, 129, 1025])('ranks that are %d, by the one range that it takes', async (ranks) => {
    expect(String(await refusal(async () => {}, { ranks }))).toMatch(
      / ranks is -?[\d.]+; it must be an integer from 1 to 128$/,
    );
  });

  it('a machine with another number of GPUs', async () => {
    const sim = SimMachine.create({ ranks: 3 });
    expectArgument(await refusal(async () => {}, { ranks: 2, sim }), 'ranks');
  });
});

describe('ExpertParallel.create refuses', () => {
  const cases: Record<
    string,
    [argument: string, options: Partial<Record<keyof ExpertParallelOptions, unknown>>]
  > = {
    'no experts': ['experts', { experts: 0 }],
    'more tokens than any memory holds': [
      'maxTokens',
      { maxTokens: 2 ** 20, payloads: { x: row('u8', 2 ** 20) } },
    ],
    'missing payloads': ['payloads', { payloads: undefined }],
    'a list of payloads': ['payloads', { payloads: null }],
    'a payload that is no row': ['payloads.x', { payloads: { x: null } }],
    'a payload of an unknown dtype': ['payloads.x.dtype', { payloads: { x: row(any('f64'), 8) } }],
    'a payload of no length': ['payloads.x.length', { payloads: { x: row('bf16', 0) } }],
    'a payload of NaN': ['payloads.x.length', { payloads: { x: row('bf16', Number.NaN) } }],
    'a payload longer than a MiB': ['payloads.x.length', { payloads: { x: row('f32', 2 ** 19) } }],
    'a payload named like what is received': ['payloads[0].name', { payloads: { counts: row('u8', 1) } }],
    'a missing output': ['output', { output: undefined }],
    'an output of bytes': ['output.dtype', { output: row('u8', 8) }],
    'an output of no length': ['output.length', { output: row('bf16', 0) }],
    'an absurd output': ['output.length', { output: row('bf16', 1e9) }],
    'no time to wait': ['waitMs', { waitMs: 0 }],
    'no end of waiting': ['waitMs', { waitMs: Number.POSITIVE_INFINITY }],
    'no blocks': ['tuning.dispatch.blocks', dispatchOf({ blocks: 0 })],
    'half a warp': ['tuning.dispatch.threads', dispatchOf({ threads: 16 })],
    'too many threads': ['tuning.combine.threads', combineOf({ threads: 2048 })],
    'no parts': ['tuning.combine.parts', combineOf({ parts: 0 })],
    'nothing in flight': ['tuning.dispatch.inFlight', dispatchOf({ inFlight: 0 })],
    'more in flight than registers hold': ['tuning.combine.inFlight', combineOf({ inFlight: 9 })],
    'teams of half a warp': ['tuning.dispatch.teams', dispatchOf({ teams: 2 })],
    'an unknown way': ['tuning.combine.way', combineOf({ way: 'throw' })],
    'a push of rows that cannot be pushed': ['tuning.combine.way', { output: row('bf16', 7), tuning }],
    'a tuning without its halves': ['tuning.combine', { tuning: {} }],
    'weights that are no flag': ['weights', { weights: 'yes' }],
    'no weights, which a plan needs': ['weights', { weighting: 'plan', weights: false }],
    'a weighting that does not exist': ['weighting', { weighting: 'combine' }],
    'an option that is misspelt': ['options.splt', { splt: true } as never],
    'ranks that the world has not': ['options.ranks', { ranks: 7 } as never],
    'nodes that the world has not': ['options.nodes', { nodes: 3 } as never],
    'a device that is not the world’s': ['options.device', { device: 'cuda' } as never],
    'half a piece ahead': ['tuning.combine.ahead', combineOf({ ahead: 0.5 })],
  };
  it.each(Object.entries(cases))('%s', async (_, [argument, options]) => {
    const error = await refusal((world) => ExpertParallel.create(world, { ...good, ...options } as never));
    expectArgument(error, argument);
  });

  it('a number in quotes, and says that it is a text', async () => {
    const create = (world: World) => ExpertParallel.create(world, { ...good, maxTokens: any('8') });
    expect(String(await refusal(create))).toMatch(/maxTokens is "8"; .*: a number, not a string$/);
  });

  it('fewer threads than ranks', async () => {
    const error = await refusal((world) => ExpertParallel.create(world, { ...good, tuning }), { ranks: 33 });
    expectArgument(error, 'tuning.dispatch.threads');
  });

  it('more ranks than share NVLink', async () => {
    expectArgument(await refusal((world) => ExpertParallel.create(world, good), { ranks: 73 }), 'ranks');
  });

  it.each([
    ['experts', { experts: 5 }],
    ['topK', { topK: 3 }],
    ['maxTokens', { maxTokens: 4 }],
    ['output', { output: row('f32', 8) }],
    ['payloads', { payloads: { x: row('bf16', 8) } }],
    ['payloads', { payloads: { x: row('f16', 8), scales: row('u8', 3) } }],
    ['counts', { counts: true }],
  ] as const)('ranks that disagree on %s, naming both values', async (argument, other) => {
    const error = await refusal(
      (world) => ExpertParallel.create(world, { ...good, ...(world.rank === 1 ? other : {}) }),
      { ranks: 2 },
    );
    expectArgument(error, argument);
    expect((error as Error).message).toMatch(/the same on all ranks; rank [01] has/);
  });
});

it.each([
  ['waits', { waits: true }],
  ['masks', { onLoss: 'mask' }],
] as const)(
  'every rank hears that they disagree on %s, whichever of them has it',
  async (argument, other) => {
    for (const having of [0, 1]) {
      const errors = await World.local({ ranks: 2, device: 'sim', timeoutMs: 2000 }, (world) =>
        ExpertParallel.create(world, { ...good, ...(world.rank === having ? other : {}) }).then(
          () => null,
          (error: unknown) => error,
        ),
      );
      for (const error of errors) expectArgument(error, argument);
    }
  },
);

/** A layer of one rank, with inputs that it takes. */
async function layer(world: World, options: Partial<ExpertParallelOptions> = {}) {
  const ep = await ExpertParallel.create(world, { ...good, ...options });
  const stream = world.device.createStream();
  const inputs: DispatchInputs = {
    topkIds: Int32Array.of(0, 1, 2, -1),
    topkWeights: Float32Array.of(0.5, 0.5, 1, 0),
    payloads: { x: new Uint16Array(16), scales: new Uint8Array(6) },
  };
  const out = emptyTensor(world.device, 'bf16', [2, 8]);
  return { ep, stream, inputs, out, device: world.device };
}

type Layer = Awaited<ReturnType<typeof layer>>;

describe('dispatch refuses', () => {
  /** test/moe/inputs.test.ts has everything that these checks refuse, and that of the output of combine. */
  const cases: Record<string, [argument: string, change: (of: Layer) => Record<string, unknown>]> = {
    'missing weights': ['topkWeights', () => ({ topkWeights: undefined })],
    'an id that no expert has': ['topkIds[1, 0]', () => ({ topkIds: Int32Array.of(0, 1, 4, 0) })],
    'rows at an odd address': [
      'payloads.x.data',
      ({ inputs, device }) => {
        const { data } = emptyTensor(device, 'u8', [64]);
        return { payloads: { ...inputs.payloads, x: wrap(data + 2, 'bf16', [2, 8]) } };
      },
    ],
  };
  it.each(Object.entries(cases))('%s', async (_, [argument, change]) => {
    const error = await refusal(async (world) => {
      const of = await layer(world);
      of.ep.dispatch({ ...of.inputs, ...change(of) } as never, of.stream);
    });
    expectArgument(error, argument);
  });

  it('a Proxy around a stream or a device', async () => {
    await World.local({ ranks: 1, device: 'sim' }, async (world) => {
      const { ep, stream, inputs } = await layer(world);
      const { device } = world;
      const wrapped = new Proxy(stream, {});
      const itself =
        'stream is "a Proxy"; it must be what it stands for: the stream that device.createStream() gave';
      expect(() => ep.dispatch(inputs, wrapped)).toThrow(itself);
      expect(() => tensorFrom(device, wrapped, [1], 'f32')).toThrow(itself);
      expect(() => emptyTensor(new Proxy(device, {}), 'i32', [2])).toThrow(
        'device is "a Proxy"; it must be what it stands for: world.device itself',
      );
      const launcher = (await device.load(nothing.ir())).launcher({ grid: 1, block: 1, rank: 0 });
      expect(() => launcher.launch(wrapped)).toThrow(/^stream is .* a stream of the simulated GPU #0$/);
    });
  });

  it('a tensor of another world', async () => {
    await World.local({ ranks: 1, device: 'sim' }, async (world) => {
      const { ep, stream, inputs } = await layer(world);
      await World.local({ ranks: 1, device: 'sim' }, async ({ device }) => {
        const topkIds = emptyTensor(device, 'i32', [2, good.topK]);
        expect(() => ep.dispatch({ ...inputs, topkIds }, stream)).toThrow(
          /^topkIds is \d+; it must be the address of memory that was allocated on a device of this world$/,
        );
      });
      await ep.dispose();
    });
  });

  it('a second round before the first is combined, and goes on where it was', async () => {
    await World.local({ ranks: 1, device: 'sim' }, async (world) => {
      const { ep, stream, inputs, out } = await layer(world);
      ep.dispatch(inputs, stream);
      expect(() => ep.dispatch(inputs, stream)).toThrow('so combine or combineSend comes next');
      ep.combine(out, stream);
      await ep.synchronize(stream);
      await ep.dispose();
    });
  });
});

describe('combine refuses', () => {
  const cases: Record<string, [argument: string, out: (of: Layer) => unknown]> = {
    nothing: ['out', () => undefined],
    'rows with gaps': ['out', ({ out }) => wrap(out.data, 'bf16', [2, 8], [16, 1])],
    'rows at an odd address': ['out.data', ({ out }) => wrap(out.data + 2, 'bf16', [2, 8])],
  };
  it.each(Object.entries(cases))('%s, and takes the right thing afterwards', async (_, [argument, wrong]) => {
    await World.local({ ranks: 1, device: 'sim' }, async (world) => {
      const of = await layer(world);
      const { ep, stream, inputs, out } = of;
      ep.dispatch(inputs, stream);
      expect(() => ep.combine(wrong(of) as never, stream)).toThrow(expect.objectContaining({ argument }));
      ep.combine(out, stream);
      await ep.synchronize(stream);
      await ep.dispose();
    });
  });
});

describe('after dispose', () => {
  it('nothing may be dispatched or combined, and disposing again does nothing', async () => {
    await World.local({ ranks: 2, device: 'sim' }, async (world) => {
      const { ep, stream, inputs, out } = await layer(world);
      await ep.dispose();
      expect(() => ep.dispatch(inputs, stream)).toThrow(DisposedError);
      expect(() => ep.combine(out, stream)).toThrow(DisposedError);
      await expect(ep.synchronize(stream)).rejects.toThrow(DisposedError);
      await ep.dispose();
    });
  });

  it('a disposed device refuses to allocate', async () => {
    const error = await refusal(async (world) => {
      await world.device.dispose();
      emptyTensor(world.device, 'u8', [1]);
    });
    expect(error).toBeInstanceOf(DisposedError);
  });
});

it.each<[nodes: number, options: Partial<ExpertParallelOptions>]>([
  [1, { placement: { experts: 4, ranks: 2, places: [0, 1, 2, 3] } }],
  [2, {}],
])('create leaves nothing, whatever one of two ranks cannot have; nodes: %i', async (nodes, options) => {
  await World.local({ ranks: 2, nodes, device: 'sim' }, async (world) => {
    const { device, rank } = world;
    let [left, proxies] = [0, 0];
    const live = liveMemory(device);
    for (const name of ['allocate', 'allocateWindow', 'allocateWire', 'load'] as const) {
      const real = device[name].bind(device) as (...of: unknown[]) => unknown;
      const call = (...of: unknown[]) => {
        if (--left === 0 && rank === 1) throw new Error('no room');
        return real(...of);
      };
      Object.assign(device, { [name]: call });
    }
    const start = world.startProxy.bind(world);
    world.startProxy = async (how) => {
      const proxy = await start(how);
      proxies++;
      const stop = () => proxy.stop().then(() => void proxies--);
      return { error: null, stop };
    };
    let ep: ExpertParallel | null = null;
    for (let at = 1; ep === null; at++) {
      left = at;
      ep = await ExpertParallel.create(world, { ...good, ...options, rounds: 2 }).catch((error) => {
        expect(String(error)).toContain('no room');
        return null;
      });
      if (ep === null) expect([live(), proxies]).toEqual([0, 0]);
      else expect(at).toBeGreaterThan(8);
    }
    await ep.dispose();
    expect([live(), proxies]).toEqual([0, 0]);
  });
});
