import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { expect, it } from 'vitest';

it('opening libfabric leaves the signals of the process alone', () => {
  const loader = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;
  const door = new URL('../../src/fabric/index.ts', import.meta.url).href;
  const script = `
    const { listProviders } = await import(${JSON.stringify(door)});
    listProviders();
    process.kill(process.pid, 'SIGTERM');
    setInterval(() => {}, 1000);`;
  const { signal, stderr } = spawnSync(
    process.execPath,
    ['--import', loader, '--input-type=module', '--eval', script],
    { encoding: 'utf8', timeout: 20_000, killSignal: 'SIGKILL', env: { ...process.env, NODE_OPTIONS: '' } },
  );
  expect(stderr).toBe('');
  expect(signal).toBe('SIGTERM');
});
