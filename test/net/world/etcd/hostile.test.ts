/** Answers of what is not etcd, or has gone wrong: what is read has the form of etcd's, and all else is an error of its own. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { parseEtcdAddress } from '../../../../src/net/world/etcd/address.js';
import { answerIn, EtcdClient, EtcdError } from '../../../../src/net/world/etcd/client.js';
import { drawnJson, readAll, spoiltJson } from '../../../hostile.js';

const kv = { key: 'aA==', value: 'aQ==', create_revision: '3', mod_revision: '4', lease: '5' };
const transaction = {
  header: { revision: '7' },
  succeeded: true,
  responses: [{ response_range: { kvs: [kv], count: '1' } }],
};
const watched = { result: { header: { revision: '7' }, events: [{ type: 'DELETE', kv }] } };

interface Said {
  readonly result?: Said;
  readonly header?: { readonly revision?: string };
  readonly responses?: readonly { readonly response_range?: { readonly kvs?: readonly (typeof kv)[] } }[];
  readonly events?: readonly { readonly kv: typeof kv }[];
}

/** Everything that is looked at has its type. */
function expectForm({ result, header, responses = [], events = [] }: Said): void {
  if (result !== undefined) expectForm(result);
  if (header !== undefined) expect(Number(header.revision ?? 0)).not.toBeNaN();
  const kvs = responses.flatMap(({ response_range }) => response_range?.kvs ?? []);
  for (const { key, value = '', mod_revision, create_revision = '0' } of [
    ...kvs,
    ...events.map(({ kv }) => kv),
  ]) {
    expect(Buffer.from(key, 'base64').length + Buffer.from(value, 'base64').length).toBeGreaterThanOrEqual(0);
    expect(Number(mod_revision) + Number(create_revision)).not.toBeNaN();
  }
}

it.each([
  ['a transaction', transaction],
  ['a watch', watched],
])('an answer to %s is of its form, or refused', (_, valid) => {
  const texts = [JSON.stringify(valid), ...spoiltJson(valid), ...drawnJson(valid, 20)];
  readAll(texts, (text) => answerIn<Said>(Buffer.from(text)), Error, expectForm);
  expect(() => answerIn(Buffer.from('[]'))).toThrow('what it says is no object');
  const noKey = JSON.stringify(valid).replace('"aA=="', '1');
  expect(() => answerIn(Buffer.from(noKey))).toThrow(/its (kvs|events) is not what etcd says/);
});

it.each(['99999999999999999999', '-5', '1.5'])('a revision of %s is none', (revision) => {
  expect(() => answerIn(Buffer.from(JSON.stringify({ header: { revision } })))).toThrow('its header is not');
});

it('what it says is printed without what a terminal would obey', () => {
  expect(new EtcdError('\u001b[2J\u202egone\n\tagain', 5).message).toBe('\\u001b[2J\\u202egone\n\tagain');
});

it.each(['null', '[]', '{}', '<html>', '{"header":[]}', '{"result":7}'])(
  'a server that answers %s is no etcd, and the error says so',
  async (text) => {
    const server = createServer((_, response) => response.end(`${text}\n`)).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const client = new EtcdClient(parseEtcdAddress('it', `etcd://127.0.0.1:${port}/p`), 10_000);
    try {
      await expect(client.call('kv/range', {})).rejects.toThrow(EtcdError);
      await expect(client.watch('p/', 1).next()).rejects.toThrow();
    } finally {
      client.close();
      server.close();
    }
  },
);
