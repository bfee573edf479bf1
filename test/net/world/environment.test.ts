import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ArgumentError, UnavailableError } from '../../../src/base/errors.js';
import { formatAddress, isLoopback, parseAddress } from '../../../src/net/world/address.js';
import { type Environment, firstNode, readEnvironment } from '../../../src/net/world/environment.js';
import { findPlace } from '../../../src/net/world/process-circle.js';
import { launchers } from './environments.js';

const { heddle, torchrun, openMpi, slurm } = launchers;

describe('readEnvironment', () => {
  it('reads HEDDLE_*', () => {
    const own = { HEDDLE_SECRET: 's', HEDDLE_LOCAL_RANK: '1', HEDDLE_WORLD_ID: 'w', HEDDLE_HOSTED: '1' };
    expect(readEnvironment({ ...heddle, ...own })).toEqual({
      ...{ launcher: 'HEDDLE_*', rank: 3, device: undefined, ranksHere: 1, ranks: 8, localRank: 1 },
      ...{ address: { host: '127.0.0.1', port: 29000 }, world: 'w', secret: 's', hosted: true },
    });
    const unsaid = { localRank: undefined, world: 'world', secret: undefined, hosted: false };
    expect(readEnvironment(heddle)).toMatchObject(unsaid);
  });

  it('reads torchrun, keeps clear of its own port and tells restarts apart', () => {
    const place = { rank: 5, ranks: 16, localRank: 1, address: { host: 'node1', port: 30500 } };
    expect(readEnvironment(torchrun)).toMatchObject({
      ...{ ...place, launcher: 'torchrun', world: 'torchrun job7.2' },
    });
  });

  it('stays on loopback when all ranks are on one machine', () => {
    expect(readEnvironment({ ...torchrun, LOCAL_WORLD_SIZE: '16' }).address).toEqual({
      host: '127.0.0.1',
      port: 30500,
    });
    expect(readEnvironment(openMpi).address.host).toBe('127.0.0.1');
    expect(readEnvironment({ ...slurm, SLURM_STEP_NUM_NODES: '1' }).address.host).toBe('127.0.0.1');
  });

  it('reads Open MPI; its ranks agree on a port that depends on the job', () => {
    const place = readEnvironment(openMpi);
    expect(place).toMatchObject({ launcher: 'Open MPI', rank: 2, ranks: 4, localRank: 2 });
    expect(place.address.port).toBeGreaterThanOrEqual(20_000);
    expect(place.address.port).toBeLessThan(30_000);
    const sibling = readEnvironment({ ...openMpi, OMPI_COMM_WORLD_RANK: '0' });
    expect([sibling.address, sibling.world]).toEqual([place.address, place.world]);
    const other = readEnvironment({ ...openMpi, PMIX_NAMESPACE: 'prterun-node1-78@1' });
    expect(other.address.port).not.toBe(place.address.port);
    expect(other.world).not.toBe(place.world);
  });

  it('reads PMI and PMIx', () => {
    const pmi = { PMI_RANK: '1', PMI_SIZE: '2', MPI_LOCALRANKID: '1', HEDDLE_ADDRESS: 'n1:29000' };
    expect(readEnvironment(pmi)).toMatchObject({ launcher: 'PMI', rank: 1, ranks: 2, localRank: 1 });
    const pmix = { ...slurm, PMIX_RANK: '9', PMIX_NAMESPACE: 'slurm.pmix.4711.0' };
    const place = { rank: 9, ranks: 16, localRank: 1, address: { host: 'gpu003' } };
    expect(readEnvironment(pmix)).toMatchObject({ ...place, launcher: 'PMIx' });
  });

  it('reads Slurm: the step before the job, the first node before where srun was typed', () => {
    const place = { rank: 9, ranks: 16, localRank: 1, address: { host: 'gpu003' } };
    expect(readEnvironment(slurm)).toMatchObject({ ...place, launcher: 'Slurm', world: 'Slurm 4711.0' });
    const { SLURM_STEP_NODELIST: _, ...listless } = slurm;
    expect(readEnvironment(listless).address.host).toBe('10.0.0.1');
    expect(readEnvironment({ ...listless, SLURM_JOB_NODELIST: 'a1,b2' }).address.host).toBe('a1');
  });

  it('takes the innermost launcher when several are there', () => {
    const { HEDDLE_ADDRESS: address } = heddle;
    const order: [string, Environment][] = [
      ['HEDDLE_*', heddle],
      ['torchrun', torchrun],
      ['Open MPI', openMpi],
      ['PMI', { PMI_RANK: '0', PMI_SIZE: '2', HEDDLE_ADDRESS: address }],
      ['PMIx', { PMIX_RANK: '0', PMIX_SIZE: '2', HEDDLE_ADDRESS: address }],
      ['Slurm', slurm],
    ];
    for (let i = 0; i < order.length; i++) {
      const environment = Object.assign({}, ...order.slice(i).map(([, variables]) => variables));
      expect(readEnvironment(environment).launcher).toBe(order[i]![0]);
    }
  });

  it('lets HEDDLE_ADDRESS, _SECRET, _LOCAL_RANK, _PLACES, _NODES, _DEVICE, _RANKS_HERE and _WORLD_ID override any launcher', () => {
    const overrides = {
      ...{
        HEDDLE_ADDRESS: '[fd00::1]:1234',
        HEDDLE_SECRET: 'x',
        HEDDLE_LOCAL_RANK: '0',
        HEDDLE_PLACES: '32',
      },
      ...{ HEDDLE_NODES: '4', HEDDLE_DEVICE: 'sim', HEDDLE_RANKS_HERE: '2', HEDDLE_WORLD_ID: 'mine' },
    };
    expect(readEnvironment({ ...torchrun, ...overrides })).toMatchObject({
      ...{ rank: 5, address: { host: 'fd00::1', port: 1234 }, secret: 'x', localRank: 0 },
      ...{ places: 32, nodes: 4, device: 'sim', ranksHere: 2, world: 'mine' },
    });
  });

  it('says how to start a rank when nothing did', () => {
    expect(() => readEnvironment({})).toThrow(UnavailableError);
    expect(() => readEnvironment({ HEDDLE_RANK: '' })).toThrow(/heddle run -n 8 program\.ts/);
  });

  const mistakes: [string, Environment, string][] = [
    ['a device that is none', { ...heddle, HEDDLE_DEVICE: 'gpu' }, 'HEDDLE_DEVICE'],
    ['more ranks here than there are', { ...heddle, HEDDLE_RANKS_HERE: '100' }, 'HEDDLE_RANKS_HERE'],
    ['no size', { HEDDLE_RANK: '0' }, 'HEDDLE_WORLD'],
    ['no address', { HEDDLE_RANK: '0', HEDDLE_WORLD: '2' }, 'HEDDLE_ADDRESS'],
    ['fewer places than ranks', { ...heddle, HEDDLE_PLACES: '7' }, 'HEDDLE_PLACES'],
    ['more nodes than places', { ...heddle, HEDDLE_NODES: '9' }, 'HEDDLE_NODES'],
    ['a rank beyond the size', { ...heddle, HEDDLE_RANK: '8' }, 'HEDDLE_RANK'],
    ['a negative rank', { ...heddle, HEDDLE_RANK: '-1' }, 'HEDDLE_RANK'],
    ['a rank that is no number', { ...torchrun, RANK: '0x1' }, 'RANK'],
    ['a local rank beyond the size', { ...torchrun, LOCAL_RANK: '16' }, 'LOCAL_RANK'],
    ['a size of nothing', { ...torchrun, WORLD_SIZE: '0' }, 'WORLD_SIZE'],
    ['a size beyond reason', { ...torchrun, WORLD_SIZE: '5000' }, 'WORLD_SIZE'],
    ['half an address', { ...torchrun, MASTER_PORT: undefined }, 'MASTER_PORT'],
    ['the other half', { ...torchrun, MASTER_ADDR: undefined }, 'MASTER_ADDR'],
    ['a port that is none', { ...torchrun, MASTER_PORT: '99999' }, 'MASTER_PORT'],
    ['a port just beyond all', { ...torchrun, MASTER_PORT: '65536' }, 'MASTER_PORT'],
    ['an address without port', { ...heddle, HEDDLE_ADDRESS: 'node1' }, 'HEDDLE_ADDRESS'],
    ['machines without an address', { ...openMpi, OMPI_COMM_WORLD_LOCAL_SIZE: '2' }, 'HEDDLE_ADDRESS'],
    ['a launcher that names no job', { PMI_RANK: '0', PMI_SIZE: '2' }, 'HEDDLE_ADDRESS'],
  ];

  it.each(mistakes)('names the variable at fault: %s', (_, environment, argument) => {
    expect(() => readEnvironment(environment)).toThrow(ArgumentError);
    expect(() => readEnvironment(environment)).toThrow(expect.objectContaining({ argument }));
  });
});

