/** The import directions are a rule only if breaking them fails: small houses, each with one thing wrong. */
import { mkdir, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { cruise, type IConfiguration, type ICruiseResult } from 'dependency-cruiser';
import { describe, expect, test } from 'vitest';
import { temporaryFolder } from '../temporary.js';
import { root } from '../tree.js';

const config = createRequire(import.meta.url)(join(root, '.dependency-cruiser.cjs')) as IConfiguration;
const { forbidden = [], options = {} } = config;

type House = Readonly<Record<string, string>>;

/** What is right: two rooms, the upper enters the lower by its door, files of one room see each other. */
const sound: House = {
  'src/index.ts': `export { add } from './moe/index.js';`,
  'src/moe/index.ts': `export { add } from './add.js';`,
  'src/moe/add.ts': `import { type Lower, one } from '../lang/index.js';\nexport const add = (x: Lower) => x + one;`,
  'src/lang/index.ts': `export { one } from './one.js';\nexport type Lower = number;`,
  'src/lang/one.ts': `export const one = 1;`,
};

/** Houses with one thing wrong: the rule that they break, what it is, and the files that are otherwise. */
const broken = `
lang-points-down | an import that points up the list of rooms
src/lang/one.ts: import { add } from '../moe/index.js'; export const one = () => add(1);

lang-points-down | a type that points up: types are imports too
src/lang/one.ts: import type { add } from '../moe/index.js'; export const one: typeof add = (x) => x;

no-cycles | a cycle inside a room
src/lang/one.ts: import type { Lower } from './index.js'; export const one: Lower = 1;

by-the-door | a room entered by a window
src/moe/add.ts: import { one } from '../lang/one.js'; export const add = (x: number) => x + one;

package-by-the-doors | the package entering a room by a window
src/index.ts: export { add } from './moe/add.js';

package-is-the-top | a room that imports the whole package
src/moe/add.ts: import * as all from '../index.js'; export const add = () => all;

known-rooms | a room that the list does not know
src/attic/index.ts: export { one } from '../lang/index.js';

without-node | Node.js where a browser has to do
src/lang/one.ts: import { sep } from 'node:path'; export const one = sep.length;

without-native | foreign functions where a browser has to do
src/lang/one.ts: export { two as one } from '../base/native/index.js';
src/base/native/index.ts: export const two = 2;

fabric-engine-on-top | fabric's core looking at its engine
src/net/fabric/core/core.ts: export { one } from '../engine/engine.js';
src/net/fabric/engine/engine.ts: export const one = 1;

libfabric-at-the-bottom | libfabric looking at the core
src/net/fabric/libfabric/bindings.ts: export { one } from '../core/core.js';
src/net/fabric/core/core.ts: export const one = 1;

product-only | a test shipped with the product
test/helper.ts: export const one = 1;
src/lang/one.ts: export { one } from '../../test/helper.js';`
  .trim()
  .split('\n\n')
  .map((house) => {
    const [head = '', ...files] = house.split('\n');
    const [rule = '', name = ''] = head.split(' | ');
    const change: House = Object.fromEntries(files.map((line) => line.split(/: (.*)/, 2)));
    return { name, rule, change };
  });

const folder = temporaryFolder();

/** The rules that a house breaks, each once. */
async function brokenRules(name: string, house: House): Promise<string[]> {
  const home = join(folder, name.replaceAll(/\W+/g, '-'));
  for (const [path, text] of Object.entries(house)) {
    await mkdir(dirname(join(home, path)), { recursive: true });
    await writeFile(join(home, path), text);
  }
  const { output } = await cruise(
    ['src'],
    { ...options, ruleSet: { forbidden }, validate: true, baseDir: home },
    options.enhancedResolveOptions ?? {},
  );
  const { summary } = output as ICruiseResult;
  return [...new Set(summary.violations.map(({ rule }) => rule.name))];
}

describe('import directions', () => {
  test('a sound house breaks no rule', async () => {
    expect(await brokenRules('sound', sound)).toEqual([]);
  });

  test.each(broken)('$name breaks $rule', async ({ name, rule, change }) => {
    expect(await brokenRules(name, { ...sound, ...change })).toContain(rule);
  });
});
