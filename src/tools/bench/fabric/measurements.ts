/** The common part of the measurements of one provider: taking turns with C, keeping figures, starting the processes of a role. */
import { extname, join } from 'node:path';
import { type EngineOptions, type ProviderName, sweepShm } from '../../../net/fabric/index.js';
import { launchReporting } from '../../../net/world/index.js';
import type { Baseline } from './baseline.js';

const program = join(import.meta.dirname, `rank${extname(import.meta.filename)}`);

/** To how many other engines a scatter goes. */
export const scatterPeers = 63;
export const allToAllRanks = 16;
export const mebibyte = 1 << 20;

export interface Figure {
  readonly provider: ProviderName;
  readonly what: string;
  readonly unit: string;
  readonly heddle: number;
  /** The same in C, where there is the same. */
  readonly c: number | null;
  /** Ours ÷ C's. */
  readonly ratio: number | null;
  readonly goal: string | null;
  readonly reached: boolean | null;
  /** The method in words: what was counted, over what, and how often. */
  readonly how: string;
}

/** A measurement that is also made in C, in turns, and judged by a goal. */
interface Measured {
  readonly what: string;
  readonly unit: string;
  /** The method in words: what was counted, over what, and how often. */
  readonly how: string;
  ours(): Promise<number>;
  c?(raw: Baseline): Promise<number>;
  readonly goal?: {
    readonly text: string;
    readonly needsC?: boolean;
    holds(heddle: number, c: number): boolean;
  };
}

/** A figure with nothing in C to compare with. */
type Fact = Pick<Figure, 'what' | 'unit' | 'heddle' | 'goal' | 'reached' | 'how'>;

/** The settings that all measurements have in common. */
interface Setting {
  readonly provider: ProviderName;
  readonly device: string;
  readonly repeat: number;
  readonly scale: number;
  readonly progress: (line: string) => void;
  readonly baseline: Baseline | null;
}

export class Measurements {
  readonly provider: ProviderName;
  readonly device: string;
  readonly figures: Figure[] = [];
  readonly #of: Setting;

  constructor(of: Setting) {
    this.provider = of.provider;
    this.device = of.device;
    this.#of = of;
  }

  progress(line: string): void {
    this.#of.progress(`${this.provider}: ${line}`);
  }

  /** How often a measurement does its thing, where the whole bench does it `n` times. */
  count(n: number): number {
    return Math.max(200, Math.round(n * this.#of.scale));
  }

  engine(thread: 'caller' | 'worker'): EngineOptions {
    const { provider, device } = this;
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

  async measure({ what, unit, how, ours, c, goal }: Measured): Promise<number> {
    this.progress(`${what} …`);
    const [mine, theirs]: [number[], number[]] = [[], []];
    for (let i = 0; i < this.#of.repeat; i++) {
      if (c && this.#of.baseline) theirs.push(await c(this.#of.baseline));
      mine.push(await ours());
    }
    // The best of the repetitions counts: other programs on the machine can only make a figure worse.
    const best = (values: readonly number[]) => (unit === 'µs' ? Math.min(...values) : Math.max(...values));
    const heddle = best(mine);
    const other = theirs.length > 0 ? best(theirs) : null;
    const beside = other === null ? '' : ` (C: ${other.toPrecision(3)})`;
    this.progress(`${what}: ${heddle.toPrecision(3)} ${unit}${beside}`);
    const judged = goal !== undefined && (other !== null || !goal.needsC);
    this.figures.push({
      ...{ provider: this.provider, what, unit, heddle, c: other },
      ratio: other === null ? null : heddle / other,
      goal: goal?.text ?? null,
      reached: judged ? goal.holds(heddle, other ?? 0) : null,
      how: `${how}; best of ${this.#of.repeat}, in turns with C's`,
    });
    return heddle;
  }

  fact(fact: Fact): void {
    this.figures.push({ provider: this.provider, c: null, ratio: null, ...fact });
  }
}
