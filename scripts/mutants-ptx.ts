/**
 * Mutants of Heddle's own kernels as nvcc compiles them: `npx tsx scripts/mutants-ptx.ts FOLDER NAME [SCHEDULES] [CONFIGURATIONS] [MUTANTS]`.
 * What is compiled is kept in FOLDER. NAME is that of a subject or a family, CONFIGURATIONS and MUTANTS are patterns of names. A mutant of the PTX runs first where the
 * kernels are the shortest, then where mutants of the same line in TypeScript are caught, then everywhere, under SCHEDULES
 * schedules in all and at least one of each configuration. Prints a line for each that survives, and how its line fares in TypeScript.
 * A file of FOLDER keeps what each mutant came to, so that the next call with the same arguments goes on behind it. No clock counts, only
 * steps of the machine, so that a busy one finds the same.
 */
import { appendFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { HeddleError } from '../src/base/errors.js';
import { type KernelModule, SimMachine } from '../src/gpu/sim/index.js';
import {
  type CheckConfiguration,
  checkSubjects,
  type Mutant,
  mutantsOf,
  mutate,
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

/** Unlike `runOnce` it has no limit of time. */
async function runOf(
  { in: { name, ranks, residentBlocks, run }, nth }: Run,
  substitute: (module: KernelModule) => KernelModule,
  stepLimit: number,
): Promise<{ readonly wrong: string | null; readonly steps: number }> {
  const machine = SimMachine.create({
    ...{ seed: seedOf(nth), schedule: nth % 2 === 0 ? 'random' : 'priority', mode: 'checked' },
    ...{ ranks, substitute, stepLimit, configuration: name, hostLines: false, print: () => {} },
    ...(residentBlocks === undefined ? {} : { residentBlocks }),
  });
  const thrown = await run(machine).then(
    () => null,
    (error: unknown) => String(error),
  );
  return { wrong: machine.findings[0]?.kind ?? thrown, steps: machine.statistics.steps };
}

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
      const { wrong, steps } = await runOf(
        { in: configuration, nth: 0 },
        (module) => {
          const kernel = this.of(module);
          for (const mutant of mutantsOf(kernel)) here.set(mutant.id, mutant);
          return kernel;
        },
        20_000_000,
      );
      if (wrong !== null) {
        console.log(`not clean: ${configuration.name}: ${wrong}`);
        continue;
      }
      this.#costs.set(configuration, steps);
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
      return (await runOf(run, substitute, steps)).wrong !== null;
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

const results = join(
  folder,
  `${[name, schedules, pattern, only]
    .join(' ')
    .trim()
    .replaceAll(/[^\w.-]+/g, '_')}.jsonl`,
);
/** By mutant: the configuration that catches it, or the lines that are printed of a survivor. */
const known = new Map<string, { readonly by: string } | { readonly lines: readonly string[] }>();
if (existsSync(results))
  for (const line of readFileSync(results, 'utf8').trim().split('\n')) {
    const { id, ...result } = JSON.parse(line);
    known.set(id, result);
  }

const wanted = [...ptx.mutants.values()].filter(({ mutant }) => new RegExp(only).test(mutant.id));
let caught = 0;
for (const [n, { mutant, in: those }] of wanted.entries()) {
  let result = known.get(mutant.id);
  if (result === undefined) {
    const run = await ptx.caught(mutant.id, () => hintsOf(mutant));
    if (run === null) {
      const lines = [`survived: ${mutant.id} | ${mutant.text} | ${those.length} configurations`];
      for (const [twin, by] of await twinsOf(mutant))
        lines.push(
          `  in TypeScript: ${twin.description} ${by === null ? 'survives' : `caught in ${by.in.name}`}`,
        );
      result = { lines };
    } else result = { by: run.in.name };
    appendFileSync(results, `${JSON.stringify({ id: mutant.id, ...result })}\n`);
  }
  if ('by' in result) caught++;
  else for (const line of result.lines) console.log(line);
  process.stderr.write(
    `${n + 1} of ${wanted.length}: ${mutant.id}: ${'by' in result ? result.by : 'survived'}\n`,
  );
}
console.log(`${name}: ${configurations.length} configurations, ${wanted.length} mutants, ${caught} caught`);
