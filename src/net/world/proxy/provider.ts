/** Over which provider the proxies of a world reach each other, where nobody says. */
import { HeddleError } from '../../../base/errors.js';
import { machineId, type ProviderName, providers, usableProviders } from '../../fabric/index.js';
import type { Circle } from '../circle.js';

/** What a rank can do. */
export interface ProviderOffer {
  readonly machine: string;
  /** One, where somebody said which; else all that it has. */
  readonly providers: readonly ProviderName[];
}

/** What this rank offers: `provider` if it is named, on the devices that are named. */
export const offerHere = (
  provider: ProviderName | 'auto' | undefined,
  devices: readonly string[] | undefined,
): ProviderOffer => ({
  machine: machineId(),
  providers: provider === undefined || provider === 'auto' ? usableProviders(devices) : [provider],
});

/** The best that every rank has, and that reaches them all: `shm` only where they share a machine. Every rank calls it. */
export async function agreeOnProvider(
  circle: Pick<Circle, 'allGather'>,
  offer: ProviderOffer,
): Promise<ProviderName> {
  const gathered = await circle.allGather(Buffer.from(JSON.stringify(offer)), 'the network: providers');
  const offers = gathered.map((bytes) => JSON.parse(Buffer.from(bytes).toString()) as ProviderOffer);
  const together = offers.every(({ machine }) => machine === offers[0]!.machine);
  const common = providers.find(
    (name) => (name !== 'shm' || together) && offers.every((of) => of.providers.includes(name)),
  );
  if (common !== undefined) return common;
  const had = offers.map((of, rank) => `rank ${rank}: ${of.providers.join(', ') || 'none'}`).join('; ');
  throw new HeddleError(
    'HEDDLE_PROVIDER',
    `the ranks have no provider in common that reaches all of them (${had})` +
      `${together ? '' : '; they are of several machines, to which shm does not reach'}. ` +
      '`heddle fabric list` shows what a machine has; HEDDLE_PROVIDER says which to take, on every rank',
  );
}
