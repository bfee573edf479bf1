/** Graphs, captured or made by hand: work that waits for other work of the same launch. */
import { ArgumentError } from '../../base/errors.js';
import { type SimDevice, SimEvent, type SimStream } from '../../gpu/sim/index.js';

/** Enqueues something: at once, or at each launch of a graph. */
export type Work = (stream: SimStream) => void;

export interface Node {
  readonly number: number;
  readonly device: SimDevice;
  readonly kind: number;
  readonly after: Set<Node>;
  /** Nothing, until the call that makes the node has told it. */
  work: Work;
}

export class Graph {
  readonly nodes: Node[] = [];

  /** The nodes that nothing of the graph waits for. */
  get ends(): readonly Node[] {
    const awaited = new Set(this.nodes.flatMap(({ after }) => [...after]));
    return this.nodes.filter((node) => !awaited.has(node));
  }

  /** A graph whose nodes change apart from these. */
  clone(): Graph {
    const copies = new Map(this.nodes.map((node) => [node, { ...node, after: new Set<Node>() }]));
    for (const [node, copy] of copies) for (const one of node.after) copy.after.add(copies.get(one)!);
    const graph = new Graph();
    graph.nodes.push(...copies.values());
    return graph;
  }

  /** The nodes, each behind those that it waits for. */
  get sorted(): readonly Node[] {
    const sorted = new Set<Node>();
    for (let before = -1; sorted.size > before; ) {
      before = sorted.size;
      for (const node of this.nodes) if ([...node.after].every((one) => sorted.has(one))) sorted.add(node);
    }
    if (sorted.size < this.nodes.length)
      throw new ArgumentError('graph', 'a circle', 'nodes without a circle');
    return [...sorted];
  }
}

/** A new event, recorded now. */
export function recorded(stream: SimStream): SimEvent {
  const event = new SimEvent();
  stream.record(event);
  return event;
}

/** A graph that can be launched. Its nodes run in streams of its own: a chain in one, what may run beside it in others. */
export class Executable {
  readonly graph: Graph;
  readonly #steps: readonly { readonly node: Node; readonly stream: SimStream }[];
  readonly #ends: readonly Node[];

  constructor(graph: Graph) {
    this.graph = graph.clone();
    this.#ends = this.graph.ends;
    const lasts = new Map<Node, SimStream>();
    this.#steps = this.graph.sorted.map((node) => {
      const chain = [...node.after].find((one) => lasts.has(one) && one.device === node.device);
      const stream = chain === undefined ? node.device.createStream() : lasts.get(chain)!;
      if (chain !== undefined) lasts.delete(chain);
      lasts.set(node, stream);
      return { node, stream };
    });
  }

  launch(on: SimStream): void {
    const begin = recorded(on);
    const done = new Map<Node, SimEvent>();
    for (const { node, stream } of this.#steps) {
      if (node.after.size === 0) stream.wait(begin);
      for (const one of node.after) stream.wait(done.get(one)!);
      node.work(stream);
      done.set(node, recorded(stream));
    }
    for (const node of this.#ends) on.wait(done.get(node)!);
  }

  /** Whether the graph has the same nodes, whose work this then does. */
  takeOver({ nodes }: Graph): boolean {
    const own = this.graph.nodes;
    const isSame =
      nodes.length === own.length &&
      nodes.every(({ kind, after }, i) => kind === own[i]!.kind && after.size === own[i]!.after.size);
    if (isSame) for (const [i, { work }] of nodes.entries()) own[i]!.work = work;
    return isSame;
  }
}
