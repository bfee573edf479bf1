/** The tables of docs/environment.md have every variable that src reads, and no other; the page names those of others too. */
import { expect, test } from 'vitest';
import { page } from './markdown.js';
import { variables, variablesOfOthers } from './names.js';

test('every variable that src reads has a row, and every row is read', () => {
  const rows = [...page('docs/environment.md').text.matchAll(/^\| `(HEDDLE_\w+)` \|/gm)];
  expect(rows.map(([, name]) => name).sort()).toEqual(variables);
});

test('every variable of others that src reads or sets is on the page', () => {
  const { text } = page('docs/environment.md');
  expect(variablesOfOthers).toContain('CUDA_MODULE_LOADING');
  expect(variablesOfOthers.filter((name) => !new RegExp(`\`${name}[\`=]`).test(text))).toEqual([]);
});
