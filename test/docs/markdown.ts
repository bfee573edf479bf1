/** The pages of documentation, taken apart. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../tree.js';

export interface Block {
  readonly page: string;
  /** Of the first line inside. */
  readonly line: number;
  readonly language: string;
  readonly text: string;
  /** `<!-- from path -->` before it: an excerpt of that file. */
  readonly from: string | null;
  /** `<!-- given: … -->` before it: what the reader has already. */
  readonly given: string;
}

export interface Page {
  readonly path: string;
  readonly text: string;
  readonly blocks: readonly Block[];
}

const docs = readdirSync(join(root, 'docs')).filter((name) => name.endsWith('.md'));

export const pages: readonly Page[] = [
  'README.md',
  'CONTRIBUTING.md',
  'SKILL.md',
  'llms.txt',
  'CHANGELOG.md',
  'SECURITY.md',
  ...docs.map((name) => `docs/${name}`),
].map((path) => {
  const text = readFileSync(join(root, path), 'utf8');
  return { path, text, blocks: blocksOf(path, text) };
});

export const page = (path: string): Page => pages.find((one) => one.path === path)!;

function blocksOf(path: string, text: string): Block[] {
  const fences = text.matchAll(/(?:^<!-- (from|given:) ([^>]*?) -->\n)?^```(\w*)\n([\s\S]*?)^```$/gm);
  return [...fences].map((match) => {
    const [all, mark, value, language, body] = match;
    return {
      page: path,
      line: text.slice(0, match.index + all.indexOf('```')).split('\n').length + 1,
      language: language!,
      text: body!,
      from: mark === 'from' ? value! : null,
      given: mark === 'given:' ? value! : '',
    };
  });
}

/** The commands of the shell blocks, comments removed, continued lines joined. */
export function commandsOf({ blocks }: Page): string[] {
  return blocks
    .filter(({ language }) => language === 'sh')
    .flatMap(({ text }) => text.replaceAll(/\\\n\s*/g, '').split('\n'))
    .map((line) => line.replace(/(^|\s)# .*$/, '').trim())
    .filter((line) => line !== '');
}
