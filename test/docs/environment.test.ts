/** The tables of docs/environment.md have every variable that src reads, and no other. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { page, root } from './markdown.js';
import { variables } from './names.js';

const rows = [...page('docs/environment.md').text.matchAll(/^\| `(HEDDLE_\w+)` \|.*/gm)].map(
  ([line, name]) => ({ name: name!, line }),
);

test('every variable that src reads has a row, and every row is read', () => {
  expect(rows.map(({ name }) => name).sort()).toEqual(variables);
});

test.each(rows)('$name is read where its row says', ({ name, line }) => {
  const files = [...line.matchAll(/\]\(\.\.\/(src\/[^)]+)\)/g)].map(([, path]) => path!);
  expect(files).not.toEqual([]);
  for (const file of files) expect(readFileSync(join(root, file), 'utf8')).toContain(name);
});
