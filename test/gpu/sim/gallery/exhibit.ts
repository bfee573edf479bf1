/** What an exhibit of the gallery is, and how both of its kernels are run. */

import { type Finding, SimMachine } from '../../../../src/gpu/sim/index.js';
import { type IrModule, type Kernel, pointer } from '../../../../src/lang/index.js';
import { mutantsOf, mutate } from '../../../../src/verify/check/mutants.js';
import { launch, type Rank, ranksOn, windowsOf } from '../harness.js';

/** A mistake, its correction, and what the checker must say about the mistake. */
export interface Exhibit {
  readonly name: string;
  readonly ranks: number;
  /** Runs the kernels on every rank. */
  readonly run: (ranks: readonly Rank[], variant: 'wrong' | 'right') => Promise<void>;
  readonly expect: {
    readonly kind: Finding['kind'];
    readonly buffer?: string;
    readonly location?: RegExp;
    /** How the statements of both accesses begin (one, where a finding has one). */
    readonly statements: readonly string[];
    /** What the finding says about the mistake. */
    readonly hint?: RegExp;
  };
}

/** One schedule of one variant. */
export async function findingsOf(
  exhibit: Exhibit,
  variant: 'wrong' | 'right',
  seed: number,
): Promise<readonly Finding[]> {
  const machine = SimMachine.create({
    ranks: exhibit.ranks,
    mode: 'checked',
    seed: `${seed}`,
    configuration: exhibit.name,
    schedule: seed % 2 === 0 ? 'random' : 'priority',
  });
  try {
    await exhibit.run(ranksOn(machine, exhibit.ranks), variant);
  } catch (error) {
    // A kernel that never ends fails on its host as well; the finding says why.
    if (machine.findings.length === 0) throw error;
  }
  return machine.findings;
}

type Runnable = { ir(): IrModule };
export type Twins = { readonly wrong: Runnable; readonly right: Runnable };

/**
 * A kernel, and its mutant as the wrong twin: of the statement that begins so, the change whose description ends so. `nth`, where several
 * statements begin alike.
 */
export function less(right: Kernel, statement: string, change = 'removed', nth = 0): Twins {
  const ir = (): IrModule => {
    const module = right.ir();
    // Bundlers write texts with other quotes.
    const mutants = mutantsOf(module).filter(
      ({ text, description }) =>
        text.replaceAll('"', "'").startsWith(statement) && description.endsWith(change),
    );
    const mutant = mutants[nth];
    if (mutant === undefined) throw new Error(`no such mutant: ${statement}`);
    return mutate(module, mutant);
  };
  return { wrong: { ir }, right };
}

/** Host programs: each rank launches the kernel `rounds` times on its stream, with a window, an output and an epoch. */
export function onWindow(
  twins: Twins,
  bytes: number,
  shape: { grid?: number; block?: number; rounds?: number } = {},
): Exhibit['run'] {
  return async (ranks, variant) => {
    const windows = await windowsOf(ranks, bytes);
    const module = twins[variant].ir();
    const every = ranks.map(async (rank) => {
      const out = rank.device.allocate(1024, 'output');
      for (let epoch = 1; epoch <= (shape.rounds ?? 1); epoch++) {
        await launch(rank, module, shape, { win: windows[rank.rank]!, out, epoch });
      }
      await rank.stream.synchronize();
    });
    await Promise.all(every);
  };
}

/** Of kernels on one rank. */
export const params = { input: pointer('u32'), scratch: pointer('u32'), out: pointer('u32') } as const;

/** One rank, and memory of its own that nobody has written: `input` (written), `scratch`, `out`. */
export function onDevice(twins: Twins, shape: { grid?: number; block?: number } = {}): Exhibit['run'] {
  return async ([rank], variant) => {
    const input = rank!.device.allocate(256, 'input');
    const scratch = rank!.device.allocate(256, 'scratch');
    const out = rank!.device.allocate(1024, 'output');
    rank!.stream.fill(input.address, 256, 1);
    await launch(rank!, twins[variant].ir(), shape, { input, scratch, out });
    await rank!.stream.synchronize();
  };
}

/** The shape of a launch, and what the checker must say: `at`, of statements that begin so. */
interface OneRank extends Omit<Exhibit['expect'], 'kind' | 'statements'> {
  readonly grid?: number;
  readonly block?: number;
  readonly at: readonly string[];
}

/** Exhibits of such findings on one rank, where the memory is the launch's own. */
export const onOneRank =
  (kind: Finding['kind']) =>
  (name: string, twins: Twins, how: OneRank): Exhibit => ({
    ...{ name, ranks: 1, run: onDevice(twins, how) },
    expect: { kind, statements: how.at, ...how },
  });
export const race = onOneRank('race');
export const misuse = onOneRank('misuse');
