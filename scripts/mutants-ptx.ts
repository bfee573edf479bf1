/**
 * Mutants of Heddle's own kernels as nvcc compiles them: `npx tsx scripts/mutants-ptx.ts FOLDER NAME [SCHEDULES] [CONFIGURATIONS] [MUTANTS]`.
 * What is compiled is kept in FOLDER. NAME is that of a subject or a family, CONFIGURATIONS and MUTANTS are patterns of names. A mutant of the PTX runs first where the
 * kernels are the shortest, then where mutants of the same line in TypeScript are caught, then everywhere, under SCHEDULES
 * schedules in all and at least one of each configuration. Prints a line for each that survives, and how its line fares in TypeScript.
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
  subjectsNamed,
} from '../src/verify/check/index.js';
import { compiledBy } from '../test/gpu/sim/ptx/compiled.js';

const [folder, name, schedules = '60', pattern = '', only = ''] = process.argv.slice(2);
if (folder === undefined || name === undefined)
  throw new HeddleError('HEDDLE_MUTANTS', 'say a folder, and the name of a subject');
mkdirSync(folder, { recursive: true });
const compiled = compiledBy(folder);
const limit = Number(schedules);
const configurations = subjectsNamed(checkSubjects, [name])
  .flatMap((subject) => subject.configurations)
  .filter((one) => new RegExp(pattern).test(one.name));

/** A schedule of a configuration. */
interface Run {
  readonly in: CheckConfiguration;
  readonly nth: number;
}

const machineOf = (
  { in: configuration, nth }: Run,
  substitute: (module: KernelModule) => KernelModule,
  stepLimit: number,
) => {
  const seed = seedOf(nth);
  const schedule = nth % 2 === 0 ? 'random' : 'priority';
  return runOnce(configuration, { seed, schedule, substitute, stepLimit, hostLines: false });
};

/** The mutants of one form of the kernels, and how they fare. */
class Form {
  /** Mutants, and the configurations whose kernels have them, the shortest first. */
  readonly mutants = new Map<string, { readonly mutant: Mutant; readonly in: CheckConfiguration[] }>();
  readonly #costs = new Map<CheckConfiguration, number>();
  readonly #caught = new Map<string, Run | null>();

  constructor(readonly of: (module: KernelModule) => KernelModule) {}

  async list(): Promise<void> {
    for (const configuration of configurations) {
      const here = new Map<string, Mutant>();
      const { findings, machine } = await machineOf(
        { in: configuration, nth: 0 },
        (module) => {
          const kernel = this.of(module);
          for (const mutant of mutantsOf(kernel)) here.set(mutant.id, mutant);
          return kernel;
        },
        20_000_000,
      );
      if (findings.length > 0) {
        console.log(`not clean: ${configuration.name}: ${findings[0]!.kind}`);
        continue;
      }
      this.#costs.set(configuration, machine.statistics.steps);
      for (const mutant of here.values()) {
        const known = this.mutants.get(mutant.id) ?? { mutant, in: [] };
        known.in.push(configuration);
        this.mutants.set(mutant.id, known);
      }
    }
    for (const { in: those } of this.mutants.values())
      those.sort((a, b) => this.#costs.get(a)! - this.#costs.get(b)!);
  }

  /** The run that catches a mutant, if one does. */
  async caught(id: string, hints: () => Promise<readonly Run[]>): Promise<Run | null> {
    const known = this.#caught.get(id);
    if (known !== undefined) return known;
    const { mutant, in: those } = this.mutants.get(id)!;
    const mutated = new Map<KernelModule, KernelModule>();
    const catches = async (run: Run): Promise<boolean> => {
      const substitute = (module: KernelModule): KernelModule => {
        if (!mutated.has(module)) mutated.set(module, mutate(this.of(module), mutant));
        return mutated.get(module)!;
      };
      // A mutant may loop for ever.
      const steps = Math.min(2_000_000, 100_000 + 40 * this.#costs.get(run.in)!);
      const { findings } = await machineOf(run, substitute, steps);
      // A run that only took too long does not count as caught: the machine may have been busy.
      return findings.some((one) => one.kind !== 'failure' || !one.message.includes('within two minutes'));
    };
    const all = Array.from({ length: Math.max(limit, those.length) }, (_, n) => ({
      in: those[n % those.length]!,
      nth: Math.floor(n / those.length),
    }));
    const caughtIn = async (runs: readonly Run[]): Promise<Run | null> => {
      for (const run of runs) if (those.includes(run.in) && (await catches(run))) return run;
      return null;
    };
    const found =
      (await caughtIn(all.slice(0, 4))) ?? (await caughtIn(await hints())) ?? (await caughtIn(all.slice(4)));
    this.#caught.set(id, found);
    return found;
  }
}

const [typescript, ptx] = [new Form((module) => module), new Form(compiled)];
await typescript.list();
await ptx.list();

/** In PTX files stand without their folders. */
const lineOf = ({ kernel, where }: Mutant): string => `${kernel} ${/[^/:]+:\d+/.exec(where)?.[0]}`;

/** Mutants in TypeScript of a mutant's line, with the run that catches each. */
async function twinsOf(mutant: Mutant): Promise<readonly (readonly [Mutant, Run | null])[]> {
  const twins: [Mutant, Run | null][] = [];
  for (const { mutant: twin } of typescript.mutants.values())
    if (lineOf(twin) === lineOf(mutant)) twins.push([twin, await typescript.caught(twin.id, async () => [])]);
  return twins;
}

/** More schedules of each configuration in which the line matters. */
const hintsOf = async (mutant: Mutant): Promise<Run[]> => {
  const runs = (await twinsOf(mutant)).flatMap(([, run]) => (run === null ? [] : [run]));
  return [0, 1, 2, 3].flatMap((more) =>
    [...new Set(runs.map((run) => run.in))].map((one) => ({
      in: one,
      nth: more === 0 ? runs.find((run) => run.in === one)!.nth : more,
    })),
  );
};

let [tried, caught] = [0, 0];
const started = Date.now();
const wanted = [...ptx.mutants.values()].filter(({ mutant }) => new RegExp(only).test(mutant.id));
for (const { mutant, in: those } of wanted) {
  const run = await ptx.caught(mutant.id, () => hintsOf(mutant));
  process.stderr.write(`${++tried} of ${wanted.length}: ${mutant.id}: ${run?.in.name ?? 'survived'}\n`);
  if (run !== null) {
    caught++;
    continue;
  }
  console.log(`survived: ${mutant.id} | ${mutant.text} | ${those.length} configurations`);
  for (const [twin, by] of await twinsOf(mutant))
    console.log(
      `  in TypeScript: ${twin.description} ${by === null ? 'survives' : `caught in ${by.in.name}`}`,
    );
}
const seconds = Math.round((Date.now() - started) / 1000);
console.log(
  `${name}: ${configurations.length} configurations, ${wanted.length} mutants, ${caught} caught, ${seconds} s`,
);
