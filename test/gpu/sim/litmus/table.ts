/**
 * The table of litmus tests: shapes of few threads that ask what order a memory model promises. `never` must not come
 * out of `right`, which is the weakest form that excludes it, and must come out of every form under `wrong` (or a race
 * must be found there). docs/races.md says what the machine shows.
 */
import type { Outcome, Threads } from './program.js';

export interface Litmus {
  readonly name: string;
  readonly never: Outcome;
  readonly right: Threads;
  /** By what is wrong with it. */
  readonly wrong: Readonly<Record<string, Threads>>;
}

const of = (...threads: readonly string[]): Threads => ({
  threads: threads.map((text) => text.split('; ')),
});

export const litmusTests: readonly Litmus[] = [
  {
    name: 'message passing',
    never: 'a=1 b=0',
    right: of('x = 1 weak; y = 1 release', 'a = y acquire; a ? b = x weak'),
    wrong: {
      'relaxed store': of('x = 1 weak; y = 1 relaxed', 'a = y acquire; a ? b = x weak'),
      'relaxed load': of('x = 1 weak; y = 1 release', 'a = y relaxed; a ? b = x weak'),
      'flag first': of('y = 1 release; x = 1 weak', 'a = y acquire; a ? b = x weak'),
    },
  },
  {
    name: 'message passing, atomic data',
    never: 'a=1 b=0',
    right: of('x = 1 relaxed; y = 1 release', 'a = y acquire; b = x relaxed'),
    wrong: {
      'relaxed store': of('x = 1 relaxed; y = 1 relaxed', 'a = y acquire; b = x relaxed'),
      'relaxed load': of('x = 1 relaxed; y = 1 release', 'a = y relaxed; b = x relaxed'),
    },
  },
  {
    name: 'message passing, two fences',
    never: 'a=1 b=0',
    right: of('x = 1 relaxed; fence acq_rel; y = 1 relaxed', 'a = y relaxed; fence acq_rel; b = x relaxed'),
    wrong: {
      'no fence before the store': of(
        'x = 1 relaxed; y = 1 relaxed',
        'a = y relaxed; fence acq_rel; b = x relaxed',
      ),
      'no fence after the load': of(
        'x = 1 relaxed; fence acq_rel; y = 1 relaxed',
        'a = y relaxed; b = x relaxed',
      ),
      'fence on the wrong side': of(
        'x = 1 relaxed; y = 1 relaxed; fence acq_rel',
        'a = y relaxed; fence acq_rel; b = x relaxed',
      ),
    },
  },
  {
    name: 'message passing, a release and a fence',
    never: 'a=1 b=0',
    right: of('x = 1 relaxed; y = 1 release', 'a = y relaxed; fence acq_rel; b = x relaxed'),
    wrong: {
      'no release': of('x = 1 relaxed; y = 1 relaxed', 'a = y relaxed; fence acq_rel; b = x relaxed'),
    },
  },
  {
    name: 'message passing, acquired later',
    never: 'a=1 b=0',
    right: of('x = 1 relaxed; y = 1 release', 'a = y relaxed; c = y acquire; b = x relaxed'),
    wrong: {
      'another place acquired': of(
        'x = 1 relaxed; y = 1 release',
        'a = y relaxed; c = z acquire; b = x relaxed',
      ),
    },
  },
  {
    name: 'message passing, scopes between ranks',
    never: 'a=1 b=0',
    right: of('x = 1 relaxed; y = 1 release sys', 'a = y acquire sys; b = x relaxed'),
    wrong: {
      'store of the GPU': of('x = 1 relaxed; y = 1 release gpu', 'a = y acquire sys; b = x relaxed'),
      'load of the GPU': of('x = 1 relaxed; y = 1 release sys', 'a = y acquire gpu; b = x relaxed'),
      'fence of the GPU before the store': of(
        'x = 1 relaxed; fence acq_rel gpu; y = 1 relaxed',
        'a = y relaxed; fence acq_rel; b = x relaxed',
      ),
      'fence of the GPU after the load': of(
        'x = 1 relaxed; fence acq_rel; y = 1 relaxed',
        'a = y relaxed; fence acq_rel gpu; b = x relaxed',
      ),
    },
  },
  {
    name: 'message passing, scopes between blocks',
    never: 'a=1 b=0',
    right: { ...of('x = 1 relaxed; y = 1 release', 'a = y acquire; b = x relaxed'), apart: 'blocks' },
    wrong: {
      'store of the block': {
        ...of('x = 1 relaxed; y = 1 release cta', 'a = y acquire; b = x relaxed'),
        apart: 'blocks',
      },
      'load of the block': {
        ...of('x = 1 relaxed; y = 1 release', 'a = y acquire cta; b = x relaxed'),
        apart: 'blocks',
      },
      'fence of the block': {
        ...of('x = 1 relaxed; fence acq_rel cta; y = 1 relaxed', 'a = y acquire; b = x relaxed'),
        apart: 'blocks',
      },
    },
  },
  {
    name: 'message passing in a block',
    never: 'a=1 b=0',
    right: { ...of('x = 1 relaxed; y = 1 release', 'a = y acquire; b = x relaxed'), apart: 'warps' },
    wrong: {
      'relaxed store': {
        ...of('x = 1 relaxed; y = 1 relaxed', 'a = y acquire; b = x relaxed'),
        apart: 'warps',
      },
    },
  },
  {
    name: 'store buffering',
    never: 'a=0 b=0',
    right: of('x = 1 relaxed; fence seq_cst; a = y relaxed', 'y = 1 relaxed; fence seq_cst; b = x relaxed'),
    wrong: {
      'fences of acquire and release': of(
        'x = 1 relaxed; fence acq_rel; a = y relaxed',
        'y = 1 relaxed; fence acq_rel; b = x relaxed',
      ),
      'one fence': of('x = 1 relaxed; fence seq_cst; a = y relaxed', 'y = 1 relaxed; b = x relaxed'),
      'releases and acquires': of('x = 1 release; a = y acquire', 'y = 1 release; b = x acquire'),
      'fence of the GPU': of(
        'x = 1 relaxed; fence seq_cst gpu; a = y relaxed',
        'y = 1 relaxed; fence seq_cst; b = x relaxed',
      ),
    },
  },
  {
    name: 'store buffering, read-modify-writes of a third place',
    never: 'a=0 b=0',
    right: of(
      'x = 1 relaxed; c += z 1 acq_rel; a = y relaxed',
      'y = 1 relaxed; d += z 1 acq_rel; b = x relaxed',
    ),
    wrong: {
      'that only release': of(
        'x = 1 relaxed; c += z 1 release; a = y relaxed',
        'y = 1 relaxed; d += z 1 release; b = x relaxed',
      ),
      'that only acquire': of(
        'x = 1 relaxed; c += z 1 acquire; a = y relaxed',
        'y = 1 relaxed; d += z 1 acquire; b = x relaxed',
      ),
    },
  },
  {
    name: 'load buffering',
    never: 'a=1 b=1',
    right: of('a = x relaxed; y = 1 release', 'b = y acquire; x = 1 relaxed'),
    wrong: {
      'relaxed store': of('a = x relaxed; y = 1 relaxed', 'b = y acquire; x = 1 relaxed'),
      'relaxed load': of('a = x relaxed; y = 1 release', 'b = y relaxed; x = 1 relaxed'),
      'both relaxed, between blocks': {
        ...of('a = x relaxed; y = 1 relaxed', 'b = y relaxed; x = 1 relaxed'),
        apart: 'blocks',
      },
    },
  },
  {
    name: 'load buffering, fences',
    never: 'a=1 b=1',
    right: of('a = x relaxed; fence acq_rel; y = 1 relaxed', 'b = y relaxed; fence acq_rel; x = 1 relaxed'),
    wrong: {
      'one fence': of('a = x relaxed; fence acq_rel; y = 1 relaxed', 'b = y relaxed; x = 1 relaxed'),
      'fences of blocks of one thread': {
        ...of(
          'a = x relaxed; fence acq_rel cta; y = 1 relaxed',
          'b = y relaxed; fence acq_rel cta; x = 1 relaxed',
        ),
        apart: 'blocks',
      },
    },
  },
  {
    name: 'load buffering, fences of a block',
    never: 'a=1 b=1',
    right: {
      ...of(
        'a = x relaxed; fence acq_rel cta; y = 1 relaxed',
        'b = y relaxed; fence acq_rel cta; x = 1 relaxed',
      ),
      apart: 'warps',
    },
    wrong: {
      'one fence': {
        ...of('a = x relaxed; fence acq_rel cta; y = 1 relaxed', 'b = y relaxed; x = 1 relaxed'),
        apart: 'warps',
      },
    },
  },
  {
    name: 'load buffering where both stores depend on the loads',
    never: 'a=1 b=1',
    right: of('a = x relaxed; a ? y = 1 relaxed', 'b = y relaxed; b ? x = 1 relaxed'),
    wrong: {
      'one does not': of('a = x relaxed; a ? y = 1 relaxed', 'b = y relaxed; x = 1 relaxed'),
    },
  },
  {
    name: 'an update before a store',
    never: 'a=0',
    right: of(
      'c += x 1 relaxed; fence acq_rel; y = 1 relaxed',
      'y >= 1 relaxed; fence acq_rel; a += x 0 relaxed',
    ),
    wrong: {
      'no fence': of('c += x 1 relaxed; y = 1 relaxed', 'y >= 1 relaxed; fence acq_rel; a += x 0 relaxed'),
    },
  },
  {
    name: 'two writes each',
    never: 'x=1 y=1',
    right: of('x = 1 relaxed; fence seq_cst; y = 2 relaxed', 'y = 1 relaxed; fence seq_cst; x = 2 relaxed'),
    wrong: {
      'no fence': of('x = 1 relaxed; y = 2 relaxed', 'y = 1 relaxed; x = 2 relaxed'),
      'one fence': of('x = 1 relaxed; fence seq_cst; y = 2 relaxed', 'y = 1 relaxed; x = 2 relaxed'),
      'fences of acquire and release': of(
        'x = 1 relaxed; fence acq_rel; y = 2 relaxed',
        'y = 1 relaxed; fence acq_rel; x = 2 relaxed',
      ),
      releases: of('x = 1 release; y = 2 release', 'y = 1 release; x = 2 release'),
      'between blocks': {
        ...of('x = 1 relaxed; y = 2 relaxed', 'y = 1 relaxed; x = 2 relaxed'),
        apart: 'blocks',
      },
    },
  },
  {
    name: 'a store behind one that a load has led to (S)',
    never: 'a=1 x=2',
    right: of('x = 2 relaxed; y = 1 release', 'a = y acquire; x = 1 relaxed'),
    wrong: {
      'relaxed store': of('x = 2 relaxed; y = 1 relaxed', 'a = y acquire; x = 1 relaxed'),
      'relaxed load': of('x = 2 relaxed; y = 1 release', 'a = y relaxed; x = 1 relaxed'),
      'a release of another place': of('x = 2 release; y = 1 relaxed', 'a = y acquire; x = 1 release'),
    },
  },
  {
    name: 'coherence of a read and a write',
    never: 'a=1 x=1',
    right: of('x = 1 relaxed', 'a = x relaxed; x = 2 relaxed'),
    wrong: { 'scope of the GPU': of('x = 1 relaxed gpu', 'a = x relaxed; x = 2 relaxed') },
  },
  {
    name: 'coherence of two writes of a thread',
    never: 'x=1',
    right: of('x = 1 relaxed; x = 2 relaxed', 'x = 3 relaxed'),
    wrong: { 'a weak store': of('x = 1 relaxed; x = 2 relaxed', 'x = 3 weak') },
  },
  {
    name: 'a store never comes between a read-modify-write and what that read',
    never: 'a=0 x=1',
    right: of('a += x 1 relaxed', 'x = 3 relaxed'),
    wrong: { 'a load and a store': of('a = x relaxed; x = 1 relaxed', 'x = 3 relaxed') },
  },
  {
    name: 'independent reads of independent writes',
    never: 'a=0 b=0',
    right: of(
      'x = 1 relaxed',
      'y = 1 relaxed',
      'x >= 1 relaxed; fence seq_cst; a = y relaxed',
      'y >= 1 relaxed; fence seq_cst; b = x relaxed',
    ),
    wrong: {
      'releases and acquires': of(
        'x = 1 release',
        'y = 1 release',
        'x >= 1 acquire; a = y acquire',
        'y >= 1 acquire; b = x acquire',
      ),
      'fences of acquire and release': of(
        'x = 1 relaxed',
        'y = 1 relaxed',
        'x >= 1 relaxed; fence acq_rel; a = y relaxed',
        'y >= 1 relaxed; fence acq_rel; b = x relaxed',
      ),
    },
  },
  {
    name: 'coherence of two reads',
    never: 'a=1 b=0',
    right: of('x = 1 relaxed', 'a = x relaxed; b = x relaxed'),
    wrong: { 'scope of the GPU': of('x = 1 relaxed gpu', 'a = x relaxed; b = x relaxed') },
  },
  {
    name: 'coherence of reads of two threads',
    never: 'a=0',
    right: of('x = 1 relaxed', 'x >= 1 relaxed; y = 1 release', 'y >= 1 acquire; a = x relaxed'),
    wrong: {
      'relaxed store': of('x = 1 relaxed', 'x >= 1 relaxed; y = 1 relaxed', 'y >= 1 acquire; a = x relaxed'),
      'relaxed load': of('x = 1 relaxed', 'x >= 1 relaxed; y = 1 release', 'y >= 1 relaxed; a = x relaxed'),
    },
  },
  {
    name: 'coherence of a write and a read',
    never: 'a=0',
    right: of('x = 1 relaxed; a = x relaxed', 'x = 2 relaxed'),
    wrong: { 'a weak store': of('x = 1 relaxed; a = x relaxed', 'x = 2 weak') },
  },
  {
    name: 'coherence of writes, seen by two readers',
    never: 'a=1 b=2 c=2 d=1',
    right: of(
      'x = 1 relaxed',
      'x = 2 relaxed',
      'a = x relaxed; b = x relaxed',
      'c = x relaxed; d = x relaxed',
    ),
    wrong: {
      'weak loads': of(
        'x = 1 relaxed',
        'x = 2 relaxed',
        'a = x weak; b = x weak',
        'c = x relaxed; d = x relaxed',
      ),
    },
  },
  {
    name: 'causality over three threads (ISA2)',
    never: 'a=0',
    right: of(
      'x = 1 relaxed; y = 1 release',
      'y >= 1 acquire; z = 1 release',
      'z >= 1 acquire; a = x relaxed',
    ),
    wrong: {
      'relaxed at the start': of(
        'x = 1 relaxed; y = 1 relaxed',
        'y >= 1 acquire; z = 1 release',
        'z >= 1 acquire; a = x relaxed',
      ),
      'relaxed in the middle': of(
        'x = 1 relaxed; y = 1 release',
        'y >= 1 relaxed; z = 1 release',
        'z >= 1 acquire; a = x relaxed',
      ),
      'relaxed at the end': of(
        'x = 1 relaxed; y = 1 release',
        'y >= 1 acquire; z = 1 release',
        'z >= 1 relaxed; a = x relaxed',
      ),
    },
  },
  {
    name: 'causality from a write to a read (WRC)',
    never: 'a=0',
    right: of('x = 1 release', 'x >= 1 acquire; y = 1 release', 'y >= 1 acquire; a = x weak'),
    wrong: {
      'relaxed write': of('x = 1 relaxed', 'x >= 1 acquire; y = 1 release', 'y >= 1 acquire; a = x weak'),
      'relaxed read': of('x = 1 release', 'x >= 1 relaxed; y = 1 release', 'y >= 1 acquire; a = x weak'),
      'relaxed in the middle': of(
        'x = 1 release',
        'x >= 1 acquire; y = 1 relaxed',
        'y >= 1 acquire; a = x weak',
      ),
    },
  },
  {
    name: 'a release goes on in later stores of its thread',
    never: 'a=2 b=0',
    right: of('x = 1 relaxed; y = 1 release; y = 2 relaxed', 'a = y acquire; b = x relaxed'),
    wrong: {
      'by another thread': of(
        'x = 1 relaxed; y = 1 release',
        'y >= 1 relaxed; y = 2 relaxed',
        'a = y acquire; b = x relaxed',
      ),
      'in another place': of('x = 1 relaxed; z = 1 release; y = 2 relaxed', 'a = y acquire; b = x relaxed'),
    },
  },
  {
    name: 'a release goes on in read-modify-writes',
    never: 'a=0',
    right: of(
      'x = 1 relaxed; y = 1 release',
      'y >= 1 relaxed; c += y 1 relaxed',
      'y >= 2 acquire; a = x relaxed',
    ),
    wrong: {
      'by a load and a store': of(
        'x = 1 relaxed; y = 1 release',
        'y >= 1 relaxed; y = 2 relaxed',
        'y >= 2 acquire; a = x relaxed',
      ),
      'at the scope of the GPU': of(
        'x = 1 relaxed; y = 1 release',
        'y >= 1 relaxed; c += y 1 relaxed gpu',
        'y >= 2 acquire; a = x relaxed',
      ),
    },
  },
  {
    name: 'a store behind a load that saw another (R)',
    never: 'y=2 a=0',
    right: of('x = 1 relaxed; fence seq_cst; y = 1 relaxed', 'y = 2 relaxed; fence seq_cst; a = x relaxed'),
    wrong: {
      'fences of acquire and release': of(
        'x = 1 relaxed; fence acq_rel; y = 1 relaxed',
        'y = 2 relaxed; fence acq_rel; a = x relaxed',
      ),
    },
  },
];
