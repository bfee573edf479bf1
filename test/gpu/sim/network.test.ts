/** The simulated network: kernels of two ranks throw a row to and fro through proxies; right ones, and ones that lack an edge. */
import { describe, expect, it } from 'vitest';
import { ArgumentError } from '../../../src/base/errors.js';
import type { HostView, Network } from '../../../src/gpu/index.js';
import { type Finding, formatFinding, type MachineOptions } from '../../../src/gpu/sim/index.js';
import { kernel, pointer } from '../../../src/lang/index.js';
import { launch, machineOf, schedules } from './harness.js';

const rounds = 4;
/** Words of a row: enough to be cut. */
const length = 12;
const rowBytes = 4 * length;
/** Words: rounds of what the kernel sends and of what has come; then two rows that leave, and two that have come. */
const [sent, came] = [0, 1];
const leaving = (place: number) => 4 + place * length;
const arriving = (place: number) => 4 + (2 + place) * length;
const bytes = 4 * (4 + 4 * length);

/** Sends a row each round, awaits the other's, and adds up what came. `places`: how many rounds have places of their own. */
const pingPong = (places: number) =>
  kernel(
    {
      name: 'ping_pong',
      params: { words: pointer('u32'), sum: pointer('u32'), limit: 'u32' },
      using: { rounds, places, length, sent, came },
    },
    (g, { words, sum, limit }, u) => {
      for (let round = 1; round <= u.rounds; round++) {
        const place = round % u.places;
        for (let i = 0; i < u.length; i++) g.store(words.at(4 + place * u.length + i), round * (10 + g.rank));
        g.store(words.at(u.sent), round, { order: 'release', scope: 'sys' });
        g.awaitEpoch(words.at(u.came), round, { order: 'acquire', scope: 'sys', limit });
        for (let i = 0; i < u.length; i++)
          g.store(sum, g.load(sum) + g.load(words.at(4 + (2 + place) * u.length + i)));
      }
    },
  );

interface Parts {
  readonly network: Network;
  readonly memory: HostView;
  readonly other: number;
  readonly places: number;
}

/** A proxy's step: whether it did anything. */
type Proxy = (parts: Parts) => () => boolean;

/** Posts a row where its kernel has sent it and the network has room; false otherwise. */
function post({ network, memory, other, places }: Parts, row: number, tag: number): boolean {
  const [from, to] = [4 * leaving(row % places), 4 * arriving(row % places)];
  return memory.load(4 * sent) >= row && network.write({ peer: other, from, to, bytes: rowBytes, tag });
}

/** Posts a row once its kernel has sent it, and announces what has come up to the first that has not: they overtake. */
const careful: Proxy = (parts) => {
  const { network, memory } = parts;
  let posted = 0;
  let announced = 0;
  const there = new Set<number>();
  return () => {
    let moved = post(parts, posted + 1, posted + 1);
    if (moved) posted++;
    const tag = network.arrived();
    there.add(tag);
    if (there.has(announced + 1)) {
      memory.store(4 * came, ++announced);
      moved = true;
    }
    return moved || tag >= 0;
  };
};

async function play(options: Omit<MachineOptions, 'ranks'>, proxy: Proxy = careful, places = 2) {
  const { machine, ranks } = machineOf({ ranks: 2, ...options });
  const memories = ranks.map(({ device }) => device.allocateMapped(bytes, 'wire'));
  const addresses = memories.map(({ address }) => address);
  const networks = ranks.map(({ rank }) => machine.openNetwork(rank, addresses));
  const errors: unknown[] = [];
  for (const { rank } of ranks) {
    const parts = { network: networks[rank]!.network, memory: memories[rank]!.host, other: 1 - rank, places };
    const step = proxy(parts);
    machine.startHost(rank, { name: 'proxy', hearsOutside: false, step, onError: (e) => errors.push(e) });
  }
  const module = pingPong(places).ir();
  const sums = await Promise.all(
    ranks.map(async (rank) => {
      const sum = rank.device.allocate(4, 'sum');
      rank.stream.fill(sum.address, 4, 0);
      await launch(rank, module, { block: 1 }, { words: memories[rank.rank]!, sum, limit: 10_000_000 });
      const got = await rank.stream.copyOut(sum.address, 4);
      return new DataView(got.buffer, got.byteOffset).getUint32(0, true);
    }),
  );
  return { machine, sums, errors, networks, memories };
}

/** What is found in so many schedules. */
async function findings(proxy: Proxy, places = 2): Promise<Finding[]> {
  const all: Finding[] = [];
  for (const how of schedules(10)) {
    const { machine } = await play({ mode: 'checked', ...how }, proxy, places);
    all.push(...machine.findings);
  }
  return all;
}

const right = [10 * length * 11, 10 * length * 10];

