import { expect, it } from 'vitest';
import { UnavailableError } from '../../../src/base/errors.js';

it('without libfabric, everything says in one message what to install', async () => {
  process.env.HEDDLE_LIBFABRIC = '/nowhere/libfabric.so.1';
  const { listProviders, TransferEngine } = await import('../../../src/net/fabric/index.js');
  const message =
    /libfabric cannot be used \(\/nowhere\/libfabric\.so\.1: .*\)\. Install libfabric .*apt-get install libfabric1/;
  const opened = TransferEngine.open();
  await expect(opened).rejects.toThrow(UnavailableError);
  await expect(opened).rejects.toThrow(message);
  expect(() => listProviders()).toThrow(message);
});
