import fc from 'fast-check';
import { expect, test } from 'vitest';
import { validateIr } from '../../src/lang/index.js';
import { evaluate } from './evaluate.js';
import { programKernel, type RandomProgram, randomProgram } from './random-programs.js';

function run(program: RandomProgram) {
  const out: number[] = [];
  const floats: number[] = [];
  evaluate(programKernel(program).ir(), { out, floats, ...program.inputs });
  return { out, floats };
}

test('random programs compute what BigInt and Math say', () => {
  fc.assert(
    fc.property(fc.nat(), fc.integer({ min: 1, max: 20 }), (seed, size) => {
      const program = randomProgram(seed, size);
      expect(validateIr(programKernel(program).ir()), program.text).toEqual([]);
      expect(run(program), program.text).toEqual({ out: [...program.out], floats: [...program.floats] });
    }),
    { seed: 1, numRuns: 500 },
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
