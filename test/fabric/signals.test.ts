import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { transpiledUrl } from '../tree.js';

it('opening libfabric leaves the signals of the process alone', () => {
  const door = transpiledUrl('src/fabric/index.ts').href;
  const script = `
    const { listProviders } = await import(${JSON.stringify(door)});
    listProviders();
    process.kill(process.pid, 'SIGTERM');
    setInterval(() => {}, 1000);`;
  const { signal, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', script], {
    encoding: 'utf8',
    timeout: 20_000,
    killSignal: 'SIGKILL',
    env: { ...process.env, NODE_OPTIONS: '' },
  });
  expect(stderr).toBe('');
  expect(signal).toBe('SIGTERM');
});