describe('the network of the simulated machine', () => {
  it('carries what proxies post', async () => {
    const { sums, errors } = await play({});
    expect(errors).toEqual([]);
    expect(sums).toEqual(right);
  });

  it('shows nothing wrong in any schedule where each place is written again only after its tag was heard of', async () => {
    for (const how of schedules(40)) {
      const { machine, sums, errors } = await play({ mode: 'checked', ...how });
      expect(machine.findings.map(formatFinding)).toEqual([]);
      expect(errors).toEqual([]);
      expect(sums).toEqual(right);
    }
  });

  it('may still read a row that the kernel writes again: rounds with one place race', async () => {
    const races = await findings(careful, 1);
    const network = expect.objectContaining({
      kernel: 'the network',
      where: expect.stringMatching(/^test\/gpu\/sim\/network\.test\.ts:\d+:\d+$/),
    });
    const sender = expect.objectContaining({ kernel: 'ping_pong', kind: 'write' });
    expect(races).toContainEqual(expect.objectContaining({ kind: 'race', first: network, second: sender }));
  });

  it('orders nothing by the tag of another write', async () => {
    // Each row has a note of four bytes behind it, and only the note is listened to.
    const hasty: Proxy = (parts) => {
      const { network, memory, other } = parts;
      let posted = 0;
      let noted = 0;
      return () => {
        let moved = false;
        if (noted < posted && network.write({ peer: other, from: 8, to: 12, bytes: 4, tag: noted + 1 })) {
          noted++;
          moved = true;
        }
        if (post(parts, posted + 1, 0)) {
          posted++;
          moved = true;
        }
        const tag = network.arrived();
        if (tag > 0) memory.store(4 * came, tag);
        return moved || tag >= 0;
      };
    };
    const network = expect.objectContaining({ kernel: 'the network' });
    const reader = expect.objectContaining({ kernel: 'ping_pong', kind: 'read' });
    const races = await findings(hasty);
    expect(races).toContainEqual(expect.objectContaining({ kind: 'race', first: network, second: reader }));
  });

  it('orders nothing for kernels that look at what it writes', async () => {
    // The round goes into the other kernel's own flag.
    const bold: Proxy = (parts) => {
      const { network, other } = parts;
      let posted = 0;
      let flagged = 0;
      return () => {
        let moved = false;
        if (post(parts, posted + 1, 0)) {
          posted++;
          moved = true;
        }
        if (
          flagged < posted &&
          network.write({ peer: other, from: 4 * sent, to: 4 * came, bytes: 4, tag: 1 })
        ) {
          flagged++;
          moved = true;
        }
        return network.arrived() >= 0 || moved;
      };
    };
    const races = await findings(bold);
    expect(races).toContainEqual(expect.objectContaining({ kind: 'race', location: 'byte 4' }));
  });

  it('orders nothing between writes: a proxy that announces the newest is found out', async () => {
    const eager: Proxy = (parts) => {
      const { network, memory } = parts;
      const step = careful({ ...parts, network: { write: network.write.bind(network), arrived: () => -1 } });
      return () => {
        const tag = network.arrived();
        if (tag >= 0) memory.store(4 * came, tag);
        return step() || tag >= 0;
      };
    };
    expect((await findings(eager)).length).toBeGreaterThan(0);
  });

  it('takes no more than it has room for: a proxy that does not try again leaves waits that nobody ends', async () => {
    const careless: Proxy = (parts) => {
      const { network, other } = parts;
      const write: Network['write'] = (row) => {
        for (let i = 0; i < 8; i++) network.write({ peer: other, from: 0, to: 0, bytes: 0, tag: 0 });
        network.write(row);
        return true;
      };
      return careful({ ...parts, network: { write, arrived: network.arrived.bind(network) } });
    };
    expect((await findings(careless)).map(({ kind }) => kind)).toContain('stuck-wait');
  });

  it('drops what is under way when it is closed, and reports memory that is freed before', async () => {
    for (const closes of [true, false]) {
      const { machine, ranks } = machineOf({ ranks: 2, mode: 'checked', seed: 'late' });
      const memories = ranks.map(({ device }) => device.allocateMapped(64, 'wire'));
      const networks = ranks.map(({ rank }) =>
        machine.openNetwork(
          rank,
          memories.map(({ address }) => address),
        ),
      );
      let posted = 0;
      const end = machine.startHost(0, {
        name: 'proxy',
        hearsOutside: false,
        step: () => {
          if (networks[0]!.network.write({ peer: 1, from: 0, to: 0, bytes: 64, tag: 1 })) posted++;
          if (closes) networks[1]!.close();
          memories[1]!.free();
          return false;
        },
        onError: () => {},
      });
      // The machine, whose turns are turns of the event loop, has had enough of them.
      for (let turn = 0; turn < 50; turn++) await new Promise(setImmediate);
      end();
      const messages = machine.findings.map((finding) => 'message' in finding && finding.message);
      expect(messages).toEqual(closes ? [] : [expect.stringMatching(/a write to 'wire' is under way/)]);
      // None of them ends: there is room for so many at most.
      expect(posted).toBeLessThanOrEqual(64);
    }
  });

  it('refuses what is not there', () => {
    const { machine, ranks } = machineOf({ ranks: 2 });
    const memories = ranks.map(({ device }) => device.allocateMapped(64, 'wire').address);
    const { network } = machine.openNetwork(0, memories);
    expect(() => network.write({ peer: 0, from: 0, to: 0, bytes: 16, tag: 1 })).toThrow(ArgumentError);
    expect(() => network.write({ peer: 2, from: 0, to: 0, bytes: 16, tag: 1 })).toThrow(ArgumentError);
    expect(() => network.write({ peer: 1, from: 56, to: 0, bytes: 16, tag: 1 })).toThrow(ArgumentError);
    expect(() => network.write({ peer: 1, from: 0, to: 0, bytes: 16, tag: -1 })).toThrow(ArgumentError);
  });
});
