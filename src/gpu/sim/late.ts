/**
 * Relaxed loads and updates that may come later than they stand: behind stores that neither need their value nor touch their
 * bytes, with nothing between that orders. So *load buffering* is shown. Nothing comes out of thin air: each access reads what is
 * there when it comes, and whoever uses its value comes behind it.
 */
import { pause, type StatementAccess } from './compiled.js';
import type { Named } from './text.js';

/** A statement or instruction, as far as it matters here. */
export interface Step {
  /** What it does: 'load' and 'update' are relaxed, and may come late; 'stop' orders, or goes elsewhere. */
  readonly kind: 'load' | 'update' | 'store' | 'other' | 'stop';
  /** The names that it mentions, and those that it sets. */
  readonly uses: ReadonlySet<string>;
  readonly sets: ReadonlySet<string>;
  /** It only moves what another has loaded, and stands in the same list: they come together. */
  readonly moves: boolean;
}

/** The numbers of the steps: the access, the last one that comes with it, and the store behind which it may come. */
export interface Window {
  readonly first: number;
  readonly together: number;
  readonly last: number;
}

const meet = (a: ReadonlySet<string>, b: ReadonlySet<string>): boolean => [...a].some((name) => b.has(name));

/** Finds the accesses that may come late, among steps that run one after the other. */
export function windowsOf(steps: readonly Step[]): Window[] {
  return steps.flatMap((step, first) => {
    if (step.kind !== 'load' && step.kind !== 'update') return [];
    const sets = new Set(step.sets);
    const uses = new Set(step.uses);
    let at = first + 1;
    for (; steps[at]?.moves && meet(steps[at]!.uses, sets); at++) {
      for (const name of steps[at]!.sets) sets.add(name);
      for (const name of steps[at]!.uses) uses.add(name);
    }
    const together = at - 1;
    let last = together;
    let passes = false;
    for (; at < steps.length; at++) {
      const { kind, ...other } = steps[at]!;
      if (kind === 'stop' || meet(other.uses, sets) || meet(other.sets, sets) || meet(other.sets, uses))
        break;
      passes ||= kind === 'store' || kind === 'update';
      // An update stays together with the statement that moves its result.
      if (!passes || steps[at + 1]?.moves) continue;
      last = at;
      passes = false;
    }
    return last === together ? [] : [{ first, together, last }];
  });
}

/** The code that is printed around such accesses. */
export interface AccessPrinter<Item> {
  readonly checked: boolean;
  readonly named: Named;
  readonly lines: readonly string[];
  emit(line: string): void;
  local(): string;
  /** Whether no local may be given to another from now on. */
  keep(keeps: boolean): void;
  /** The text of an access is printed once more. */
  repeats(item: Item): void;
}

interface Open<Item> {
  readonly first: Item;
  readonly together: Item;
  readonly last: Item;
  /** The local in which it waits; null where it does not. */
  flag: string;
  from: number;
  text: readonly string[];
}

/** A compare-and-swap: whether its place holds something else than expected, and the text that reads that. */
interface Miss {
  readonly test: string;
  readonly read: string;
}

/**
 * Prints accesses to memory that others reach. Fast mode makes them and nothing else. Checked mode asks the thread first, which checks
 * bounds, alignment and initialisation and tells the race detector, and offers the schedule a switch before every synchronising
 * access. Switching at synchronising accesses only loses nothing: two weak accesses that a switch between them could tell apart
 * race, and the detector finds a race whatever their order in the run.
 *
 * Accesses that may come late are printed where they stand, for schedules in which they come there, and again where they come at the latest.
 */
export class Accesses<Item> {
  readonly #windows = new Map<Item, Pick<Open<Item>, 'first' | 'together' | 'last'>>();
  readonly #printer: AccessPrinter<Item>;
  /** The one that is printed, and those behind which the printer is. */
  #current: Open<Item> | null = null;
  #open: readonly Open<Item>[] = [];

