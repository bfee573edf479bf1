import type { FromRank, TestRank, ToRank } from './ranks.js';

/** The process of one rank: waits for its part, plays it, tells the result. See ranks.ts. */

const send = (message: FromRank) =>
  new Promise<void>((resolve, reject) => {
    process.send!(message, (error: Error | null) => (error ? reject(error) : resolve()));
  });

let exchanged: ((values: unknown[]) => void) | null = null;
const told: unknown[] = [];
const listeners: ((what: unknown) => void)[] = [];

async function play({ rank, options }: Extract<ToRank, { kind: 'start' }>): Promise<void> {
  const self: TestRank = {
    rank,
    ranks: options.ranks,
    args: options.args,
    exchange: <T>(value: T) =>
      new Promise<T[]>((resolve, reject) => {
        exchanged = resolve as (values: unknown[]) => void;
        send({ kind: 'exchange', value }).catch(reject);
      }),
    tell: (what) => void send({ kind: 'tell', what }),
    told: () =>
      told.length > 0 ? Promise.resolve(told.shift()) : new Promise((resolve) => listeners.push(resolve)),
  };
  const module = (await import(options.module)) as Record<string, (rank: TestRank) => Promise<unknown>>;
  try {
    await send({ kind: 'result', value: await module[options.name]!(self) });
    process.disconnect();
  } catch (error) {
    await send({ kind: 'failed', message: error instanceof Error ? `${error.stack}` : String(error) });
    process.exit(1);
  }
}

process.on('message', (message: ToRank) => {
  switch (message.kind) {
    case 'start':
      void play(message);
      break;
    case 'exchanged':
      exchanged?.([...message.values]);
      break;
    case 'told': {
      const listener = listeners.shift();
      if (listener) listener(message.what);
      else told.push(message.what);
    }
  }
});
// Without whoever started it, a rank has nobody to tell anything.
process.on('disconnect', () => process.exit(0));
void send({ kind: 'ready' });
