import { describe, it } from 'vitest';
import { World } from '../../src/net/world/index.js';
import { familyNames, featureCases } from './round-trip.js';

describe.each(familyNames)('%s: rounds that GPUs run, too, equal the reference', (family) => {
  it.each(featureCases(2, { family }))('$name', async ({ ranks, run }) => {
    await World.local({ ranks, device: 'sim' }, run);
  });
});