describe('findPlace', () => {
  it('lets only a process that takes an empty place have one behind the ranks that begin', () => {
    const own = { HEDDLE_RANK: '11', HEDDLE_PLACES: '12', HEDDLE_LOCAL_RANK: '3' };
    const environment = { ...heddle, ...own };
    expect(() => findPlace({ environment })).toThrow(/HEDDLE_RANK is "11".*because HEDDLE_WORLD is 8/);
    const place = findPlace({ environment: { ...environment, HEDDLE_REJOIN: 'spare' } });
    expect(place).toMatchObject({ rank: 11, ranks: 8, places: 12, localRank: 3, name: 'spare' });
    const options = { rank: 3, ranks: 4, address: 'node1:29000', environment: {} };
    expect(findPlace({ ...options, places: 6 })).toMatchObject({ ranks: 4, places: 6, name: 'rank 3' });
    expect(() => findPlace({ ...options, rank: 4, places: 6 })).toThrow(/rank is 4.*0 to 3/);
    expect(findPlace({ ...options, rank: 4, places: 6, rejoin: 'spare' })).toMatchObject({ rank: 4 });
  });
});

describe('firstNode', () => {
  it.each([
    ['node1', 'node1'],
    ['a1,a2', 'a1'],
    ['gpu[003-006,010],cpu1', 'gpu003'],
    ['gpu[7]', 'gpu7'],
    ['rack[1-2]n[01,04]', 'rack1n01'],
    ['n[1,5]-ib', 'n1-ib'],
  ])('of %s is %s', (list, first) => {
    expect(firstNode(list)).toBe(first);
  });
});

describe('addresses', () => {
  it('reads what it prints', () => {
    const hosts = fc.oneof(fc.ipV4(), fc.ipV6(), fc.domain());
    fc.assert(
      fc.property(hosts, fc.integer({ min: 1, max: 65535 }), (host, port) => {
        expect(parseAddress('address', formatAddress({ host, port }))).toEqual({ host, port });
      }),
      { seed: 5 },
    );
  });

  it.each(['', 'host', ':1', 'host:', 'host:0', 'host:65536', 'a:b:1', '::1:1', '[host]:1', 'h:1 '])(
    'refuses %j',
    (value) => {
      expect(() => parseAddress('HEDDLE_ADDRESS', value)).toThrow(ArgumentError);
    },
  );

  it('tells loopback from the rest', () => {
    for (const host of ['localhost', '127.0.0.1', '127.9.9.9', '::1']) expect(isLoopback(host)).toBe(true);
    for (const host of ['0.0.0.0', '::', '127.evil.example', '10.0.0.1', 'node1']) {
      expect(isLoopback(host)).toBe(false);
    }
  });
});
