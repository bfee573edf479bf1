import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { printHost } from '../../../src/lang/cuda/index.js';
import type { Expr, IrModule } from '../../../src/lang/ir.js';
import { type Library, type NativeType, openLibrary } from '../../../src/native/index.js';
import {
  programCapacity,
  programKernel,
  programParams,
  randomProgram as writtenProgram,
} from '../random-programs.js';
import { type Pointer, run } from './evaluate.js';
import * as ir from './ir-builder.js';
import { edges, Random, randomProgram, results, word } from './random-ir.js';

const compiler = hostCompiler();
if (compiler === null)
  console.log('skipped: no C++ compiler (g++, clang++ or $CXX) to run printed programs with');

/** Enough of them to have met every operation with every edge, few enough for one compilation of seconds. */
const programs = 150;
const runs = 40;

type Computed = 'i32' | 'u32' | 'u64' | 'f32';
const types: readonly Computed[] = ['i32', 'u32', 'u64', 'f32'];

/** Programs in the kernel language itself; each carries what it must compute. */
const written = Array.from({ length: 150 }, (_, seed) => writtenProgram(seed, 14));

describe.skipIf(compiler === null)('programs printed for the host', () => {
  const folder = mkdtempSync(join(tmpdir(), 'heddle-host-'));
  const random = Array.from({ length: programs }, (_, i) => randomProgram(`program${i}`, i + 1));
  const operations = types.map((type) => everyOperation(type));
  let library: Library;

  beforeAll(() => {
    writeFileSync(
      join(folder, 'programs.cpp'),
      printHost([
        ...random,
        ...operations.map(({ module }) => module),
        ...written.map((program) => programKernel(program).ir()),
      ]),
    );
    const options = ['-std=c++17', '-O1', '-ffp-contract=off', '-Werror', '-shared', '-fPIC'];
    execFileSync(compiler!, [...options, 'programs.cpp', '-o', 'programs.so'], {
      cwd: folder,
      stdio: 'pipe',
      encoding: 'utf8',
    });
    library = openLibrary([join(folder, 'programs.so')], 'it was just compiled');
  });

  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  function entry(module: IrModule, parameters: readonly NativeType[]): (...args: unknown[]) => void {
    // What every host program takes at the end: rank, threadIdx, blockIdx, blockDim, gridDim.
    const implicit: readonly NativeType[] = ['u32', 'u32', 'u32', 'u32', 'u32'];
    const native = library.declare<(...args: unknown[]) => void>(module.name, 'void', [
      ...parameters,
      ...implicit,
    ]);
    return (...args) => native(...args, 0, 0, 0, 1, 1);
  }

  test('compute what plain arithmetic computes', () => {
    for (const [i, module] of random.entries()) {
      const native = entry(module, ['i32', 'u32', 'u64', 'f32', 'bool', 'buffer', 'buffer']);
      const numbers = new Random(i);
      for (let n = 0; n < runs; n++) {
        const scalars = (['i32', 'u32', 'u64', 'f32', 'bool'] as const).map((type) => numbers.value(type));
        const input = Uint8Array.from({ length: 32 }, () => numbers.word() & 255);
        const expected = new BigUint64Array(results);
        const actual = new BigUint64Array(results);
        run(module, [...scalars, memory(input), memory(expected)]);
        native(...scalars, input, actual);
        if (expected.some((word, k) => word !== actual[k])) {
          expect({ program: printHost([module]), scalars, actual }).toEqual({ scalars, actual: expected });
        }
      }
    }
  });

  test('compute what programs in the kernel language mean', () => {
    for (const program of written) {
      const module = programKernel(program).ir();
      const scalars = module.entry.params.slice(2).map(({ name }) => program.inputs[name]!);
      const parameters = Object.values(programParams).map((type) =>
        typeof type === 'string' ? type : 'buffer',
      );
      const out = new Uint32Array(programCapacity);
      const floats = new Float32Array(programCapacity);
      entry(module, parameters)(out, floats, ...scalars);
      expect([...out.slice(0, program.out.length)], program.text).toEqual(program.out);
      expect([...floats.slice(0, program.floats.length)], program.text).toEqual(program.floats);
    }
  });

  test.each(operations)(
    'compute every operation of $type on every pair of edge values',
    ({ type, module, names }) => {
      const native = entry(module, [type, type, 'buffer']);
      for (const a of edges[type]) {
        for (const b of edges[type]) {
          const expected = new BigUint64Array(names.length);
          const actual = new BigUint64Array(names.length);
          run(module, [a, b, memory(expected)]);
          native(a, b, actual);
          const wrong = names.filter((_, k) => expected[k] !== actual[k]);
          expect({ a, b, wrong }).toEqual({ a, b, wrong: [] });
        }
      }
    },
  );
});

function memory(of: Uint8Array | BigUint64Array): Pointer {
  return { memory: new DataView(of.buffer), offset: 0 };
}

/** A program of two values that writes what each operation makes of them. */
function everyOperation(type: Computed): { type: Computed; module: IrModule; names: readonly string[] } {
  const params = [
    ir.param('a', ir.value(type)),
    ir.param('b', ir.value(type)),
    ir.param('output', ir.pointer('u64')),
  ];
  const [a, b, output] = params.map(({ variable }) => ir.read(variable)) as [Expr, Expr, Expr];
  const made: Record<string, Expr> = {};
  const isFloat = type === 'f32';
  for (const op of ['+', '-', '*', '/', '<', '<=', '>', '>=', '==', '!='] as const)
    made[op] = ir.binary(op, a, b);
  for (const name of ['min', 'max'] as const) made[name] = ir.pure(name, a, b);
  for (const to of [...types, 'bool'] as const) made[`to ${to}`] = ir.convert(to, a);
  made.negative = ir.unary('-', a);
  if (isFloat) {
    made.abs = ir.pure('abs', a);
    made.rcp = ir.pure('rcp', a);
    for (const c of edges.f32) made[`fma ${c}`] = ir.pure('fma', a, b, ir.f32(Number(c)));
    for (const storage of ['bf16', 'f16', 'e4m3'] as const) {
      made[storage] = ir.convert('f32', ir.convert(storage, a));
      // Packed two at a time, where the target has an instruction for that.
      const lanes = Array.from({ length: storage === 'e4m3' ? 16 : 8 }, (_, i) => (i % 2 === 0 ? a : b));
      made[`${storage} lane`] = ir.convert('f32', ir.lane(storage, ir.pack(storage, lanes), 5));
    }
  } else {
    for (const op of ['%', '&', '|', '^'] as const) made[op] = ir.binary(op, a, b);
    for (const op of ['<<', '>>'] as const) made[op] = ir.binary(op, a, ir.convert('u32', b));
    for (const value of edges[type]) {
      for (const op of ['/', '%', '<<', '>>'] as const) {
        const shifts = op === '<<' || op === '>>';
        const by = shifts ? ir.u32(Number(BigInt.asUintN(32, BigInt(value)))) : ir.constant(type, value);
        made[`${op} ${value}`] = ir.binary(op, a, by);
      }
    }
    made.complement = ir.unary('~', a);
    if (type === 'i32') made.abs = ir.pure('abs', a);
    if (type === 'u32') for (const name of ['popc', 'ffs', 'clz'] as const) made[name] = ir.pure(name, a);
  }
  const names = Object.keys(made);
  const body = Object.values(made).map((expr, i) =>
    ir.effect(ir.store(ir.offset(output, ir.u32(i)), word(expr))),
  );
  return { type, names, module: ir.module(`every_${type}`, params, body) };
}

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
