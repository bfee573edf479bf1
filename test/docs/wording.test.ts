/** Sentences name their subject: almost none begins with a headless 'What', 'Who' or 'Whose'. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { root } from '../tree.js';
import { pages } from './markdown.js';

const headless = /^(?:[-*] |\d+\. |\*\*)?(?:What|Who|Whoever|Whom|Whose|Whatever)\b[^?]*$/;

/** The texts of a file's comments, lines of one comment joined. */
function commentsOf(source: string): string[] {
  const found = source.matchAll(/\/\*\*?([\s\S]*?)\*\/|((?:^[ \t]*\/\/.*\n)+)|[;{,)] \/\/ (.*)/gm);
  return [...found].map(([, block, lines, end]) =>
    (block ?? lines ?? end!).replaceAll(/^[ \t]*(?:\*|\/\/) ?/gm, '').trim(),
  );
}

/** The prose of a page: no code, no tables, no headings. */
const proseOf = (text: string): string[] =>
  text
    .replaceAll(/^```[\s\S]*?^```$|^[|#<].*$|^ {4}.*$/gm, '')
    .split(/\n\s*\n|\n(?=- |\d+\. )/)
    .filter((paragraph) => !/^\s*$/.test(paragraph));

const sentencesOf = (text: string): string[] =>
  text
    .split(/(?<=[.!?:])\s+|\n\s*\n|^@\w+.*$/m)
    .map((sentence) => sentence.trim().replaceAll(/\s+/g, ' '))
    .filter((sentence) => /\w/.test(sentence));

const sources = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts'))
  .flatMap((name) => commentsOf(readFileSync(join(root, 'src', name), 'utf8')));

test.each([
  ['comments of src', sources],
  ['pages', pages.flatMap(({ text }) => proseOf(text))],
])('fewer than 1 in 100 sentences of the %s have no subject', (_, texts) => {
  const sentences = texts.flatMap(sentencesOf);
  expect(sentences.length).toBeGreaterThan(1000);
  const wrong = sentences.filter((sentence) => headless.test(sentence));
  expect(wrong.length, wrong.slice(0, 20).join('\n')).toBeLessThan(sentences.length / 100);
});

test('doc comments begin with their noun or a verb, not by pointing at the one before', () => {
  const pointing = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .flatMap((name) => {
      const found = readFileSync(join(root, 'src', name), 'utf8').matchAll(
        /\/\*\*[\s*]*(?:Those|Of|The same|Likewise)\b.*/g,
      );
      return [...found].map(([comment]) => `src/${name}: ${comment}`);
    });
  expect(pointing).toEqual([]);
});
