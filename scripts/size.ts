/**
 * `npm run size`: lines and files of each room beside its ceiling, and words of the documentation. It ends with 1 where
 * something is above. Whoever needs more room raises a ceiling here, and says why in the commit.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

interface Part {
  readonly name: string;
  readonly files: readonly string[];
  readonly ceiling: number;
}

const ceilings = {
  base: 1_100,
  lang: 11_350,
  gpu: 21_790,
  net: 11_265,
  moe: 20_165,
  verify: 7_521,
  tools: 10_103,
  cli: 2_955,
};

const filesOf = (folder: string, ending: string, recursive = true): readonly string[] =>
  readdirSync(folder, { recursive, encoding: 'utf8' })
    .filter((name) => name.endsWith(ending))
    .map((name) => join(folder, name));

/** TypeScript, and the host in C that exports bring. */
const sources = (folder: string): readonly string[] =>
  ['.ts', '.c', '.h'].flatMap((ending) => filesOf(folder, ending));

const parts: readonly Part[] = [
  ...Object.entries(ceilings).map(([room, ceiling]) => ({
    ...{ name: `src/${room}`, files: sources(`src/${room}`), ceiling },
  })),
  { name: 'src', files: sources('src'), ceiling: 86_331 },
  { name: 'python', files: filesOf('python', '.py'), ceiling: 2_015 },
  { name: 'test', files: filesOf('test', '.ts'), ceiling: 52_181 },
];
const pages: Part = {
  ...{ name: 'docs and README', ceiling: 30_050 },
  files: ['README.md', ...filesOf('docs', '.md', false)],
};

const text = (file: string): string => readFileSync(file, 'utf8');
const linesOf = (file: string): number => text(file).split('\n').length - 1;
/** Words that a reader sees: tags, comments, the bars of tables and the marks of lists are none. */
const wordsOf = (file: string): number =>
  text(file)
    .replaceAll(/<!--.*?-->|<\/?a\b[^>]*>/gs, '')
    .split(/\s+/)
    .filter((word) => /[\p{L}\p{N}]/u.test(word)).length;
const sum = (files: readonly string[], count: (file: string) => number): number =>
  files.reduce((total, file) => total + count(file), 0);

const rows = [
  ...parts.map((part) => ({ ...part, unit: 'lines', size: sum(part.files, linesOf) })),
  { ...pages, unit: 'words', size: sum(pages.files, wordsOf) },
];
const above = rows.filter(({ size, ceiling }) => size > ceiling);

if (process.argv.includes('--json')) {
  const sizes = rows.map(({ files, ...row }) => ({ ...row, files: files.length }));
  console.log(JSON.stringify({ format: 'heddle-size/1', parts: sizes }, null, 2));
} else {
  console.log(`${'part'.padEnd(20)}${'files'.padStart(8)}${'size'.padStart(10)}${'ceiling'.padStart(10)}`);
  for (const { name, files, unit, size, ceiling } of rows) {
    const room = size > ceiling ? `${size - ceiling} above` : `${ceiling - size} left`;
    console.log(
      `${name.padEnd(20)}${String(files.length).padStart(8)}${String(size).padStart(10)}${String(ceiling).padStart(10)} ${unit}, ${room}`,
    );
  }
  if (above.length > 0)
    console.error(`\nabove its ceiling: ${above.map(({ name }) => name).join(', ')} (scripts/size.ts)`);
}
process.exitCode = above.length > 0 ? 1 : 0;
