/** docs/troubleshooting.md has an entry with an anchor for every code that src throws, and for no other. */
import { expect, test } from 'vitest';
import { page } from './markdown.js';
import { codes } from './names.js';

test('docs/troubleshooting.md has every code of an error, each with an anchor', () => {
  const entries = [...page('docs/troubleshooting.md').text.matchAll(/^- <a id="(\w+)"><\/a>`(\w+)`: /gm)];
  expect(entries.map(([, anchor, code]) => [anchor, code])).toEqual(
    codes.map((code) => [code.toLowerCase(), code]),
  );
});
