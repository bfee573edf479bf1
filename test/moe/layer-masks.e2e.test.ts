/** Whole layers in a world that loses ranks and goes on. */
import { describe, expect, it } from 'vitest';
import { RankMaskedError, RepeatRoundsError } from '../../src/base/errors.js';
import { SimMachine } from '../../src/gpu/sim/index.js';
import {
  bytesOf,
  emptyTensor,
  type ForwardOptions,
  MoeLayer,
  type MoeLayerOptions,
  readBits,
} from '../../src/moe/index.js';
import { type Bits, expertsOf, fromF32 } from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import { random } from '../../src/verify/testing/index.js';
import { deep, raceFree } from './layers.js';
import { isLoss } from './maskable-rounds.js';
import { compareLayer, type LayerInputs, makeLayer, placeWeights, plainLayer } from './whole-layer.js';

const ranks = 3;
/** One for each micro-batch. */
const tokens = 2;
const forwards = 2;
/** For each way; by hand some hundreds. */
const storms = Number(process.env.HEDDLE_TEST_STORMS ?? 2);
const inputs = makeLayer({ ...deep, experts: 6 }, new Array(ranks).fill(tokens), 3);
const { hidden, experts } = inputs.model;

/** Rank's rows of one forward: in every second one the other way round. */
function rowsOf<T extends Bits | Float32Array>(rows: T, forward: number): T {
  if (forward % 2 === 0) return rows;
  const turned = rows.slice() as T;
  for (let token = 0; token < tokens; token++)
    turned.set(
      rows.subarray(token * hidden, (token + 1) * hidden) as T & Uint16Array,
      (tokens - 1 - token) * hidden,
    );
  return turned;
}

/** Experts of ranks that are left out make nothing: their weights are 0. */
function without(out: readonly number[]): LayerInputs {
  const gone = out.flatMap((rank) => {
    const { first, count } = expertsOf({ experts, ranks }, rank);
    return Array.from({ length: count }, (_, e) => first + e);
  });
  const nothing = ({ length }: Bits) => fromF32('bf16', new Float32Array(length));
  return {
    ...inputs,
    experts: inputs.experts.map((of, e) =>
      gone.includes(e) ? { gateUp: nothing(of.gateUp), down: nothing(of.down) } : of,
    ),
  };
}

/** Of each forward: what came of it, and who was left out. */
type Told = Map<number, { readonly out: Bits; readonly masked: readonly number[] }>;

type How = Partial<MoeLayerOptions> & ForwardOptions & { readonly graph?: boolean };

function isOut(error: unknown): false {
  if (error instanceof RankMaskedError) return false;
  throw error;
}

/** All forwards, a synchronize behind each; repeated where the layer says so. `leave`: before this one ranks are left out by hand. */
async function persist(
  world: World,
  { graph = false, chunks = 1, ...how }: How,
  leave?: { readonly before: number; readonly ranks: readonly number[] },
): Promise<Told> {
  const { device, rank } = world;
  const stream = device.createStream();
  const weights = placeWeights(world, stream, inputs);
  const layer = await MoeLayer.create(world, {
    ...{ model: inputs.model, maxTokens: tokens, onLoss: 'mask' as const, ...weights },
    ...how,
  });
  const x = emptyTensor(device, 'bf16', [tokens, hidden], 'x');
  const out = emptyTensor(device, 'bf16', [tokens, hidden], 'out');
  if (graph) stream.beginCapture();
  if (graph) layer.forward(x, out, stream, { chunks });
  const captured = graph ? stream.endCapture() : null;
  const told: Told = new Map();
  for (let forward = 1; ; forward++) {
    try {
      if (forward > forwards) {
        if (await world.barrier('the forwards are done').then(() => true, isLoss)) break;
      } else {
        if (forward === leave?.before) {
          if (!(await world.mask(leave.ranks).then(() => true, isOut))) return told;
        }
        stream.copyIn(x.data, bytesOf(fromF32('bf16', rowsOf(inputs.routed[rank]!.x, forward))));
        if (captured) captured.launch(stream);
        else layer.forward(x, out, stream, { chunks });
      }
      const { masked } = world;
      await layer.synchronize(stream);
      if (forward <= forwards) told.set(forward, { out: await readBits(out, stream), masked });
      else forward = forwards;
    } catch (error) {
      if (!(error instanceof RepeatRoundsError)) throw error;
      // Graphs repeat the forward that they captured, of one round.
      expect(error.from === null).toBe(graph);
      forward = (error.from?.forward ?? error.round) - 1;
    }
  }
  captured?.dispose();
  return told;
}

/** What every rank had that came to the end of its forwards: the same ranks left out, and right. */
function requireRight(told: readonly (Told | undefined)[]): void {
  const first = told.find((one) => one !== undefined)!;
  for (let forward = 1; forward <= forwards; forward++) {
    const { masked } = first.get(forward)!;
    const expected = plainLayer(without(masked));
    for (const [rank, one] of told.entries()) {
      if (one === undefined) continue;
      expect(one.get(forward)!.masked, `forward ${forward} of rank ${rank}`).toEqual(masked);
      const { different } = compareLayer(hidden, [one.get(forward)!.out], [rowsOf(expected[rank]!, forward)]);
      expect(different, `forward ${forward} of rank ${rank}, without ${masked}`).toBe(0);
    }
  }
}

const ways: Readonly<Record<string, How>> = {
  'a graph': { graph: true },
  'two chunks': { maxTokens: Math.ceil(tokens / 2), rounds: 2, chunks: 2 },
};

describe("a layer with onLoss: 'mask'", () => {
  it.each(Object.entries(ways))('%s: goes on without a rank that is left out by hand', async (_, how) => {
    const told = await raceFree({ ranks, seed: '5' }, (world) =>
      persist(world, how, { before: 2, ranks: [2] }),
    );
    expect(told[2]!.size).toBe(1);
    requireRight(told.map((one, rank) => (rank === 2 ? undefined : one)));
  });

  it.each(Object.entries(ways))('%s: goes on where ranks fall', async (name, how) => {
    let fallen = 0;
    for (let seed = 0; seed < storms; seed++) {
      const sim = SimMachine.create({ ranks, seed: `${name} ${seed}`, schedule: 'random', hostLines: false });
      const draw = random(seed, name.length);
      sim.kill(draw.below(ranks), draw.below(16000));
      const told: (Told | undefined)[] = new Array(ranks).fill(undefined);
      const world = World.local({ ranks, device: 'sim', sim }, async (world) => {
        told[world.rank] = await persist(world, how);
      });
      await world.catch((error: unknown) => expect(error).toMatchObject({ code: 'HEDDLE_KILLED' }));
      requireRight(told);
      if (told.includes(undefined)) fallen++;
    }
    expect(fallen).toBeGreaterThan(storms / 3);
  });
});
