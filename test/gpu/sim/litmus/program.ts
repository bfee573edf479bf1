/** Litmus tests as text: a few threads, each with a few statements on the places x, y and z; and the kernel that runs them. */

import {
  field,
  type Kernel,
  kernel,
  layout,
  peers,
  pointer,
  type Scope,
} from '../../../../src/lang/index.js';
import { type CheckConfiguration, WrongResult } from '../../../../src/verify/check/index.js';
import { download, launch, ranksOn, windowsOf } from '../harness.js';

/**
 * A statement is `x = 1 relaxed`, `a = x acquire`, `a += x 1 acq_rel` (adds, `a` is what was there), `x >= 1 acquire` (waits
 * for that), `fence seq_cst`, or one of them behind `a ?`, if `a` is not 0. An order may be followed by a scope, where it is not the test's.
 */
type Statement = string;

export interface Threads {
  /** Each thread's statements. */
  readonly threads: readonly (readonly Statement[])[];
  /** A rank for each thread, a block, or a warp. Default: a rank. */
  readonly apart?: 'ranks' | 'blocks' | 'warps';
  /** Default: the widest that is needed. */
  readonly scope?: Scope;
}

/** What registers, and places in the end, must not hold all at once: 'a=1 b=0 x=2'. */
export type Outcome = string;

const places = ['x', 'y', 'z'];
const registers = ['a', 'b', 'c', 'd'];
const Places = layout('Places', {
  /** x, y and z, far enough apart that none shares 16 bytes with another. */
  all: field('u32', 12),
  /** Threads that have come to their end. */
  done: field('u32', 1),
});

const kinds = { none: 0, load: 1, store: 2, add: 3, fence: 4, wait: 5 } as const;

interface Operation {
  readonly kind: (typeof kinds)[keyof typeof kinds];
  /** A register, or -1. */
  readonly guard: number;
  readonly register: number;
  readonly place: number;
  readonly value: number;
  readonly order: string;
  readonly scope: Scope;
}

const nothing = { kind: kinds.none, guard: -1, register: 0, place: 0, value: 0, order: 'relaxed' } as const;

function parse(statement: Statement, scope: Scope): Operation {
  const match =
    /^(?:([a-d]) \? )?(?:([a-d]) = ([xyz])|([xyz]) = (\d+)|([a-d]) \+= ([xyz]) (\d+)|(fence)|([xyz]) >= (\d+)) (\w+)(?: (cta|gpu|sys))?$/.exec(
      statement,
    );
  if (match === null) throw new Error(`'${statement}' is no statement`);
  const [, guard, loaded, from, stored, value, added, to, by, fence, waited, until, order, own] = match;
  return {
    kind: loaded ? kinds.load : stored ? kinds.store : fence ? kinds.fence : waited ? kinds.wait : kinds.add,
    guard: guard === undefined ? -1 : registers.indexOf(guard),
    register: registers.indexOf(loaded ?? added ?? 'a'),
    place: places.indexOf(from ?? stored ?? to ?? waited ?? 'x'),
    value: Number(value ?? by ?? until ?? 0),
    order: order!,
    scope: (own as Scope | undefined) ?? scope,
  };
}

