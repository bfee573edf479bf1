/** What Triton made of the kernel in examples/ptx/exchange.py. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import host from '../../../../examples/ptx/exchange.js';
import { formatFinding, type KernelModule } from '../../../../src/gpu/sim/index.js';
import { ptx } from '../../../../src/lang/ptx/index.js';
import { mutantsOf, mutate, runOnce } from '../../../../src/verify/check/index.js';

const text = readFileSync(new URL('../../../../examples/ptx/exchange.ptx', import.meta.url), 'utf8');
const program = ptx(text, 'exchange.ptx');
const [configuration] = host(program);

async function findingsOf(substitute: (module: KernelModule) => KernelModule, seed = 'random-0') {
  const { findings } = await runOnce(configuration!, { seed, schedule: 'random', substitute });
  return findings.map(formatFinding);
}

test('is clean', async () => {
  for (const seed of ['random-0', 'random-2', 'random-4'])
    expect(await findingsOf((module) => module, seed)).toEqual([]);
});

const mutants = mutantsOf(program.kernel('exchange'));
test.each(mutants)('$where $description is caught', async (mutant) => {
  expect(await findingsOf((module) => mutate(module, mutant))).not.toEqual([]);
});

test.each([
  ['bar removed', ['exchange.py:9:26  st.global.b32', 'exchange.py:14:34  ld.global.b32']],
  ['release → relaxed', ['exchange.py:9:26  st.global.b32', 'exchange.py:14:34', 'exchange.py:11:31']],
])('%s: found by the lines of its Python', async (description, lines) => {
  const mutant = mutants.find((one) => one.description === description)!;
  const said = (await findingsOf((module) => mutate(module, mutant))).join('\n');
  for (const line of lines) expect(said).toContain(line);
});
