/** What a reader of `src/moe` may count on: a body fits on a screen, and nothing stands there twice. */
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import ts from 'typescript';
import { describe, expect, test } from 'vitest';

const mostLines = 80;
const leastAlike = 6;

/** The functions that are too long, as `name:line`. */
function longFunctions(name: string, text: string): string[] {
  const file = ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true);
  const lineOf = (at: number): number => file.getLineAndCharacterOfPosition(at).line + 1;
  const found: string[] = [];
  const visit = (node: ts.Node): void => {
    ts.forEachChild(node, visit);
    if (!ts.isFunctionLike(node) || !('body' in node) || node.body === undefined) return;
    const first = lineOf(node.body.getStart());
    if (lineOf(node.body.getEnd()) - first >= mostLines) found.push(`${name}:${first}`);
  };
  visit(file);
  return found;
}

/** Runs of so many lines of code that stand in two places, as `name:line = name:line`. Imports and comments do not count. */
function blocksTwice(files: Readonly<Record<string, string>>): string[] {
  const seen = new Map<string, string>();
  const found: string[] = [];
  for (const [name, text] of Object.entries(files)) {
    const lines = codeLines(text);
    for (let i = 0; i + leastAlike <= lines.length; i++) {
      const run = lines.slice(i, i + leastAlike);
      const code = run.map(({ code }) => code).join('\n');
      const place = `${name}:${run[0]!.line}`;
      const other = seen.get(code);
      if (other === undefined) seen.set(code, place);
      else found.push(`${other} = ${place}`);
    }
  }
  return found;
}

function codeLines(text: string): { readonly line: number; readonly code: string }[] {
  const withoutComments = text.replace(/\/\*[\s\S]*?\*\//g, (comment) => comment.replace(/[^\n]/g, ''));
  const withoutImports = withoutComments.replace(/^import [\s\S]*?;$/gm, (lines) =>
    lines.replace(/[^\n]/g, ''),
  );
  return withoutImports
    .split('\n')
    .map((written, i) => ({ line: i + 1, code: written.replace(/\/\/.*$/, '').trim() }))
    .filter(({ code }) => /\w/.test(code));
}

/** Locals of kernels with the name of something around the kernel, as `name local`: under esbuild, and so tsx, CUDA has other names for them. */
function shadowingLocals(name: string, text: string): string[] {
  const file = ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true);
  const found: string[] = [];
  /** All names of a function or file, without those of functions inside. */
  const declaredIn = (node: ts.Node): ts.Identifier[] => {
    const names: ts.Identifier[] = [];
    const look = (child: ts.Node): void => {
      const declares = ts.isVariableDeclaration(child) || ts.isBindingElement(child) || ts.isParameter(child);
      if ((declares || ts.isImportSpecifier(child)) && ts.isIdentifier(child.name)) names.push(child.name);
      if (!ts.isFunctionLike(child)) ts.forEachChild(child, look);
    };
    ts.forEachChild(node, look);
    return names;
  };
  const visit = (node: ts.Node, around: readonly string[]): void => {
    const ofKernel =
      ts.isCallExpression(node.parent) && /^(kernel|device)$/.test(node.parent.expression.getText());
    const body = ofKernel && ts.isArrowFunction(node) ? node.body : node;
    const locals = ts.isFunctionLike(node) ? declaredIn(body) : [];
    for (const { text } of body === node ? [] : locals)
      if (around.includes(text)) found.push(`${name} ${text}`);
    ts.forEachChild(node, (child) => visit(child, [...around, ...locals.map(({ text }) => text)]));
  };
  const names = declaredIn(file).map(({ text }) => text);
  if (/\b(kernel|device)\(/.test(text)) ts.forEachChild(file, (child) => visit(child, names));
  return found;
}

const sources = (root: string): Readonly<Record<string, string>> =>
  Object.fromEntries(
    readdirSync(root, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts'))
      .sort()
      .map((name) => [name, readFileSync(join(root, name), 'utf8')]),
  );
const src = resolve(import.meta.dirname, '../../src');
const files = sources(join(src, 'moe'));

test('no function of src/moe is longer than a screen', () => {
  expect(Object.entries(files).flatMap(([name, text]) => longFunctions(name, text))).toEqual([]);
});

test('no six lines of src/moe stand there twice', () => {
  expect(blocksTwice(files)).toEqual([]);
});

test('no local of a kernel has the name of something around it', () => {
  expect(Object.entries(sources(src)).flatMap(([name, text]) => shadowingLocals(name, text))).toEqual([]);
});

describe('those who look see', () => {
  const body = Array.from({ length: mostLines }, (_, i) => `  f(${i});`);

  test('a long function', () => {
    const text = ['const g = () => {', ...body, '};'].join('\n');
    expect(longFunctions('a.ts', text)).toEqual(['a.ts:1']);
    expect(longFunctions('a.ts', ['const g = () => {', ...body.slice(2), '};'].join('\n'))).toEqual([]);
  });

  test('a block twice, however it is indented and commented', () => {
    const block = body.slice(0, leastAlike);
    const again = block.map((line) => `    ${line} // as there`);
    expect(blocksTwice({ 'a.ts': block.join('\n'), 'b.ts': ['', ...again].join('\n') })).toEqual([
      'a.ts:1 = b.ts:2',
    ]);
    expect(blocksTwice({ 'a.ts': block.join('\n'), 'b.ts': again.slice(1).join('\n') })).toEqual([]);
  });

  test('a local that shadows, not a parameter, nor what lies beside', () => {
    const text = `const made = ({ win }) => device({}, (g, { win, count }) => {
      const mine = win.at(count);
      for (const [win] of mine) g.store(win, 1);
    });
    const other = () => { const count = 2; };`;
    expect(shadowingLocals('a.ts', `${text} const { a: [mine] } = made;`)).toEqual(['a.ts mine', 'a.ts win']);
    expect(shadowingLocals('a.ts', text.replace('[win]', '[one]'))).toEqual([]);
  });
});