/** The statements of all threads, padded to the same number, as constants of a kernel. */
export function litmusKernel({ threads, apart = 'ranks', scope = defaults[apart] }: Threads): Kernel {
  const length = Math.max(...threads.map((statements) => statements.length));
  const code = threads.flatMap((statements) =>
    Array.from({ length }, (_, i): Operation => {
      const statement = statements[i];
      return statement === undefined ? { ...nothing, scope } : parse(statement, scope);
    }),
  );
  const orders = <T extends string>(kind: number) =>
    code.map((operation) => (operation.kind === kind ? operation.order : 'relaxed') as T);
  return kernel(
    {
      name: 'litmus',
      params: { win: peers(Places), out: pointer('u32') },
      using: {
        THREADS: threads.length,
        LENGTH: length,
        BY_RANK: apart === 'ranks',
        BY_BLOCK: apart === 'blocks',
        KIND: code.map(({ kind }) => kind),
        FREE: code.map(({ guard }) => guard < 0),
        GUARD: code.map(({ guard }) => Math.max(guard, 0)),
        REGISTER: code.map(({ register }) => register),
        PLACE: code.map(({ place }) => place * 4),
        VALUE: code.map(({ value }) => value),
        SCOPE: code.map((operation) => operation.scope),
        LOAD: orders<'weak' | 'relaxed' | 'acquire'>(kinds.load),
        STORE: orders<'weak' | 'relaxed' | 'release'>(kinds.store),
        WAIT: orders<'relaxed' | 'acquire'>(kinds.wait),
        UPDATE: orders<'relaxed' | 'acquire' | 'release' | 'acq_rel'>(kinds.add),
        FENCE: code.map(({ kind, order }) =>
          kind === kinds.fence && order === 'seq_cst' ? 'seq_cst' : 'acq_rel',
        ),
      },
    },
    (g, { win, out }, u) => {
      const thread = u.BY_RANK ? g.rank : u.BY_BLOCK ? g.blockIdx.x : g.warpId;
      const register = g.registers('u32', 4);
      if (g.laneId === 0) {
        for (const t of g.unroll(u.THREADS)) {
          if (thread === t) {
            for (const i of g.unroll(u.LENGTH)) {
              const at = t * u.LENGTH + i;
              if (u.FREE[at]! || register[u.GUARD[at]!]! !== 0) {
                const scope = u.SCOPE[at]!;
                const place = win.at(0).all.at(u.PLACE[at]!);
                if (u.KIND[at] === 1) {
                  register[u.REGISTER[at]!] = g.load(place, { order: u.LOAD[at]!, scope });
                } else if (u.KIND[at] === 2) {
                  g.store(place, u.VALUE[at]!, { order: u.STORE[at]!, scope });
                } else if (u.KIND[at] === 3) {
                  register[u.REGISTER[at]!] = g.atomicAdd(place, u.VALUE[at]!, {
                    order: u.UPDATE[at]!,
                    scope,
                  });
                } else if (u.KIND[at] === 4) {
                  g.fence(scope, { order: u.FENCE[at]! });
                } else if (u.KIND[at] === 5) {
                  g.awaitEpoch(place, u.VALUE[at]!, { order: u.WAIT[at]!, scope, limit: 1000 });
                }
              }
            }
            for (const i of g.unroll(4)) g.store(out.at(t * 4 + i), register[i]!);
            // The first waits for all, so that its host may look at the places.
            const { done } = win.at(0);
            g.atomicAdd(done, 1, { order: 'release', scope: 'sys' });
            if (t === 0) g.awaitEpoch(done, u.THREADS, { order: 'acquire', scope: 'sys', limit: 1000 });
          }
        }
      }
    },
  );
}

const defaults = { ranks: 'sys', blocks: 'gpu', warps: 'cta' } as const;

export function litmusConfiguration(name: string, program: Threads, never: Outcome): CheckConfiguration {
  const { threads, apart = 'ranks' } = program;
  const module = litmusKernel(program).ir();
  const ranks = apart === 'ranks' ? threads.length : 1;
  const wanted = never.split(' ').map((part) => part.split('='));
  /** Which thread has a register, and where its value comes out. */
  const results = threads.flatMap((statements, thread) =>
    registers.flatMap((register, i) => {
      const sets = new RegExp(`(^|\\? )${register} \\+?=`);
      return statements.some((statement) => sets.test(statement))
        ? [{ register, thread, at: 4 * thread + i }]
        : [];
    }),
  );
  return {
    name,
    ranks,
    async run(machine) {
      const all = ranksOn(machine, ranks);
      const windows = await windowsOf(all, Places.bytes, 'places');
      const shape = {
        grid: apart === 'blocks' ? threads.length : 1,
        block: apart === 'warps' ? 32 * threads.length : 1,
      };
      const found: Record<string, number> = {};
      await Promise.all(
        all.map(async (on) => {
          const out = on.device.allocateWindow(16 * threads.length, 'registers');
          await launch(on, module, shape, { win: windows[on.rank]!, out });
          const words = new Uint32Array(await download(on, out));
          for (const { register, thread, at } of results) {
            if (apart !== 'ranks' || thread === on.rank) found[register] = words[at]!;
          }
        }),
      );
      const final = new Uint32Array(
        await download(all[0]!, { address: windows[0]!.bases[0]!, bytes: Places.bytes }),
      );
      places.forEach((place, i) => {
        found[place] = final[4 * i]!;
      });
      if (wanted.every(([what, value]) => found[what!] === Number(value))) throw new WrongResult(never);
    },
  };
}
