import type { Outcome, Threads } from './program.js';

export interface Litmus {
  readonly name: string;
  readonly never: Outcome;
  readonly right: Threads;
  /** By what is wrong with it. */
  readonly wrong: Readonly<Record<string, Threads>>;
}

/**
 * Litmus tests: shapes of few threads that ask what order a memory model promises. The outcome behind a name must never come out of `right`,
 * which is the weakest form that excludes it, and must come out of every form below (or a race must be found there). Threads have a
 * rank each, where nothing else is said. docs/races.md says what the machine shows.
 */
const table = `
message passing: a=1 b=0
  right: x = 1 weak; y = 1 release | a = y acquire; a ? b = x weak
  relaxed store: x = 1 weak; y = 1 relaxed | a = y acquire; a ? b = x weak
  relaxed load: x = 1 weak; y = 1 release | a = y relaxed; a ? b = x weak
  flag first: y = 1 release; x = 1 weak | a = y acquire; a ? b = x weak
message passing, atomic data: a=1 b=0
  right: x = 1 relaxed; y = 1 release | a = y acquire; b = x relaxed
  relaxed store: x = 1 relaxed; y = 1 relaxed | a = y acquire; b = x relaxed
  relaxed load: x = 1 relaxed; y = 1 release | a = y relaxed; b = x relaxed
message passing, two fences: a=1 b=0
  right: x = 1 relaxed; fence acq_rel; y = 1 relaxed | a = y relaxed; fence acq_rel; b = x relaxed
  no fence before the store: x = 1 relaxed; y = 1 relaxed | a = y relaxed; fence acq_rel; b = x relaxed
  no fence after the load: x = 1 relaxed; fence acq_rel; y = 1 relaxed | a = y relaxed; b = x relaxed
  fence on the wrong side: x = 1 relaxed; y = 1 relaxed; fence acq_rel | a = y relaxed; fence acq_rel; b = x relaxed
message passing, a release and a fence: a=1 b=0
  right: x = 1 relaxed; y = 1 release | a = y relaxed; fence acq_rel; b = x relaxed
  no release: x = 1 relaxed; y = 1 relaxed | a = y relaxed; fence acq_rel; b = x relaxed
message passing, acquired later: a=1 b=0
  right: x = 1 relaxed; y = 1 release | a = y relaxed; c = y acquire; b = x relaxed
  another place acquired: x = 1 relaxed; y = 1 release | a = y relaxed; c = z acquire; b = x relaxed
message passing, scopes between ranks: a=1 b=0
  right: x = 1 relaxed; y = 1 release sys | a = y acquire sys; b = x relaxed
  store of the GPU: x = 1 relaxed; y = 1 release gpu | a = y acquire sys; b = x relaxed
  load of the GPU: x = 1 relaxed; y = 1 release sys | a = y acquire gpu; b = x relaxed
  fence of the GPU before the store: x = 1 relaxed; fence acq_rel gpu; y = 1 relaxed | a = y relaxed; fence acq_rel; b = x relaxed
  fence of the GPU after the load: x = 1 relaxed; fence acq_rel; y = 1 relaxed | a = y relaxed; fence acq_rel gpu; b = x relaxed
message passing, scopes between blocks: a=1 b=0
  right: blocks: x = 1 relaxed; y = 1 release | a = y acquire; b = x relaxed
  store of the block: blocks: x = 1 relaxed; y = 1 release cta | a = y acquire; b = x relaxed
  load of the block: blocks: x = 1 relaxed; y = 1 release | a = y acquire cta; b = x relaxed
  fence of the block: blocks: x = 1 relaxed; fence acq_rel cta; y = 1 relaxed | a = y acquire; b = x relaxed
message passing in a block: a=1 b=0
  right: warps: x = 1 relaxed; y = 1 release | a = y acquire; b = x relaxed
  relaxed store: warps: x = 1 relaxed; y = 1 relaxed | a = y acquire; b = x relaxed
store buffering: a=0 b=0
  right: x = 1 relaxed; fence seq_cst; a = y relaxed | y = 1 relaxed; fence seq_cst; b = x relaxed
  fences of acquire and release: x = 1 relaxed; fence acq_rel; a = y relaxed | y = 1 relaxed; fence acq_rel; b = x relaxed
  one fence: x = 1 relaxed; fence seq_cst; a = y relaxed | y = 1 relaxed; b = x relaxed
  releases and acquires: x = 1 release; a = y acquire | y = 1 release; b = x acquire
  fence of the GPU: x = 1 relaxed; fence seq_cst gpu; a = y relaxed | y = 1 relaxed; fence seq_cst; b = x relaxed
store buffering, read-modify-writes of a third place: a=0 b=0
  right: x = 1 relaxed; c += z 1 acq_rel; a = y relaxed | y = 1 relaxed; d += z 1 acq_rel; b = x relaxed
  that only release: x = 1 relaxed; c += z 1 release; a = y relaxed | y = 1 relaxed; d += z 1 release; b = x relaxed
  that only acquire: x = 1 relaxed; c += z 1 acquire; a = y relaxed | y = 1 relaxed; d += z 1 acquire; b = x relaxed
load buffering: a=1 b=1
  right: a = x relaxed; y = 1 release | b = y acquire; x = 1 relaxed
  relaxed store: a = x relaxed; y = 1 relaxed | b = y acquire; x = 1 relaxed
  relaxed load: a = x relaxed; y = 1 release | b = y relaxed; x = 1 relaxed
  both relaxed, between blocks: blocks: a = x relaxed; y = 1 relaxed | b = y relaxed; x = 1 relaxed
load buffering, fences: a=1 b=1
  right: a = x relaxed; fence acq_rel; y = 1 relaxed | b = y relaxed; fence acq_rel; x = 1 relaxed
  one fence: a = x relaxed; fence acq_rel; y = 1 relaxed | b = y relaxed; x = 1 relaxed
  fences of blocks of one thread: blocks: a = x relaxed; fence acq_rel cta; y = 1 relaxed | b = y relaxed; fence acq_rel cta; x = 1 relaxed
load buffering, fences of a block: a=1 b=1
  right: warps: a = x relaxed; fence acq_rel cta; y = 1 relaxed | b = y relaxed; fence acq_rel cta; x = 1 relaxed
  one fence: warps: a = x relaxed; fence acq_rel cta; y = 1 relaxed | b = y relaxed; x = 1 relaxed
load buffering where both stores depend on the loads: a=1 b=1
  right: a = x relaxed; a ? y = 1 relaxed | b = y relaxed; b ? x = 1 relaxed
  one does not: a = x relaxed; a ? y = 1 relaxed | b = y relaxed; x = 1 relaxed
an update before a store: a=0
  right: c += x 1 relaxed; fence acq_rel; y = 1 relaxed | y >= 1 relaxed; fence acq_rel; a += x 0 relaxed
  no fence: c += x 1 relaxed; y = 1 relaxed | y >= 1 relaxed; fence acq_rel; a += x 0 relaxed
two writes each: x=1 y=1
  right: x = 1 relaxed; fence seq_cst; y = 2 relaxed | y = 1 relaxed; fence seq_cst; x = 2 relaxed
  no fence: x = 1 relaxed; y = 2 relaxed | y = 1 relaxed; x = 2 relaxed
  one fence: x = 1 relaxed; fence seq_cst; y = 2 relaxed | y = 1 relaxed; x = 2 relaxed
  fences of acquire and release: x = 1 relaxed; fence acq_rel; y = 2 relaxed | y = 1 relaxed; fence acq_rel; x = 2 relaxed
  releases: x = 1 release; y = 2 release | y = 1 release; x = 2 release
  between blocks: blocks: x = 1 relaxed; y = 2 relaxed | y = 1 relaxed; x = 2 relaxed
a store behind one that a load has led to (S): a=1 x=2
  right: x = 2 relaxed; y = 1 release | a = y acquire; x = 1 relaxed
  relaxed store: x = 2 relaxed; y = 1 relaxed | a = y acquire; x = 1 relaxed
  relaxed load: x = 2 relaxed; y = 1 release | a = y relaxed; x = 1 relaxed
  a release of another place: x = 2 release; y = 1 relaxed | a = y acquire; x = 1 release
coherence of a read and a write: a=1 x=1
  right: x = 1 relaxed | a = x relaxed; x = 2 relaxed
  scope of the GPU: x = 1 relaxed gpu | a = x relaxed; x = 2 relaxed
coherence of two writes of a thread: x=1
  right: x = 1 relaxed; x = 2 relaxed | x = 3 relaxed
  a weak store: x = 1 relaxed; x = 2 relaxed | x = 3 weak
a store never comes between a read-modify-write and what that read: a=0 x=1
  right: a += x 1 relaxed | x = 3 relaxed
  a load and a store: a = x relaxed; x = 1 relaxed | x = 3 relaxed
independent reads of independent writes: a=0 b=0
  right: x = 1 relaxed | y = 1 relaxed | x >= 1 relaxed; fence seq_cst; a = y relaxed | y >= 1 relaxed; fence seq_cst; b = x relaxed
  releases and acquires: x = 1 release | y = 1 release | x >= 1 acquire; a = y acquire | y >= 1 acquire; b = x acquire
  fences of acquire and release: x = 1 relaxed | y = 1 relaxed | x >= 1 relaxed; fence acq_rel; a = y relaxed | y >= 1 relaxed; fence acq_rel; b = x relaxed
coherence of two reads: a=1 b=0
  right: x = 1 relaxed | a = x relaxed; b = x relaxed
  scope of the GPU: x = 1 relaxed gpu | a = x relaxed; b = x relaxed
coherence of reads of two threads: a=0
  right: x = 1 relaxed | x >= 1 relaxed; y = 1 release | y >= 1 acquire; a = x relaxed
  relaxed store: x = 1 relaxed | x >= 1 relaxed; y = 1 relaxed | y >= 1 acquire; a = x relaxed
  relaxed load: x = 1 relaxed | x >= 1 relaxed; y = 1 release | y >= 1 relaxed; a = x relaxed
coherence of a write and a read: a=0
  right: x = 1 relaxed; a = x relaxed | x = 2 relaxed
  a weak store: x = 1 relaxed; a = x relaxed | x = 2 weak
coherence of writes, seen by two readers: a=1 b=2 c=2 d=1
  right: x = 1 relaxed | x = 2 relaxed | a = x relaxed; b = x relaxed | c = x relaxed; d = x relaxed
  weak loads: x = 1 relaxed | x = 2 relaxed | a = x weak; b = x weak | c = x relaxed; d = x relaxed
causality over three threads (ISA2): a=0
  right: x = 1 relaxed; y = 1 release | y >= 1 acquire; z = 1 release | z >= 1 acquire; a = x relaxed
  relaxed at the start: x = 1 relaxed; y = 1 relaxed | y >= 1 acquire; z = 1 release | z >= 1 acquire; a = x relaxed
  relaxed in the middle: x = 1 relaxed; y = 1 release | y >= 1 relaxed; z = 1 release | z >= 1 acquire; a = x relaxed
  relaxed at the end: x = 1 relaxed; y = 1 release | y >= 1 acquire; z = 1 release | z >= 1 relaxed; a = x relaxed
causality from a write to a read (WRC): a=0
  right: x = 1 release | x >= 1 acquire; y = 1 release | y >= 1 acquire; a = x weak
  relaxed write: x = 1 relaxed | x >= 1 acquire; y = 1 release | y >= 1 acquire; a = x weak
  relaxed read: x = 1 release | x >= 1 relaxed; y = 1 release | y >= 1 acquire; a = x weak
  relaxed in the middle: x = 1 release | x >= 1 acquire; y = 1 relaxed | y >= 1 acquire; a = x weak
a release goes on in later stores of its thread: a=2 b=0
  right: x = 1 relaxed; y = 1 release; y = 2 relaxed | a = y acquire; b = x relaxed
  by another thread: x = 1 relaxed; y = 1 release | y >= 1 relaxed; y = 2 relaxed | a = y acquire; b = x relaxed
  in another place: x = 1 relaxed; z = 1 release; y = 2 relaxed | a = y acquire; b = x relaxed
a release goes on in read-modify-writes: a=0
  right: x = 1 relaxed; y = 1 release | y >= 1 relaxed; c += y 1 relaxed | y >= 2 acquire; a = x relaxed
  by a load and a store: x = 1 relaxed; y = 1 release | y >= 1 relaxed; y = 2 relaxed | y >= 2 acquire; a = x relaxed
  at the scope of the GPU: x = 1 relaxed; y = 1 release | y >= 1 relaxed; c += y 1 relaxed gpu | y >= 2 acquire; a = x relaxed
a store behind a load that saw another (R): y=2 a=0
  right: x = 1 relaxed; fence seq_cst; y = 1 relaxed | y = 2 relaxed; fence seq_cst; a = x relaxed
  fences of acquire and release: x = 1 relaxed; fence acq_rel; y = 1 relaxed | y = 2 relaxed; fence acq_rel; a = x relaxed`;

function threadsOf(form: string): Threads {
  const [, apart, threads] = /^(?:(blocks|warps): )?(.*)$/.exec(form)!;
  return {
    threads: threads!.split(' | ').map((text) => text.split('; ')),
    ...(apart && { apart: apart as 'blocks' | 'warps' }),
  };
}

export const litmusTests: readonly Litmus[] = table
  .split(/\n(?! )/)
  .slice(1)
  .map((test) => {
    const [[name, never], ...forms] = test.split('\n').map((line) => {
      const at = line.indexOf(': ');
      return [line.slice(0, at).trim(), line.slice(at + 2)] as const;
    }) as [readonly [string, string], ...(readonly [string, string])[]];
    const { right, ...wrong } = Object.fromEntries(forms.map(([what, form]) => [what, threadsOf(form)]));
    return { name, never, right: right!, wrong };
  });
