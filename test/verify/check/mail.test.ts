/** The mail of proxies in the check: a message that is counted before it is there is a finding. */
import { expect, test } from 'vitest';
import { serveCircle } from '../../../src/net/index.js';
import { check } from '../../../src/verify/check/index.js';
import { mailOf } from '../../../src/verify/check/subjects/mail.js';

/** Counts a message, and posts it then. */
const countsFirst: typeof serveCircle = (circle, port, mail) => {
  const post = port.postMessage.bind(port);
  const due: unknown[] = [];
  port.postMessage = (message) => due.push(message);
  const mailbox = serveCircle(circle, port, mail);
  return {
    ...mailbox,
    post(message) {
      mailbox.post(message);
      for (const one of due.splice(0)) post(one);
    },
  };
};

test.each([
  { name: 'posted and then counted', serve: serveCircle, said: [] },
  {
    name: 'counted and then posted',
    serve: countsFirst,
    said: ['the thread of a proxy never hears that it has to stop'],
  },
])('mail $name', async ({ serve, said }) => {
  const configurations = [mailOf('a proxy', serve)];
  const { findings } = await check([{ name: 'mail', kernels: [], configurations }], { seeds: 1 });
  expect(findings.map((finding) => finding.kind === 'wrong-result' && finding.message)).toEqual(said);
});
