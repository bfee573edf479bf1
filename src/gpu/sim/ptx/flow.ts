/**
 * The control flow of PTX, which is jumps, as statements of JavaScript, which has none: loops and labelled blocks, made along
 * the tree of dominators. A function whose loops can be entered in several places becomes a switch in a loop.
 */
import {
  PtxError,
  type PtxFunction,
  type PtxInstruction,
  type PtxRegister,
} from '../../../lang/ptx/index.js';

export type Terminator =
  | { readonly kind: 'jump'; readonly to: number }
  | {
      readonly kind: 'branch';
      readonly register: PtxRegister;
      readonly negated: boolean;
      readonly taken: number;
      readonly otherwise: number;
    }
  | { readonly kind: 'table'; readonly by: PtxInstruction; readonly to: readonly number[] }
  | { readonly kind: 'end' };

export interface BasicBlock {
  readonly instructions: readonly PtxInstruction[];
  readonly end: Terminator;
}

const ends: ReadonlySet<string> = new Set(['ret', 'exit', 'trap']);

/** Cuts a function where control may come from elsewhere, or go elsewhere. */
export function blocksOf({ instructions, labels, tables }: PtxFunction, file: string): BasicBlock[] {
  const starts = new Set([0, ...labels.values()]);
  for (const [i, { parts }] of instructions.entries())
    if (parts[0] === 'bra' || parts[0] === 'brx' || ends.has(parts[0]!)) starts.add(i + 1);
  const order = [...starts].sort((a, b) => a - b).filter((start) => start < instructions.length);
  const last = order.length;
  const numbers = new Map(order.map((start, i) => [start, i]));
  const target = (label: string, { line }: PtxInstruction): number => {
    const at = labels.get(label);
    if (at === undefined)
      throw new PtxError(`${file}:${line}`, `no label '${label}' stands in this function`);
    return numbers.get(at) ?? last;
  };
  const blocks = order.map((start, i): BasicBlock => {
    const all = instructions.slice(start, order[i + 1]);
    const by = all.at(-1)!;
    const name = by.parts[0]!;
    if (name === 'bra') {
      const [label] = by.operands;
      if (label?.kind !== 'symbol') throw new PtxError(`${file}:${by.line}`, 'a branch must name a label');
      const to = target(label.name, by);
      const { guard } = by;
      return {
        instructions: all.slice(0, -1),
        end:
          guard === null ? { kind: 'jump', to } : { kind: 'branch', ...guard, taken: to, otherwise: i + 1 },
      };
    }
    if (name === 'brx') {
      const [, table] = by.operands;
      const to = table?.kind === 'symbol' ? tables.get(table.name) : undefined;
      if (to === undefined || by.guard !== null)
        throw new PtxError(`${file}:${by.line}`, 'a branch by an index must name a list of labels');
      return {
        instructions: all.slice(0, -1),
        end: { kind: 'table', by, to: to.map((one) => target(one, by)) },
      };
    }
    if (name === 'ret' || name === 'exit') {
      const { guard } = by;
      const rest = all.slice(0, -1);
      if (guard === null) return { instructions: rest, end: { kind: 'end' } };
      return { instructions: rest, end: { kind: 'branch', ...guard, taken: last, otherwise: i + 1 } };
    }
    // A trap never comes back where it is not guarded.
    if (name === 'trap' && by.guard === null) return { instructions: all, end: { kind: 'end' } };
    return { instructions: all, end: { kind: 'jump', to: i + 1 } };
  });
  return [...blocks, { instructions: [], end: { kind: 'end' } }];
}

export function followers(end: Terminator): readonly number[] {
  if (end.kind === 'jump') return [end.to];
  if (end.kind === 'branch') return [end.taken, end.otherwise];
  return end.kind === 'table' ? end.to : [];
}

/** The text around the blocks. */
export interface FlowPrinter {
  line(text: string, indent: number): void;
  /** The instructions of a block. */
  block(number: number, indent: number): void;
  /** The condition of a branch, or the number by which a table is read. */
  test(end: Extract<Terminator, { kind: 'branch' | 'table' }>): string;
  /** At the end of each turn of a loop that contains these blocks. */
  turn(loop: ReadonlySet<number>, indent: number): void;
}

