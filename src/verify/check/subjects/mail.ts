/** The mail from a rank to its proxy's thread, which reads by looking: whenever it looks, it misses nothing for good. */
import { MessageChannel } from 'node:worker_threads';
import { MailedCircle, newMail, serveCircle } from '../../../net/index.js';
import { LocalCircle } from '../../../net/world/index.js';
import { type CheckConfiguration, WrongResult } from '../subject.js';

/** `serve`: the rank's side. The thread looks right before each message is there and right behind, and once at the end. */
export const mailOf = (name: string, serve = serveCircle): CheckConfiguration => ({
  name: `${name}, its mail`,
  ranks: 1,
  async run() {
    const [circle] = LocalCircle.create(1);
    const { port1: own, port2: port } = new MessageChannel();
    const mail = newMail();
    const thread = new MailedCircle(port, mail);
    // From its first turn on the thread has no event loop.
    port.removeAllListeners('message');
    const post = own.postMessage.bind(own);
    own.postMessage = (message) => {
      thread.readMail();
      post(message);
      thread.readMail();
    };
    const mailbox = serve(circle!, own, mail);
    mailbox.post({ kind: 'stop' });
    thread.readMail();
    mailbox.close();
    if (!thread.stopped) throw new WrongResult('the thread of a proxy never hears that it has to stop');
  },
});
