/** The import directions are a rule only if breaking them fails: small houses, each with one thing wrong. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { cruise, type IConfiguration, type ICruiseResult } from 'dependency-cruiser';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const root = resolve(import.meta.dirname, '../..');
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

const broken: readonly { readonly name: string; readonly rule: string; readonly change: House }[] = [
  {
    name: 'an import that points up the list of rooms',
    rule: 'lang-points-down',
    change: { 'src/lang/one.ts': `import { add } from '../moe/index.js';\nexport const one = () => add(1);` },
  },
  {
    name: 'a type that points up: types are imports too',
    rule: 'lang-points-down',
    change: {
      'src/lang/one.ts': `import type { add } from '../moe/index.js';\nexport const one: typeof add = (x) => x;`,
    },
  },
  {
    name: 'a cycle inside a room',
    rule: 'no-cycles',
    change: { 'src/lang/one.ts': `import type { Lower } from './index.js';\nexport const one: Lower = 1;` },
  },
  {
    name: 'a room entered by a window',
    rule: 'by-the-door',
    change: {
      'src/moe/add.ts': `import { one } from '../lang/one.js';\nexport const add = (x: number) => x + one;`,
    },
  },
  {
    name: 'the package entering a room by a window',
    rule: 'package-by-the-doors',
    change: { 'src/index.ts': `export { add } from './moe/add.js';` },
  },
  {
    name: 'a room that imports the whole package',
    rule: 'package-is-the-top',
    change: { 'src/moe/add.ts': `import * as all from '../index.js';\nexport const add = () => all;` },
  },
  {
    name: 'a room that the list does not know',
    rule: 'known-rooms',
    change: { 'src/attic/index.ts': `export { one } from '../lang/index.js';` },
  },
  {
    name: 'Node.js where a browser has to do',
    rule: 'without-node',
    change: { 'src/lang/one.ts': `import { sep } from 'node:path';\nexport const one = sep.length;` },
  },
  {
    name: 'foreign functions where a browser has to do',
    rule: 'without-native',
    change: {
      'src/lang/one.ts': `export { two as one } from '../base/native/index.js';`,
      'src/base/native/index.ts': 'export const two = 2;',
    },
  },
  {
    name: "fabric's core looking at its engine",
    rule: 'fabric-engine-on-top',
    change: {
      'src/net/fabric/core/core.ts': `export { one } from '../engine/engine.js';`,
      'src/net/fabric/engine/engine.ts': `export const one = 1;`,
    },
  },
  {
    name: 'libfabric looking at the core',
    rule: 'libfabric-at-the-bottom',
    change: {
      'src/net/fabric/libfabric/bindings.ts': `export { one } from '../core/core.js';`,
      'src/net/fabric/core/core.ts': `export const one = 1;`,
    },
  },
  {
    name: 'a test shipped with the product',
    rule: 'product-only',
    change: {
      'test/helper.ts': `export const one = 1;`,
      'src/lang/one.ts': `export { one } from '../../test/helper.js';`,
    },
  },
];

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'heddle-rooms-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

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
