import { describe, expect, it } from 'vitest';
import { within } from '../../src/base/within.js';

const late = () => new RangeError('too late');

describe('work with a time limit', () => {
  it('gives what the work gives, be it an error', async () => {
    await expect(within(60_000, Promise.resolve(3), late)).resolves.toBe(3);
    await expect(within(60_000, Promise.reject(new TypeError('its own')), late)).rejects.toThrow('its own');
  });

  it('ends with the other error where the work does not end', async () => {
    await expect(within(1, new Promise(() => {}), late)).rejects.toThrow('too late');
  });
});
