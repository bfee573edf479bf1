/** What the documentation says is tried: its code compiles, its commands exist, its links lead somewhere. */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import ts from 'typescript';
import { beforeAll, describe, expect, test } from 'vitest';
import { Command } from '../../src/cli/commander.js';
import { commands } from '../../src/cli/program.js';
import { programs } from '../gpu/sim/gallery/programs.js';
import { root, transpiled } from '../tree.js';
import { type Block, commandsOf, page, pages } from './markdown.js';

const scripts = (JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { scripts: object }).scripts;
const blocks = pages.flatMap((one) => one.blocks);

describe('code', () => {
  const excerpts = blocks.filter(({ from }) => from !== null);
  test.each(excerpts)('$page:$line is what $from says', ({ from, text }) => {
    expect(flat(readFileSync(join(root, from!), 'utf8'))).toContain(flat(text));
  });

  test('compiles', { timeout: 120_000 }, () => {
    const own = blocks.filter(
      ({ language, from }) => ['ts', 'typescript'].includes(language) && from === null,
    );
    expect(own.length).toBeGreaterThan(0);
    expect(typeErrors(own)).toEqual([]);
  });

  test.each(['examples/ring.ts', 'examples/round-trip.ts'])('%s runs', (path) => {
    const output = execFileSync(process.execPath, [transpiled(path)], { encoding: 'utf8' });
    expect(output).toMatch(/^rank 0.*\nrank 1.*\nrank 2.*\nrank 3.*\n$/);
  });
});

