import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { printHost } from '../../../src/lang/cuda/index.js';
import type { IrModule } from '../../../src/lang/ir.js';
import { type Library, type NativeType, openLibrary } from '../../../src/native/index.js';
import { run } from './evaluate.js';
import { Random, randomProgram, results } from './random-ir.js';

const compiler = hostCompiler();
if (compiler === null)
  console.log('skipped: no C++ compiler (g++, clang++ or $CXX) to run printed programs with');

/** Enough of them to have met every operation with every edge, few enough for one compilation of seconds. */
const programs = 150;
const runs = 40;

describe.skipIf(compiler === null)('programs printed for the host', () => {
  let folder = '';
  let modules: IrModule[] = [];
  let library: Library;

  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'heddle-host-'));
    modules = Array.from({ length: programs }, (_, i) => randomProgram(`program${i}`, i + 1));
    writeFileSync(join(folder, 'programs.cpp'), printHost(modules));
    execFileSync(
      compiler!,
      [
        '-std=c++17',
        '-O1',
        '-ffp-contract=off',
        '-Werror',
        '-shared',
        '-fPIC',
        'programs.cpp',
        '-o',
        'programs.so',
      ],
      { cwd: folder, stdio: 'pipe', encoding: 'utf8' },
    );
    library = openLibrary([join(folder, 'programs.so')], 'it was just compiled');
  });

  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test('compute what plain arithmetic computes', () => {
    const types: NativeType[] = [
      'i32',
      'u32',
      'u64',
      'f32',
      'bool',
      'buffer',
      'buffer',
      'u32',
      'u32',
      'u32',
      'u32',
      'u32',
    ];
    for (const [i, module] of modules.entries()) {
      const native = library.declare<(...args: unknown[]) => void>(module.name, 'void', types);
      const random = new Random(i);
      for (let n = 0; n < runs; n++) {
        const scalars = (['i32', 'u32', 'u64', 'f32', 'bool'] as const).map((type) => random.value(type));
        const input = Uint8Array.from({ length: 32 }, () => random.word() & 255);
        const expected = new BigUint64Array(results);
        const actual = new BigUint64Array(results);
        run(module, [
          ...scalars,
          { memory: new DataView(input.buffer), offset: 0 },
          { memory: new DataView(expected.buffer), offset: 0 },
        ]);
        native(...scalars, input, actual, 0, 0, 0, 1, 1);
        if (expected.some((word, k) => word !== actual[k])) {
          expect({ program: printHost([module]), scalars, actual }).toEqual({
            program: '',
            scalars,
            actual: expected,
          });
        }
      }
    }
  });
});

function hostCompiler(): string | null {
  for (const name of [process.env.CXX ?? '', 'g++', 'clang++']) {
    try {
      if (name !== '') execFileSync(name, ['--version'], { stdio: 'ignore' });
      if (name !== '') return name;
    } catch {
      // not this one
    }
  }
  return null;
}
