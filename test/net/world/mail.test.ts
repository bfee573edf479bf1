/** The mail between a rank's circle and its proxy's thread: the thread looks whenever it likes, and misses nothing. */
import { EventEmitter } from 'node:events';
import type { MessagePort } from 'node:worker_threads';
import { MessageChannel } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { LocalCircle } from '../../../src/net/world/local-circle.js';
import { MailedCircle, newMail, serveCircle } from '../../../src/net/world/proxy/mail.js';

test('a thread that looks right before a message is there reads it the next time', () => {
  const [circle] = LocalCircle.create(1);
  const mail = newMail();
  const { port1, port2 } = new MessageChannel();
  const thread = new MailedCircle(port2, mail);
  // The thread has no event loop: it reads by looking.
  port2.removeAllListeners('message');
  const slow = Object.assign(new EventEmitter(), {
    postMessage: (message: unknown) => {
      thread.readMail();
      port1.postMessage(message);
    },
    ...{ unref: () => {}, close: () => port1.close() },
  });
  const mailbox = serveCircle(circle!, slow as unknown as MessagePort, mail);
  mailbox.post({ kind: 'stop' });
  expect(thread.stopped).toBe(false);
  thread.readMail();
  expect(thread.stopped).toBe(true);
  mailbox.post({ kind: 'close' });
  port1.close();
});
