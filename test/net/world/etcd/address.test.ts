import { expect, it } from 'vitest';
import { ArgumentError } from '../../../../src/base/errors.js';
import { readEnvironment } from '../../../../src/net/world/environment.js';
import { parseEtcdAddress } from '../../../../src/net/world/etcd/address.js';

it('an address of etcd is read', () => {
  expect(parseEtcdAddress('it', 'etcd://a:1,[::1]:2/one/two/')).toEqual({
    endpoints: [
      { host: 'a', port: 1 },
      { host: '::1', port: 2 },
    ],
    ...{ prefix: 'one/two', user: undefined, tls: undefined },
  });
  expect(parseEtcdAddress('it', 'etcds://me:p%40s:s@a:1/p')).toMatchObject({
    ...{ user: { name: 'me', password: 'p@s:s' }, tls: {}, prefix: 'p' },
  });
});

it.each([
  'host:1',
  'http://a:1/p',
  'etcd://a:1',
  'etcd://a:1/',
  'etcd://a/p',
  'etcd://a:1/p?cacert=/etc/hosts',
  'etcds://a:1/p?ca=/etc/hosts',
  'etcds://a:1/p?cacert=/no/such/file',
])('%s is refused', (value) => {
  expect(() => parseEtcdAddress('it', value)).toThrow(ArgumentError);
});

it.each([
  'etcd://me:hidden:too@a:1',
  'etcd://me:h@hidden@a:1/p',
  'etcd://me:hidden/too@a:1/p',
  'etcd://me:1/hidden@a:1/p',
  'etcd//me:hidden@a:1/p',
  'me:hidden@a:1/p',
  'etcd://me:%hidden@a:1/p',
])('no password is shown of %s', (value) => {
  expect(() => parseEtcdAddress('it', value)).toThrow(ArgumentError);
  expect(() => parseEtcdAddress('it', value)).toThrow(/^(?!.*hidden).*…@a:1/);
});

it('the environment names it instead of an address', () => {
  const environment = { HEDDLE_RANK: '0', HEDDLE_WORLD: '2', HEDDLE_RENDEZVOUS: 'etcd://a:1/p' };
  expect(readEnvironment(environment)).toMatchObject({ etcd: { prefix: 'p' }, ranks: 2 });
});
