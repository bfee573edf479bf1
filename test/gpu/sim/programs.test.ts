import fc from 'fast-check';
import { expect, it } from 'vitest';
import { narrowProgram, programKernel, randomProgram } from '../../lang/random-programs.js';
import { execute } from './execute.js';

it.each(['fast', 'checked'] as const)(
  'random programs compute the same as plain arithmetic (%s)',
  async (mode) => {
    await fc.assert(
      fc.asyncProperty(fc.nat(), fc.integer({ min: 1, max: 20 }), async (seed, size) => {
        const program = randomProgram(seed, size);
        const { text, out, floats } = program;
        expect(await execute(program, programKernel(program).ir(), mode), text).toEqual({ out, floats });
      }),
      { seed: 3, numRuns: 80 },
    );
  },
);

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
