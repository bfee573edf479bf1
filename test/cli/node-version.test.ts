import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { tooOld } from '../../src/cli/start.js';
import { transpiled } from '../tree.js';

it.each(['20.19.0', '20.20.1', '22.0.0', '26.1.0-nightly', process.versions.node])(
  'takes Node.js %s',
  (version) => {
    expect(tooOld(version)).toBe(null);
  },
);

it.each(['20.18.9', '18.20.4', '9.99.0'])('refuses Node.js %s', (version) => {
  expect(tooOld(version)).toBe(
    `heddle: this is Node.js ${version}, and heddle needs 20.19 or newer (https://nodejs.org)`,
  );
});

it('says so before any command is looked at', () => {
  const versions =
    "Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '18.0.0' } })";
  const loaded = ['--import', `data:text/javascript,${encodeURIComponent(versions)}`];
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [...loaded, transpiled('src/cli/main.ts'), 'doctor'],
    { encoding: 'utf8' },
  );
  expect([status, stdout]).toEqual([2, '']);
  expect(stderr).toMatch(/^heddle: this is Node\.js 18\.0\.0, .*\n$/);
});
