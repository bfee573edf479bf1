import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { needing } from '../../needs.js';
import { transpiledUrl } from '../../tree.js';

const door = transpiledUrl('src/net/fabric/index.ts').href;

/** A process that is told to end behind this does, and says nothing. */
function expectEnded(script: string): void {
  const told = `${script}
    process.kill(process.pid, 'SIGTERM');
    setInterval(() => {}, 1000);`;
  const { signal, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', told], {
    encoding: 'utf8',
    timeout: 20_000,
    killSignal: 'SIGKILL',
    env: { ...process.env, NODE_OPTIONS: '' },
  });
  expect(stderr).toBe('');
  expect(signal).toBe('SIGTERM');
}

it('opening libfabric leaves the signals of the process alone', needing('libfabric'), () => {
  expectEnded(`
    const { listProviders } = await import(${JSON.stringify(door)});
    listProviders();`);
});

it(
  'a signal finds the handlers of a provider still there when the thread that opened it has ended',
  needing('shm'),
  () => {
    expectEnded(`
    const { once } = await import('node:events');
    const { SHARE_ENV, Worker } = await import('node:worker_threads');
    const program = \`import(${JSON.stringify(door)}).then(async ({ TransferEngine }) => {
      const engine = await TransferEngine.open({ provider: 'shm', thread: 'caller' });
      await engine.close();
    })\`;
    await once(new Worker(program, { eval: true, env: SHARE_ENV }), 'exit');`);
  },
);
