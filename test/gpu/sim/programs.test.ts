import fc from 'fast-check';
import { expect, it } from 'vitest';
import { foldedKernel, narrowProgram, programKernel, randomProgram } from '../../lang/random-programs.js';
import { validateIr } from '../../lang/validate.js';
import { execute } from './execute.js';

it.each(['fast', 'checked'] as const)(
  'random programs compute the same as plain arithmetic (%s)',
  async (mode) => {
    await fc.assert(
      fc.asyncProperty(fc.nat(), fc.integer({ min: 1, max: 20 }), async (seed, size) => {
        const program = randomProgram(seed, size);
        const { text, out, floats } = program;
        const module = programKernel(program).ir();
        expect(validateIr(module), text).toEqual([]);
        expect(await execute(program, module, mode), text).toEqual({ out, floats });
      }),
      { seed: 3, numRuns: 140 },
    );
  },
);

it('what the compiler folds is what would have been computed', async () => {
  await fc.assert(
    fc.asyncProperty(fc.nat(), fc.integer({ min: 1, max: 12 }), async (seed, size) => {
      const program = randomProgram(seed, size);
      const { text, out, floats } = program;
      const module = foldedKernel(program).ir();
      expect(validateIr(module), text).toEqual([]);
      expect(await execute({ ...program, inputs: {} }, module, 'fast'), text).toEqual({ out, floats });
    }),
    { seed: 2, numRuns: 150 },
  );
});

it.each(['fast', 'checked'] as const)(
  'what is read narrower than a register is as wide as one (%s)',
  async (mode) => {
    for (let seed = 0; seed < 30; seed++) {
      const { module, memory, ...program } = narrowProgram(seed, 20);
      const { text, out, floats } = program;
      expect(await execute(program, module, mode, memory), text).toEqual({ out, floats });
    }
  },
);

it('the programs are not trivial: many operations, many results', () => {
  const programs = Array.from({ length: 50 }, (_, seed) => randomProgram(seed, 20));
  const text = programs.map((program) => program.text).join('\n');
  const loops = ['g.unroll(', 'if (', 'for (let', '?'];
  for (const needed of ['%', '/', '<<', '>>', '>>>', 'g.i32(', 'g.f32(', 'g.u64(', ...loops])
    expect(text).toContain(needed);
  const words = programs.flatMap((program) => program.out);
  expect(new Set(words).size).toBeGreaterThan(100);
});
