/** The common part of the measurements of one provider: taking turns with C, keeping figures, starting the processes of a role. */
import { extname, join } from 'node:path';
import { type EngineOptions, type ProviderName, sweepShm } from '../../../net/fabric/index.js';
import { launchReporting } from '../../../net/world/index.js';
import type { Baseline } from './baseline.js';
import type { Sizes } from './roles.js';

const program = join(import.meta.dirname, `rank${extname(import.meta.filename)}`);

export const scatterPeers = 63;
export const allToAllRanks = 16;
export const mebibyte = 1 << 20;

export type Thread = 'caller' | 'worker';

export interface Figure {
  readonly provider: ProviderName;
  readonly what: string;
  readonly unit: string;
  readonly heddle: number;
  /** The figure of the same measurement written in C; null where there is none. */
  readonly c: number | null;
  /** Ours ÷ C's. */
  readonly ratio: number | null;
  /** The method in words: what was counted, over what, and how often. */
  readonly how: string;
}

/** A measurement that may also be made in C, in turns. */
interface Measured extends Pick<Figure, 'what' | 'unit' | 'how'> {
  ours(): Promise<number>;
  c?: ((raw: Baseline) => Promise<number>) | undefined;
}

/** A measurement between two processes, by a role and by a mode of the C program. */
interface Compared extends Pick<Figure, 'what' | 'unit' | 'how'> {
  readonly role: 'pingPong' | 'stream' | 'posting' | 'scatterCall';
  readonly mode?: Parameters<Baseline['measure']>[1];
  readonly sizes: Sizes;
  /** Of the C program, where they are others. */
  readonly sizesOfC?: Sizes;
  /** What becomes of the measured time; by default it is the figure. */
  readonly figure?: (time: number) => number;
}

export interface FabricBenchOptions {
  readonly providers: readonly ProviderName[];
  readonly device: string | undefined;
  readonly ranks: number;
  readonly repeat: number;
  readonly scale: number;
  readonly allToAll: boolean;
  readonly progress: (line: string) => void;
}

interface Setting extends Pick<FabricBenchOptions, 'repeat' | 'scale' | 'progress'> {
  readonly provider: ProviderName;
  readonly device: string;
  readonly baseline: Baseline | null;
}

export class Measurements {
  readonly figures: Figure[] = [];

  constructor(readonly of: Setting) {}

  progress(line: string): void {
    this.of.progress(`${this.of.provider}: ${line}`);
  }

  /** How often a measurement does its thing, where the whole bench does it `n` times. */
  count(n: number): number {
    return Math.max(200, Math.round(n * this.of.scale));
  }

  engine(thread: Thread): EngineOptions {
    const { provider, device } = this.of;
    return { provider, devices: [device], thread, timeoutMs: 60_000 };
  }

  /** Runs a function of roles.ts in so many processes; resolves with what each returned. */
  async roles<T>(name: string, ranks: number, args: object): Promise<T[]> {
    let results: T[] = [];
    const launch = { ranks, program, args: [name, JSON.stringify(args)], timeoutMs: 3_600_000 };
    try {
      await launchReporting(`the measurement ${name}`, launch, (report) => {
        ({ results } = report as { results: T[] });
      });
    } finally {
      sweepShm(); // what processes that were ended could not clean up themselves
    }
    return results;
  }

  compare(thread: Thread, one: Compared): Promise<void> {
    const { role, mode, sizes, sizesOfC = sizes, figure = (time) => time, ...rest } = one;
    const args = { options: this.engine(thread), ...sizes };
    return this.measure({
      ...rest,
      ours: async () => figure((await this.roles<number>(role, 2, args))[0]!),
      c: mode && (async (raw) => figure(await raw.measure(this.of, mode, sizesOfC))),
    });
  }

  async measure({ what, unit, how, ours, c }: Measured): Promise<void> {
    const { provider, repeat, baseline } = this.of;
    this.progress(`${what} …`);
    const [mine, theirs]: [number[], number[]] = [[], []];
    for (let i = 0; i < repeat; i++) {
      if (c && baseline) theirs.push(await c(baseline));
      mine.push(await ours());
    }
    // The best of the repetitions counts: other programs on the machine can only make a figure worse.
    const best = (values: readonly number[]) => (unit === 'µs' ? Math.min(...values) : Math.max(...values));
    const heddle = best(mine);
    const other = theirs.length > 0 ? best(theirs) : null;
    const beside = other === null ? '' : ` (C: ${other.toPrecision(3)})`;
    this.progress(`${what}: ${heddle.toPrecision(3)} ${unit}${beside}`);
    this.figures.push({
      ...{ provider, what, unit, heddle, c: other },
      ratio: other === null ? null : heddle / other,
      how: `${how}; best of ${repeat}${other === null ? '' : ", in turns with C's"}`,
    });
  }

  fact(fact: Omit<Figure, 'provider' | 'c' | 'ratio'>): void {
    this.figures.push({ provider: this.of.provider, c: null, ratio: null, ...fact });
  }
}