  constructor(
    runs: readonly { readonly items: readonly Item[]; readonly steps: readonly Step[] }[],
    printer: AccessPrinter<Item>,
  ) {
    this.#printer = printer;
    for (const { items, steps } of runs)
      for (const { first, together, last } of windowsOf(steps))
        this.#windows.set(items[first]!, {
          first: items[first]!,
          together: items[together]!,
          last: items[last]!,
        });
  }

  before(item: Item): void {
    const window = this.#windows.get(item);
    if (window === undefined) return;
    this.#printer.keep(true);
    this.#current = { ...window, flag: this.#printer.local(), from: 0, text: [] };
  }

  /**
   * `make` prints the access to a place, whose texts are cheap to repeat, and `refused` what comes instead where it must not happen. A
   * compare-and-swap that misses is a load, which releases nothing.
   */
  print(
    access: StatementAccess,
    { buffer, offset }: { readonly buffer: string; readonly offset: string },
    make: () => void,
    { refused, miss }: { readonly refused?: () => void; readonly miss?: Miss | null } = {},
  ): void {
    const { checked, named, emit } = this.#printer;
    if (!checked) {
      make();
      return;
    }
    const { kind, order, scope, bytes, site } = access;
    const place = `${buffer}, ${offset}`;
    const operands = `${named.access(access)}, ${place}`;
    this.#stand(operands);
    const isAtomic = order !== 'weak';
    if (isAtomic) emit(`yield ${pause.preempt};`);
    if (miss) {
      const reads = order === 'acquire' || order === 'acq_rel' ? 'acquire' : 'relaxed';
      const load = named.access({ kind: 'read', order: reads, scope, bytes, site });
      emit(`if (${miss.test}) { if (t.missed(${load}, ${place})) { ${miss.read} } } else`);
    }
    emit(`if (t.${isAtomic ? (kind === 'read' ? 'look' : 'change') : 'access'}(${operands})) {`);
    make();
    // Checked mode wakes parked threads at the store; fast mode looks at them only once nothing else can run.
    if (kind !== 'read') emit(`if (${buffer}.waiters !== 0) t.wrote(${place}, ${bytes});`);
    if (kind === 'write' && isAtomic) emit('if (t.overtaken !== null) t.giveWay();');
    if (refused !== undefined) {
      emit('} else {');
      refused();
    }
    emit('}');
  }

  /** An access with these operands is about to be made: those that wait and touch its bytes come before it. */
  #stand(operands: string): void {
    for (const open of this.#open) this.#come(open, ` && t.meets(${open.flag}, ${operands})`);
    const current = this.#current;
    if (current === null) return;
    this.#printer.emit(`yield ${pause.preempt}; ${current.flag} = t.defers(${operands});`);
    this.#printer.emit(`if (${current.flag} === null) {`);
    current.from = this.#printer.lines.length;
  }

  /** A fence of a block orders nothing where the thread is all of its block. */
  fence(): void {
    for (const open of this.#open) this.#come(open, ' && t.block.live > 1');
  }

  /** Prints the accesses that wait until here, and come now. */
  after(item: Item): void {
    const current = this.#current;
    if (current?.together === item) {
      current.text = this.#printer.lines.slice(current.from).map((line) => line.trim());
      this.#printer.emit('}');
      this.#open = [...this.#open, current];
      this.#current = null;
    }
    const ends = this.#open.filter(({ last }) => last === item);
    if (ends.length === 0) return;
    for (const open of ends) this.#come(open, '');
    this.#open = this.#open.filter(({ last }) => last !== item);
    if (this.#open.length === 0) this.#printer.keep(false);
  }

  #come({ first, flag, text }: Open<Item>, test: string): void {
    this.#printer.repeats(first);
    const lines = [
      `if (${flag} !== null${test}) {`,
      'yield t.lingers();',
      ...text,
      `t.cameLate(${flag}); ${flag} = null;`,
      '}',
    ];
    for (const line of lines) this.#printer.emit(line);
  }
}
