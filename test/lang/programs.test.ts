import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { IrModule } from '../../src/lang/index.js';
import { evaluate } from './evaluate.js';
import { foldedKernel, programKernel, type RandomProgram, randomProgram } from './random-programs.js';
import { validateIr } from './validate.js';

function execute(module: IrModule, inputs: RandomProgram['inputs']) {
  const out: number[] = [];
  const floats: number[] = [];
  evaluate(module, { out, floats, ...inputs });
  return { out, floats };
}

test('random programs compute what BigInt and Math say', () => {
  fc.assert(
    fc.property(fc.nat(), fc.integer({ min: 1, max: 20 }), (seed, size) => {
      const program = randomProgram(seed, size);
      const module = programKernel(program).ir();
      expect(validateIr(module), program.text).toEqual([]);
      expect(execute(module, program.inputs), program.text).toEqual({
        out: [...program.out],
        floats: [...program.floats],
      });
    }),
    { seed: 1, numRuns: 200 },
  );
});

test('what the compiler folds is what would have been computed', () => {
  fc.assert(
    fc.property(fc.nat(), fc.integer({ min: 1, max: 12 }), (seed, size) => {
      const program = randomProgram(seed, size);
      const module = foldedKernel(program).ir();
      expect(validateIr(module), program.text).toEqual([]);
      expect(execute(module, {}), program.text).toEqual({
        out: [...program.out],
        floats: [...program.floats],
      });
    }),
    { seed: 2, numRuns: 150 },
  );
});

test('the programs are not trivial: many operations, many results', () => {
  const programs = Array.from({ length: 50 }, (_, seed) => randomProgram(seed, 20));
  const text = programs.map((program) => program.text).join('\n');
  for (const needed of [
    '%',
    '/',
    '<<',
    '>>',
    '>>>',
    'g.i32(',
    'g.f32(',
    'g.u64(',
    'g.unroll(',
    'if (',
    'for (let',
    '?',
  ]) {
    expect(text).toContain(needed);
  }
  const words = programs.flatMap((program) => program.out);
  expect(new Set(words).size).toBeGreaterThan(100);
});
