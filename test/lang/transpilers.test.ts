import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import * as nodeModule from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { transformSync } from 'amaro';
import ts from 'typescript';
import { beforeAll, expect, test } from 'vitest';
import * as lang from '../../src/lang/index.js';
import { needing } from '../needs.js';
import { temporaryFolder } from '../temporary.js';
import * as underVitest from './fixtures/transpiled.js';
import { summary } from './summary.js';

const fixture = fileURLToPath(new URL('fixtures/transpiled.ts', import.meta.url));
const text = readFileSync(fixture, 'utf8');
const folder = temporaryFolder();

type Fixture = typeof underVitest;
type Summary = ReturnType<typeof summary>;
let viaVitest: Summary;
beforeAll(() => {
  viaVitest = summary(underVitest.make(lang).ir());
});

/** As Node loads it: past Vitest, which would transpile it once more. */
const require = nodeModule.createRequire(import.meta.url);
function load(name: string, code: string): Fixture {
  const path = join(folder, name);
  writeFileSync(path, code);
  return require(path);
}

function tsc(): { readonly code: string; readonly map: string } {
  const { outputText, sourceMapText } = ts.transpileModule(text, {
    fileName: fixture,
    compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2023, sourceMap: true },
  });
  return {
    code: outputText,
    map: JSON.stringify({ ...JSON.parse(sourceMapText ?? '{}'), sources: [fixture] }),
  };
}

/** The lines of the fixture that statements and effects of the kernel stand on. */
const lineOf = (piece: string): number => text.slice(0, text.indexOf(piece)).split('\n').length;

test('Vitest: effects stand where they were written', () => {
  expect(new Set(viaVitest.places.map((place) => place.split(':')[0]))).toEqual(
    new Set(['test/lang/fixtures/transpiled.ts']),
  );
  const lines = viaVitest.places.map((place) => Number(place.split(':')[1]));
  for (const piece of [
    'g.store(win.at(peer)',
    'const row = g.load',
    'g.atomicAdd',
    'g.barrier()',
    'g.sleep',
    'u.publish(',
  ]) {
    expect(lines, piece).toContain(lineOf(piece));
  }
});

test('tsc: the same IR, and the places of the source map', () => {
  const { code, map } = tsc();
  writeFileSync(join(folder, 'tsc.mjs.map'), map);
  const { make } = load('tsc.mjs', code);
  const viaTsc = summary(make(lang).ir());
  expect(viaTsc.ir).toEqual(viaVitest.ir);
  expect(viaTsc.places).toEqual(viaVitest.places);
});

test('tsc without its source map: the same IR, the places in the JavaScript', () => {
  const { make } = load('bare.mjs', tsc().code);
  const bare = summary(make(lang).ir());
  expect(bare.ir).toEqual(viaVitest.ir);
  expect(bare.places[0]).toMatch(/bare\.mjs:\d+:\d+$/);
});

test('type stripping: the same IR, the places of the source itself', () => {
  const { make } = load('amaro.mjs', transformSync(text, { mode: 'strip-only' }).code);
  const stripped = summary(make(lang).ir());
  expect(stripped.ir).toEqual(viaVitest.ir);
  const place = (of: string): string => of.split(':').slice(-2).join(':');
  expect(stripped.places.map(place)).toEqual(viaVitest.places.map(place));
});

test("Node's own type stripping: the same IR", needing('type stripping'), () => {
  const { stripTypeScriptTypes } = nodeModule as unknown as { stripTypeScriptTypes(code: string): string };
  const { make } = load('node.mjs', stripTypeScriptTypes(text));
  expect(summary(make(lang).ir()).ir).toEqual(viaVitest.ir);
});

test('tsx: the same IR, the same places, though all is on one line', () => {
  const script = fileURLToPath(new URL('fixtures/print-transpiled.ts', import.meta.url));
  const printed = execFileSync(process.execPath, ['--import', 'tsx', script], { encoding: 'utf8' });
  const viaTsx: Summary = JSON.parse(printed);
  expect(viaTsx.ir).toEqual(viaVitest.ir);
  expect(viaTsx.places).toEqual(viaVitest.places);
});

test('tsx: errors and findings are about what was written, not about what tsx makes of it', () => {
  const script = fileURLToPath(new URL('fixtures/print-squeezed.ts', import.meta.url));
  const told = JSON.parse(
    execFileSync(process.execPath, ['--import', 'tsx', script], { encoding: 'utf8' }),
  ) as Record<'inner' | 'declared' | 'joined' | 'mutants' | 'shadows', string[]>;
  const nested = expect.stringMatching(/^HK102 .*: a nested function; make it a device\(\)/);
  expect(told.inner).toEqual([nested]);
  expect(told.declared).toEqual([nested, expect.stringMatching(/^HK101 `twice` /)]);
  expect(told.joined).toEqual([expect.stringMatching(/^HK102 .*: an operator as a statement; write an if/)]);
  const statement =
    "g.store(out.at(g.threadIdx.x % 2), g.threadIdx.x === 0 ? 1 : 2, { order: 'release', scope: 'sys', })";
  expect(told.mutants).toEqual([statement, statement]);
  const shadowing = "g.store(out.at(A + B + C), D, { order: 'release', scope: 'gpu' })";
  expect(told.shadows).toEqual([shadowing, shadowing]);
});

test('equal bodies in one file are told apart by where they were made', () => {
  const first = lang.kernel({ name: 'first', params: {} }, (g) => g.barrier());
  const second = lang.kernel({ name: 'second', params: {} }, (g) => g.barrier());
  const lines = [first, second].map((made) => made.ir().sources[0]!.position(0).line);
  const own = readFileSync(fileURLToPath(import.meta.url), 'utf8').split('\n');
  expect(lines).toEqual(
    ["'first'", "'second'"].map((name) => own.findIndex((line) => line.includes(`name: ${name}`)) + 1),
  );
});

test('text from nowhere: no place, but no failure either', () => {
  const code = 'return (G, { out }) => { G.store(out.at(0), 1); }'.replaceAll('G', 'g');
  const body = new Function(code)();
  const module = lang.kernel({ name: 'nowhere', params: { out: lang.pointer('u32') } }, body).ir();
  const { line, column } = module.sources[0]!.position(module.entry.body[0]!.span.start);
  expect({ file: module.sources[0]!.file, line, column }).toEqual({ file: '', line: 0, column: 0 });
});