/** Prints blocks in a form that JavaScript has. Falling off the end, or `break thread`, ends the thread. */
export function printFlow(blocks: readonly BasicBlock[], printer: FlowPrinter): void {
  const graph = new Graph(blocks);
  if (graph.isReducible && graph.depth < mostNested) new Structured(blocks, graph, printer).print();
  else printSwitch(blocks, graph, printer);
}

/** Blocks of JavaScript inside each other, of which parsers do not like too many. */
const mostNested = 400;

class Graph {
  /** In reverse postorder. */
  readonly order: number[] = [];
  /** Of each block its place in that order; -1 where nothing leads to it. */
  readonly place: Int32Array;
  /** The nearest block that all ways to this one pass. */
  readonly dominator: Int32Array;
  readonly before: number[][];
  /** Where a way goes back to. */
  readonly heads = new Set<number>();
  isReducible = true;
  depth = 0;

  constructor(blocks: readonly BasicBlock[]) {
    this.place = new Int32Array(blocks.length).fill(-1);
    this.dominator = new Int32Array(blocks.length).fill(-1);
    this.before = blocks.map(() => []);
    this.#walk(blocks);
    for (const from of this.order)
      for (const to of new Set(followers(blocks[from]!.end))) this.before[to]!.push(from);
    this.#dominate();
    for (const from of this.order) {
      for (const to of followers(blocks[from]!.end)) {
        if (!this.isBack(from, to)) continue;
        this.heads.add(to);
        if (!this.dominates(to, from)) this.isReducible = false;
      }
    }
    const depths = new Int32Array(blocks.length);
    for (const at of this.order) {
      if (at !== 0) depths[at] = depths[this.dominator[at]!]! + 1;
      this.depth = Math.max(this.depth, depths[at]!);
    }
  }

  isBack(from: number, to: number): boolean {
    return this.place[to]! <= this.place[from]!;
  }

  #walk(blocks: readonly BasicBlock[]): void {
    const seen = new Uint8Array(blocks.length);
    const post: number[] = [];
    // Without recursion: a function may have thousands of blocks.
    const stack: { at: number; next: number; to: readonly number[] }[] = [];
    const enter = (at: number): void => {
      seen[at] = 1;
      stack.push({ at, next: 0, to: followers(blocks[at]!.end) });
    };
    enter(0);
    while (stack.length > 0) {
      const top = stack.at(-1)!;
      // The last first, so that what stands first in the PTX does here too.
      const to = top.to[top.to.length - 1 - top.next++];
      if (to === undefined) {
        post.push(top.at);
        stack.pop();
      } else if (seen[to] === 0) enter(to);
    }
    this.order.push(...post.reverse());
    this.order.forEach((at, i) => {
      this.place[at] = i;
    });
  }

  #dominate(): void {
    const { dominator, place } = this;
    dominator[0] = 0;
    for (let changed = true; changed; ) {
      changed = false;
      for (const at of this.order) {
        if (at === 0) continue;
        let found = -1;
        for (const from of this.before[at]!) {
          if (dominator[from] === -1) continue;
          let [a, b] = [from, found === -1 ? from : found];
          while (a !== b) {
            if (place[a]! > place[b]!) a = dominator[a]!;
            else b = dominator[b]!;
          }
          found = a;
        }
        if (dominator[at] !== found) {
          dominator[at] = found;
          changed = true;
        }
      }
    }
  }

  dominates(a: number, b: number): boolean {
    let at = b;
    while (at !== a && at !== 0) at = this.dominator[at]!;
    return at === a;
  }

  /** Blocks from which control goes back to `head` without leaving the loop, with it. */
  loop(head: number): ReadonlySet<number> {
    const inside = new Set([head]);
    const todo = this.before[head]!.filter((from) => this.isBack(from, head));
    while (todo.length > 0) {
      const at = todo.pop()!;
      if (inside.has(at)) continue;
      inside.add(at);
      todo.push(...this.before[at]!);
    }
    return inside;
  }
}

