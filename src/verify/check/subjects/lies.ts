/**
 * Messages between nodes that cannot be. A proxy that hears of one refuses it, says whose it is, and tells the kernels
 * nothing: they take what its header says for lengths. Before each comes one as it should be.
 */
import { callSite, type Device, type HostView } from '../../../gpu/index.js';
import { byteSize, kernel, pointer } from '../../../lang/index.js';
import { hybrid, initialEpoch, type ProxyData, usualChip } from '../../../moe/families/index.js';
import { World } from '../../../net/world/index.js';
import { shapeOfRounds } from '../../testing/index.js';
import { type CheckConfiguration, WrongResult } from '../subject.js';

/** A header's words, and which of the two chunks it leads. */
interface Message {
  readonly chunk: number;
  readonly round: number;
  readonly tokens: number;
  readonly mask: number;
  readonly rows: number;
}

const right: Message = { chunk: 0, round: 1, tokens: 3, mask: 0b11, rows: 2 };
const lies: Readonly<Record<string, Message>> = {
  'of another round': { ...right, round: 3 },
  'of more tokens than there may be': { ...right, round: 2, tokens: 4 },
  'of more rows than tokens': { ...right, round: 2, rows: 3 },
  // The second chunk has one.
  'of a token behind the last': { ...right, chunk: 1, mask: 0b10, rows: 1 },
};

/** The second of two nodes of two writes to the first; neither is the first of its node. */
const [sender, receiver] = [3, 1];
const layer = { ranks: 4, experts: 4, topK: 2, maxTokens: 3, hidden: 8, dtype: 'bf16' } as const;
const tuning = {
  dispatch: { blocks: 1, threads: 32, chunk: 2 },
  combine: { blocks: 1, threads: 32, parts: 1 },
};

/** Waits for a message, and copies its header; says whether it came. */
const hear = kernel(
  {
    name: 'hear',
    params: {
      ...{ came: pointer('u32'), header: pointer('v16'), out: pointer('v16'), told: pointer('u32') },
      ...{ epoch: 'u32', limit: 'u32' },
    },
  },
  (g, { came, header, out, told, epoch, limit }) => {
    const here = g.awaitEpoch(came, epoch, { order: 'acquire', scope: 'sys', limit });
    if (here) g.store(out, g.load(header));
    g.store(told, g.u32(here ? 1 : 0));
  },
);

export const hybridLies: readonly CheckConfiguration[] = Object.entries(lies).map(([name, lie]) => ({
  name: `hybrid, a message ${name}`,
  ranks: layer.ranks,
  async run(machine) {
    /** The headers that kernels were told of, and what the proxy said then. */
    const heard: string[] = [];
    const world = World.local(
      { ranks: layer.ranks, nodes: 2, device: 'sim', sim: machine },
      async (world) => {
        const { rank } = world;
        const { data, memory, proxy } = await start(world);
        const hears = rank === receiver ? await hearing(world.device, rank, memory.address, data) : null;
        for (const message of [right, lie]) {
          await world.barrier();
          if (rank === sender) send(memory.host, data, message);
          // Kernels wait in vain, which is no mistake where a rank is lost.
          if (rank === 0 && message === lie) machine.kill(rank);
          if (hears !== null) heard.push(await hears(message));
        }
        if (rank === receiver) heard.push(`${proxy.error?.message}`);
      },
    );
    // The rank whose proxy fails is lost to the others.
    await world.catch(() => {});
    const [first, second, why = ''] = heard;
    if (first !== wordsOf(right).join()) throw new WrongResult(`a header is ${first}, not ${wordsOf(right)}`);
    if (second !== '') throw new WrongResult(`kernels were told of a message that cannot be: ${second}`);
    if (!why.includes(`of rank ${sender} `))
      throw new WrongResult(`the proxy says '${why}', and should name rank ${sender}`);
  },
}));

/** The proxy of a rank, without any kernels of dispatch and combine. */
async function start(world: World) {
  const { device, rank, topology } = world;
  const target = {
    ...({ kind: 'sim', transport: 'windows' } as const),
    ...{ multiprocessors: 1, capability: usualChip.capability, split: false, sms: null, rank, topology },
  };
  const shape = { ...shapeOfRounds(layer), weights: true, counts: false };
  const { layout, front, program, purpose, allOnes = [] } = hybrid.plan(shape, target, tuning).wire!;
  const ones = allOnes.map(({ offset, type, length }) => ({
    ...{ offset, bytes: byteSize[type] * length, value: 0xff },
  }));
  const memory = device.allocateWire({ bytes: layout.bytes, front, side: 'host' }, purpose, ones);
  const proxy = await world.startProxy({ ...program, memory });
  return { data: program.data as ProxyData, memory, proxy };
}

const wordsOf = ({ round, tokens, mask, rows }: Message): number[] => [
  ...[(initialEpoch + round) >>> 0, tokens, mask, rows],
];

/** Makes a message of dispatch ready, as the kernels do, for the round that comes next. */
function send(host: HostView, { phases }: ProxyData, message: Message): void {
  const { ready, counts, out, room } = phases[0]!;
  const { chunk, rows } = message;
  host.write(out + chunk * room, new Uint8Array(Uint32Array.from(wordsOf(message)).buffer));
  host.store(counts + 4 * chunk, rows);
  const sent = chunk === 0 ? host.load(ready) : initialEpoch;
  host.store(ready + 4 * chunk, (sent + 1) >>> 0);
}

/** Launches the kernel that waits for a message; resolves with the words of its header, none where it was not told of one. */
async function hearing(device: Device, rank: number, wire: number, { phases }: ProxyData) {
  const { came, in: into, room } = phases[0]!;
  const stream = device.createStream();
  const site = await callSite(device, hear, { grid: 1, block: 1, programmatic: false, rank });
  const [out, told] = [device.allocate(16, 'a header'), device.allocate(4, 'whether it came')];
  site.set.out(out.address);
  site.set.told(told.address);
  site.set.limit(10_000_000);
  return async ({ chunk, round }: Message): Promise<string> => {
    site.set.came(wire + came + 4 * chunk);
    site.set.header(wire + into + chunk * room);
    // Chunk 0 comes in the round behind the one that came last.
    site.set.epoch((initialEpoch + (chunk === 0 ? Math.min(round, 2) : 1)) >>> 0);
    site.launch(stream);
    const here = await stream.copyOut(told.address, 4);
    if (here[0] === 0) return '';
    const words = await stream.copyOut(out.address, 16);
    return new Uint32Array(words.slice().buffer).join();
  };
}
