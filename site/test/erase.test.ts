/** Types erased by the editor's parser leave what another stripper of types leaves. */
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { tokenizer } from 'acorn';
import { transformSync } from 'amaro';
import { expect, test } from 'vitest';
import { eraseTypes } from '../playground/erase.js';

const root = resolve(import.meta.dirname, '../..');
const files = ['test/gpu/sim/gallery', 'examples'].flatMap((folder) =>
  readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => `${folder}/${name}`),
);

/** What it says and where, but for separators, which another stripper puts where types ended. */
function tokens(text: string): string[] {
  return [...tokenizer(text, { ecmaVersion: 'latest', sourceType: 'module' })]
    .map(({ start, end }) => `${start} ${text.slice(start, end)}`)
    .filter((token) => !/ [;,]$/.test(token));
}

test.each(files)('%s', (file) => {
  const text = readFileSync(join(root, file), 'utf8');
  expect(tokens(eraseTypes(text))).toEqual(tokens(transformSync(text, { mode: 'strip-only' }).code));
});
