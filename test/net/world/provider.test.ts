import { describe, expect, it } from 'vitest';
import { type ProviderName, usableProviders } from '../../../src/net/fabric/index.js';
import { LocalCircle } from '../../../src/net/world/local-circle.js';
import { agreeOnProvider, offerHere, type ProviderOffer } from '../../../src/net/world/proxy/network.js';
import { needing } from '../../needs.js';

const agree = (...offers: readonly ProviderOffer[]): Promise<ProviderName[]> =>
  LocalCircle.run(offers.length, (circle) => agreeOnProvider(circle, offers[circle.rank]!));

const on = (machine: string, ...providers: readonly ProviderName[]): ProviderOffer => ({
  machine,
  providers,
});

describe('the provider of a world whose ranks leave it open', () => {
  it.each([
    [['shm', 'tcp;ofi_rxm'], ['a', 'a'], 'shm'],
    [['shm', 'tcp;ofi_rxm'], ['a', 'b'], 'tcp;ofi_rxm'],
    [['efa', 'shm', 'tcp;ofi_rxm'], ['a', 'b'], 'efa'],
    [['shm', 'udp;ofi_rxd'], ['a', 'a', 'b'], 'udp;ofi_rxd'],
  ] as const)('is of %j on machines %j %s', async (providers, machines, expected) => {
    const chosen = await agree(...machines.map((machine) => on(machine, ...providers)));
    expect(chosen).toEqual(machines.map(() => expected));
  });

  it('is one that every rank has, and what one rank was told', async () => {
    const all = ['verbs;ofi_rxm', 'shm', 'tcp;ofi_rxm'] as const;
    expect(await agree(on('a', ...all), on('b', 'tcp;ofi_rxm', 'udp;ofi_rxd'))).toContain('tcp;ofi_rxm');
    expect(new Set(await agree(on('a', 'tcp;ofi_rxm'), on('a', ...all)))).toEqual(new Set(['tcp;ofi_rxm']));
  });

  it('is none where no provider reaches all, and every rank says what each has', async () => {
    await expect(agree(on('a', 'shm'), on('b', 'shm'))).rejects.toThrow(
      /no provider in common .*rank 0: shm; rank 1: shm.*several machines.*HEDDLE_PROVIDER/,
    );
    await expect(agree(on('a', 'shm'), on('a'))).rejects.toThrow(/rank 1: none\)\. /);
  });

  it('is found among those of this machine', needing('libfabric'), () => {
    expect(offerHere({}, 2).providers).toEqual(usableProviders());
    expect(offerHere({ provider: 'auto', devices: ['lo'] }, 2).providers).not.toContain('shm'); // which has no such device
    expect(offerHere({ provider: 'efa' }, 2).providers).toEqual(['efa']);
  });
});
