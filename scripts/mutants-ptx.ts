/**
 * Mutants of Heddle's own kernels as nvcc compiles them: `npx tsx scripts/mutants-ptx.ts FOLDER SUBJECT [SCHEDULES] [CONFIGURATIONS] [MUTANTS]`.
 * What is compiled is kept in FOLDER. A mutant runs in the configurations whose kernels have it, the shortest first, under SCHEDULES
 * schedules in all, and at least one of each. CONFIGURATIONS and MUTANTS are patterns of names. Prints a line for each that survives.
 */
import { mkdirSync } from 'node:fs';
import { HeddleError } from '../src/base/errors.js';
import type { KernelModule } from '../src/gpu/sim/index.js';
import {
  type CheckConfiguration,
  checkSubjects,
  type Mutant,
  mutantsOf,
  mutate,
  runOnce,
  seedOf,
} from '../src/verify/check/index.js';
import { compiledBy } from '../test/gpu/sim/ptx/compiled.js';

const [folder, name, schedules = '30', pattern = '', only = ''] = process.argv.slice(2);
const subject = checkSubjects.find((one) => one.name === name);
if (folder === undefined || subject === undefined)
  throw new HeddleError(
    'HEDDLE_MUTANTS',
    `say a folder and one of ${checkSubjects.map((one) => one.name).join(', ')}`,
  );
mkdirSync(folder, { recursive: true });
const compiled = compiledBy(folder);

const runs = async (
  configuration: CheckConfiguration,
  seed: string,
  substitute: (module: KernelModule) => KernelModule,
) =>
  runOnce(configuration, {
    ...{
      seed,
      schedule: seed.startsWith('random') ? 'random' : 'priority',
      substitute,
      stepLimit: 2_000_000,
      hostLines: false,
    },
  });

/** The configurations that have a mutant, with what one run of each takes. */
const found = new Map<string, { readonly mutant: Mutant; readonly in: CheckConfiguration[] }>();
const costs = new Map<CheckConfiguration, number>();
const wanted = subject.configurations.filter((one) => new RegExp(pattern).test(one.name));
for (const configuration of wanted) {
  const mutants: Mutant[] = [];
  const { findings, machine } = await runs(configuration, seedOf(0), (module) => {
    const kernel = compiled(module);
    mutants.push(...mutantsOf(kernel).filter(({ id }) => new RegExp(only).test(id)));
    return kernel;
  });
  if (findings.length > 0) console.log(`not clean: ${configuration.name}: ${findings[0]!.kind}`);
  costs.set(configuration, findings.length > 0 ? Number.POSITIVE_INFINITY : machine.statistics.steps);
  for (const mutant of mutants) {
    const known = found.get(mutant.id) ?? { mutant, in: [] };
    if (!known.in.includes(configuration)) known.in.push(configuration);
    found.set(mutant.id, known);
  }
}

let [tried, caught] = [0, 0];
const started = Date.now();
for (const { mutant, in: those } of found.values()) {
  const mutated = new Map<KernelModule, KernelModule>();
  const substitute = (module: KernelModule): KernelModule => {
    if (!mutated.has(module)) mutated.set(module, mutate(compiled(module), mutant));
    return mutated.get(module)!;
  };
  const order = those
    .filter((one) => Number.isFinite(costs.get(one)))
    .sort((a, b) => costs.get(a)! - costs.get(b)!);
  let isCaught = false;
  for (let n = 0; n < Math.max(Number(schedules), order.length) && !isCaught; n++) {
    const seed = seedOf(Math.floor(n / order.length));
    isCaught = (await runs(order[n % order.length]!, seed, substitute)).findings.length > 0;
  }
  process.stderr.write(`${++tried} of ${found.size}\n`);
  if (isCaught) caught++;
  else console.log(`survived: ${mutant.id} | ${mutant.text} | ${order.length} configurations`);
}
const seconds = Math.round((Date.now() - started) / 1000);
console.log(
  `${name}: ${wanted.length} configurations, ${found.size} mutants, ${caught} caught, ${seconds} s`,
);