class Structured {
  readonly #children: number[][];
  readonly #merges = new Set<number>();
  readonly #blocks: readonly BasicBlock[];
  readonly #graph: Graph;
  readonly #printer: FlowPrinter;

  constructor(blocks: readonly BasicBlock[], graph: Graph, printer: FlowPrinter) {
    this.#blocks = blocks;
    this.#graph = graph;
    this.#printer = printer;
    this.#children = blocks.map(() => []);
    const ways = new Int32Array(blocks.length);
    for (const at of graph.order) {
      if (at !== 0) this.#children[graph.dominator[at]!]!.push(at);
      for (const to of followers(blocks[at]!.end))
        if (!graph.isBack(at, to) && ++ways[to]! > 1) this.#merges.add(to);
    }
  }

  print(): void {
    this.#tree(0, 0);
  }

  #tree(at: number, indent: number): void {
    const merges = this.#children[at]!.filter((child) => this.#merges.has(child));
    if (!this.#graph.heads.has(at)) {
      this.#within(at, merges, indent);
      return;
    }
    this.#printer.line(`loop${at}: for (;;) {`, indent);
    this.#within(at, merges, indent + 1);
    this.#printer.line('}', indent);
  }

  /** The block, and behind it, one after the other, those where ways from it meet again. */
  #within(at: number, merges: readonly number[], indent: number): void {
    const last = merges.at(-1);
    if (last !== undefined) {
      this.#printer.line(`to${last}: {`, indent);
      this.#within(at, merges.slice(0, -1), indent + 1);
      this.#printer.line('}', indent);
      this.#tree(last, indent);
      return;
    }
    this.#printer.block(at, indent);
    const { end } = this.#blocks[at]!;
    switch (end.kind) {
      case 'end':
        this.#printer.line('break thread;', indent);
        return;
      case 'jump':
        this.#go(at, end.to, indent);
        return;
      case 'branch':
        this.#printer.line(`if (${this.#printer.test(end)}) {`, indent);
        this.#go(at, end.taken, indent + 1);
        this.#printer.line('} else {', indent);
        this.#go(at, end.otherwise, indent + 1);
        this.#printer.line('}', indent);
        return;
      case 'table':
        this.#printer.line(`switch (${this.#printer.test(end)}) {`, indent);
        end.to.forEach((to, i) => {
          this.#printer.line(`case ${i}:`, indent);
          this.#go(at, to, indent + 1);
        });
        this.#printer.line('}', indent);
        this.#printer.line('break thread;', indent);
        return;
    }
  }

  #go(from: number, to: number, indent: number): void {
    if (this.#graph.isBack(from, to)) {
      this.#printer.turn(this.#graph.loop(to), indent);
      this.#printer.line(`continue loop${to};`, indent);
    } else if (this.#merges.has(to)) this.#printer.line(`break to${to};`, indent);
    else this.#tree(to, indent);
  }
}

function printSwitch(blocks: readonly BasicBlock[], graph: Graph, printer: FlowPrinter): void {
  printer.line('let at = 0;', 0);
  printer.line('flow: for (;;) switch (at) {', 0);
  for (const at of graph.order) {
    printer.line(`case ${at}: {`, 0);
    printer.block(at, 1);
    const { end } = blocks[at]!;
    const go = (to: number, indent: number): void => {
      if (graph.isBack(at, to)) printer.turn(graph.loop(to), indent);
      printer.line(`at = ${to}; continue flow;`, indent);
    };
    if (end.kind === 'end') printer.line('break thread;', 1);
    else if (end.kind === 'jump') go(end.to, 1);
    else if (end.kind === 'branch') {
      printer.line(`if (${printer.test(end)}) {`, 1);
      go(end.taken, 2);
      printer.line('}', 1);
      go(end.otherwise, 1);
    } else {
      printer.line(`switch (${printer.test(end)}) {`, 1);
      end.to.forEach((to, i) => {
        printer.line(`case ${i}:`, 1);
        go(to, 2);
      });
      printer.line('}', 1);
      printer.line('break thread;', 1);
    }
    printer.line('}', 0);
  }
  printer.line('}', 0);
}