describe('commands', () => {
  const program = new Command('heddle').enablePositionalOptions();
  beforeAll(async () => {
    for (const { name, load } of commands) (await load()).register(program.command(name));
  });

  const lines = pages.flatMap((one) => commandsOf(one).map((line) => ({ page: one.path, line })));
  const heddle = lines.filter(({ line }) => /^(npx )?heddle /.test(line));
  test.each(heddle)('$page: $line', ({ line }) => {
    expect(unknownWords(program, line)).toEqual([]);
  });

  const npm = lines.flatMap(({ page: path, line }) =>
    [...line.matchAll(/\bnpm (?:run )?(?:--silent )?(start|test|(?<=run )[\w:]+)/g)].map(([, script]) => ({
      path,
      script,
    })),
  );
  test.each(npm)('$path: npm script $script', ({ script }) => {
    expect(Object.keys(scripts)).toContain(script);
  });

  test('README starts with two, each enough by itself', () => {
    const first = page('README.md')
      .blocks.filter(({ language }) => language === 'sh')
      .slice(0, 2);
    expect(first.map(({ text }) => text.trim())).toEqual([
      'npm install && npm start',
      'npm install && npm test',
    ]);
  });

  test('README lists every one', () => {
    const rows = [...page('README.md').text.matchAll(/^\| `heddle (\w+)/gm)].map(([, name]) => name);
    expect(rows).toEqual(commands.map(({ name }) => name));
  });

  /**
   * Each says something without a GPU, within seconds; `heddle check` has a step of `npm test` to itself, and `heddle doctor` tests
   * of its own (test/cli, test/moe/families/own-family).
   */
  const quick = /^npx heddle (emit|fabric list)/;
  const run = commandsOf(page('README.md')).filter((line) => quick.test(line));
  test('README has one that is quick to try', () => expect(run.length).toBeGreaterThan(0));
  test.each(run)('%s', (line) => {
    const command = line
      .replace('npx heddle', `"${process.execPath}" "${transpiled('src/cli/main.ts')}"`)
      .replace(/ > .*/, '');
    const output = execFileSync('sh', ['-c', command], {
      cwd: root,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    expect(output.length).toBeGreaterThan(60);
  });
});

describe('figures', () => {
  const results = join(root, 'docs/results');
  const newest = '2026-11-26-4xh200-side-by-side';
  type Group = Readonly<Record<string, readonly number[]>>;
  interface Comparison {
    readonly tokens: readonly number[];
    readonly bf16: Readonly<Record<'2' | '4', Group>>;
    readonly fp8: Readonly<Record<'2' | '4', Group>>;
  }
  const { tokens, bf16, fp8 } = JSON.parse(
    readFileSync(join(results, `${newest}.json`), 'utf8'),
  ) as Comparison;
  const cells = (row: string): string[] => row.split(' | ').slice(1);
  const head = `tokens a rank | ${tokens.join(' | ')}`;

  /** What a row must show: its figures in the JSON, with as many decimals as it has. */
  function wanted(group: Group, row: string): string[] {
    const figures = group[row.split(' | ')[0]!];
    if (figures !== undefined) return cells(row).map((cell, i) => figures[i]!.toFixed(decimals(cell)));
    return group['store ceiling']!.map(
      (ceiling, i) => `${Math.round((100 * ceiling) / group.Heddle![i]!)} %`,
    );
  }
  const decimals = (cell: string): number => cell.split('.')[1]?.length ?? 0;

  test.each([
    ['README.md', [bf16[4]]],
    [`docs/results/${newest}.md`, [bf16[4], bf16[2], fp8[4], fp8[2]]],
  ])('%s shows what the JSON of the newest comparison has', (path, groups) => {
    const rows = [...readFileSync(join(root, path), 'utf8').matchAll(/(?:^\|.*\|\n)+/gm)]
      .map(([table]) =>
        table
          .trim()
          .split('\n')
          .map((line) => line.replace(/^\| | \|$/g, '')),
      )
      .filter(([first]) => first === head)
      .map((lines) => lines.slice(2));
    expect(rows).toHaveLength(groups.length);
    rows.forEach((table, i) => {
      expect(table.map((row) => row.split(' | ')[0])).toEqual(
        expect.arrayContaining(['Heddle', 'FlashInfer']),
      );
      expect(table.map(cells)).toEqual(table.map((row) => wanted(groups[i]!, row)));
    });
  });

  test('every page of results names the commit that was measured', () => {
    const unnamed = readdirSync(results)
      .filter((name) => name.endsWith('.md'))
      .filter((name) => {
        const text = readFileSync(join(results, name), 'utf8');
        return !/\bcommit/i.test(text) || !/\b[0-9a-f]{7,8}\b/.test(text);
      });
    expect(unnamed).toEqual([]);
  });

  test('README counts the mistakes of the playground', () => {
    const numbers = ['ten', 'eleven', 'twelve', 'thirteen', 'fourteen'];
    expect(page('README.md').text).toContain(`${numbers[programs.length - 10]} mistakes`);
  });
});

describe('links', () => {
  const links = pages.flatMap(({ path, text }) =>
    [...text.matchAll(/\]\((?!https?:)([^)\s]+)\)/g)].map(([, to]) => ({ path, to: to! })),
  );
  test.each(links)('$path → $to', ({ path, to }) => {
    const [file, anchor] = to.split('#');
    const target = file === '' ? join(root, path) : join(root, dirname(path), file!);
    expect(existsSync(target)).toBe(true);
    if (anchor !== undefined) expect(anchors(readFileSync(target, 'utf8'))).toContain(anchor);
  });

  test('none leads to an address that is not published', () => {
    const manifest = readFileSync(join(root, 'package.json'), 'utf8');
    for (const text of [manifest, ...pages.map((one) => one.text)]) {
      expect(text).not.toMatch(/(?:github(?:usercontent)?|npmjs)\.com\/(?:package\/)?heddle/);
    }
  });

  const paths = pages
    .filter(({ path }) => path !== 'CHANGELOG.md')
    .flatMap(({ path, text }) =>
      [...text.matchAll(/`((?:src|test|docs|scripts|examples)\/[\w./-]+)`/g)].map(([, to]) => ({
        path,
        to: to!,
      })),
    );
  test('a path that a page names is there', () => {
    expect(paths.filter(({ to }) => !existsSync(join(root, to)))).toEqual([]);
  });

  test('docs/README.md answers ten questions, each with a place on a page', () => {
    const { text } = page('docs/README.md');
    const section = text.slice(text.indexOf('## Ten questions'), text.indexOf('## Tutorial'));
    const answers = section.match(/^- .+\? \[[^\]]+\]\([\w-]+\.md#[\w-]+\)$/gm);
    expect(answers).toHaveLength(10);
  });

  test('docs/README.md leads to every page', () => {
    const reached = links
      .filter(({ path }) => path === 'docs/README.md')
      .map(({ to }) => relative(root, join(root, 'docs', to.split('#')[0]!)));
    expect(reached).toEqual(
      expect.arrayContaining(pages.map(({ path }) => path).filter((p) => p !== 'docs/README.md')),
    );
  });
});

/** Lines without their indentation, so that an excerpt may start anywhere. */
function flat(text: string): string {
  return text
    .split('\n')
    .map((line) => line.trim())
    .join('\n')
    .trim();
}

/** What blocks may use without saying where it comes from. */
const known = `
import type * as heddle from 'heddle';
declare global {
  type DispatchInputs = heddle.DispatchInputs;
  const ExpertsMlp: typeof heddle.ExpertsMlp;
  const ExpertsPlan: typeof heddle.ExpertsPlan;
  const ModelFiles: typeof heddle.ModelFiles;
  const LayerBuffers: typeof heddle.LayerBuffers;
  const MoeLayer: typeof heddle.MoeLayer;
  const world: heddle.World, ep: heddle.ExpertParallel, plan: heddle.ExpertsPlan;
  const stream: heddle.Stream, streamA: heddle.Stream, streamB: heddle.Stream;
  const inputs: DispatchInputs, a: DispatchInputs, b: DispatchInputs, received: heddle.Received;
  const x: heddle.Tensor, out: heddle.Tensor, outA: heddle.Tensor, made: heddle.Tensor;
  const gateUp: heddle.Tensor, down: heddle.Tensor, router: heddle.RouterWeights;
  const sharedExperts: heddle.MlpWeights;
  const experts: heddle.MlpWeights & ((received: heddle.Received, stream: heddle.Stream) => void);
  const gemms: (x: heddle.Tensor, offsets: heddle.Tensor, counts: heddle.Tensor, made: heddle.Tensor) => void;
  const myKernel: import('heddle/lang').Kernel;
}
`;

/** Type-checks blocks as if each were a module at the root of the repository. */
function typeErrors(all: readonly Block[]): string[] {
  const config = ts.readConfigFile(join(root, 'tsconfig.json'), ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent(config.config, ts.sys, root);
  const sources = new Map(
    all.map((block, i) => [
      join(root, 'examples', `block-${i}.ts`),
      { block, text: `${block.given} export {};\n${block.text}` },
    ]),
  );
  const texts = new Map([...sources].map(([name, { text }]) => [name, text]));
  texts.set(join(root, 'examples', 'known.ts'), known);
  const host = ts.createCompilerHost(options);
  const { fileExists, getSourceFile, readFile } = host;
  host.fileExists = (name) => texts.has(name) || fileExists(name);
  host.readFile = (name) => texts.get(name) ?? readFile(name);
  host.getSourceFile = (name, language, ...rest) => {
    const text = texts.get(name);
    return text === undefined
      ? getSourceFile(name, language, ...rest)
      : ts.createSourceFile(name, text, language);
  };
  const unused = { noUnusedLocals: false, noUnusedParameters: false };
  const program = ts.createProgram([...texts.keys()], { ...options, ...unused }, host);
  return [...sources].flatMap(([name, { block }]) => {
    const file = program.getSourceFile(name)!;
    return [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)].map(
      (found) => {
        const line = block.line + file.getLineAndCharacterOfPosition(found.start ?? 0).line - 1;
        return `${block.page}:${line} ${ts.flattenDiagnosticMessageText(found.messageText, ' ')}`;
      },
    );
  });
}

/** What a command line says that Heddle does not know: commands and options. */
function unknownWords(program: CommandUnknownOpts, line: string): string[] {
  const [, ...all] = line
    .replace(/^npx /, '')
    .split(/\s+(?:[|>;&]|2>|-- )/)[0]!
    .split(/\s+/);
  let command = program;
  const unknown: string[] = [];
  for (const word of all) {
    if (word.startsWith('-')) {
      const name = word.split('=')[0]!;
      const known = command.options.some(({ short, long }) => short === name || long === name);
      if (!known && name !== '--help') unknown.push(word);
      continue;
    }
    const sub = command.commands.find((one) => one.name() === word);
    if (sub !== undefined) command = sub;
    else if (command === program) unknown.push(word);
    // What follows the program of `heddle run` is the program's.
    if (command.name() === 'run' && /\.[cm]?[jt]s$/.test(word)) break;
  }
  return unknown;
}

/** The anchors of a page's headings, as GitHub makes them. */
function anchors(text: string): string[] {
  const own = [...text.matchAll(/<a id="([^"]+)">/g)].map(([, id]) => id!);
  const headings = [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading]) =>
    heading!
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s-]/gu, '')
      .trim()
      .replaceAll(' ', '-'),
  );
  return [...headings, ...own];
}
