/**
 * The thread of a proxy. It connects, and from then on takes one turn after another without an event loop. While there is
 * something to do it spins; then it offers its processor to others, and after some milliseconds it naps: a proxy that polls
 * costs a core, an idle one next to nothing. A kernel cannot wake it, so the first round after a pause waits for the end of
 * a nap.
 */
import { type MessagePort, workerData } from 'node:worker_threads';
import { stayOn, view, yieldProcessor } from '../../../base/native/index.js';
import { NativeView, type ReachedGpu, type WireShape } from '../../../gpu/index.js';
import type { ProviderName } from '../../fabric/index.js';
import { MailedCircle, toMail } from './mail.js';
import { type FabricOptions, openAhead, overFabric, withEnvironment } from './network.js';
import {
  deliver,
  type PreparedProxy,
  type ProxyMemory,
  type ProxyProgramName,
  prepareProxy,
  proxyMaker,
} from './program.js';

/** The data with which the thread is started. */
export interface ProxyThreadData {
  readonly port: MessagePort;
  /** As `newMail` makes it. */
  readonly mail: SharedArrayBuffer;
  readonly program: ProxyProgramName;
  /** `gpu`: what NICs reach, if it lies there. Memory of the host is the thread's too, at its address. */
  readonly memory: WireShape & { readonly address: number; readonly gpu: ReachedGpu | null };
  readonly fabric: FabricOptions;
  /** The network whose end it opens before it begins. */
  readonly provider: ProviderName | null;
}

/** Turns without anything to do before the thread offers its processor, and before it naps. */
const spins = 1000;
const yields = 10_000;
/** Mail is read between so many turns. */
const turnsPerMail = 16;
const shortestNapMs = 0.05;
const longestNapMs = 1;

function run(circle: MailedCircle, proxy: PreparedProxy): void {
  let idle = 0;
  let napMs = shortestNapMs;
  for (let turn = 0; !circle.stopped; turn++) {
    if (turn % turnsPerMail === 0) circle.readMail();
    if (proxy.step()) {
      idle = 0;
      napMs = shortestNapMs;
    } else if (++idle > spins) {
      if (idle < yields) yieldProcessor();
      else {
        circle.readMail();
        if (!circle.stopped) circle.nap(napMs);
        napMs = Math.min(2 * napMs, longestNapMs);
      }
    }
  }
}

function memoryOf({ address, bytes, front, side, gpu }: ProxyThreadData['memory']): ProxyMemory {
  const raw = new Uint8Array(view(address, side === 'gpu' ? front : bytes));
  const nics = gpu ?? ({ kind: 'host', raw: raw.subarray(front) } as const);
  return { address, front, side, host: new NativeView(raw), nics };
}

const { port, mail, program, memory, fabric, provider } = workerData as ProxyThreadData;
const circle = new MailedCircle(port, mail);
const there = memoryOf(memory);
const stopped = circle.untilStopped().then(() => null);
let proxy: PreparedProxy | undefined;
// What goes wrong here goes wrong again when it begins, with the others there to hear of it.
const making = proxyMaker(program);
making.catch(() => {});
const ahead =
  provider && (await openAhead(() => circle.stopped || circle.rank >= 0, fabric, provider, there.nics));
circle.tell({ kind: 'opened' });
const begin = await Promise.race([circle.begun, stopped]);
try {
  if (begin !== null) {
    const { processors = [] } = withEnvironment(fabric);
    if (processors.length > 0) stayOn(processors[circle.rank % processors.length]!);
    const of = { ...program, ranks: begin.ranks, make: await making };
    proxy = await prepareProxy(circle, overFabric(fabric, ahead), of, there);
    circle.tell({ kind: 'ready', provider: proxy.provider });
    run(circle, proxy);
    await deliver(proxy, () => {
      circle.readMail();
      yieldProcessor();
    });
  }
} catch (error) {
  circle.tell({ kind: 'failed', error: toMail(error) });
  // Peers hear from the circle why, before they find this end of the network closed.
  if (proxy !== undefined) await circle.untilStopped();
} finally {
  if (circle.stopped && begin !== null) await circle.untilAllStopped();
  await proxy?.close();
  await ahead?.engine.close();
  circle.end();
}
