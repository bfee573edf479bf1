/** The tables of docs/environment.md have every variable that src reads, and no other. */
import { expect, test } from 'vitest';
import { page } from './markdown.js';
import { variables } from './names.js';

test('every variable that src reads has a row, and every row is read', () => {
  const rows = [...page('docs/environment.md').text.matchAll(/^\| `(HEDDLE_\w+)` \|/gm)];
  expect(rows.map(([, name]) => name).sort()).toEqual(variables);
});
