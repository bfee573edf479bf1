/** Hand-made kernels that together meet every effect of the IR in every form that the printer tells apart. */
import type { Effect, Expr, IrModule, Stmt, Variable } from '../../../src/lang/ir.js';
import type { IrType, Space, ValueName } from '../../../src/lang/types.js';
import * as ir from './ir-builder.js';
import { reverseTwice } from './large-shared.js';

const memoryNames = ['u8', 'u16', 'i32', 'u32', 'u64', 'f32', 'bf16', 'f16', 'e4m3', 'v16'] as const;
const scopes = ['cta', 'gpu', 'sys'] as const;
const x = ir.builtin('threadIdx');

function v(name: string, type: ValueName, mutable = false): Variable {
  return ir.variable(name, ir.value(type), mutable);
}

/** Loads and stores of every type, order, scope, hint and space. */
function accesses(name: (typeof memoryNames)[number]): IrModule {
  const from = ir.param('from', ir.pointer(name));
  const to = ir.param('to', ir.pointer(name));
  const tile = ir.shared('tile', name, 2048);
  const at = (base: Variable, index: number): Expr => ir.offset(ir.offset(ir.read(base), ir.u32(index)), x);
  const spaces: readonly [Space, Variable, Variable][] = [
    ['global', from, to],
    ['shared', tile.variable, tile.variable],
  ];
  const body: Stmt[] = [];
  for (const [space, source, target] of spaces) {
    let next = 0;
    for (const order of ['weak', 'relaxed', 'ordered'] as const) {
      for (const scope of order === 'weak' ? (['gpu'] as const) : scopes) {
        for (const cache of space === 'global' ? (['keep', 'stream'] as const) : (['keep'] as const)) {
          const value = v('value', name);
          const index = next++ * 256;
          body.push(
            ir.effect(
              ir.load(at(source, index), { order: order === 'ordered' ? 'acquire' : order, scope, cache }),
              value,
            ),
            ir.effect(
              ir.store(at(target, index), ir.read(value), {
                order: order === 'ordered' ? 'release' : order,
                scope,
                cache,
              }),
            ),
          );
        }
      }
    }
  }
  return ir.module(`accesses_${name}`, [from, to], body, { shared: [tile] });
}

function atomics(name: 'i32' | 'u32' | 'u64'): IrModule {
  const counters = ir.param('counters', ir.pointer(name));
  const tile = ir.shared('tile', name, 32);
  const value = ir.convert(name, x);
  const sum = v('sum', name, true);
  const body: Stmt[] = [ir.define(sum, ir.constant(name, name === 'u64' ? 0n : 0))];
  for (const base of [counters, tile.variable]) {
    for (const order of ['relaxed', 'acquire', 'release', 'acq_rel'] as const) {
      for (const scope of scopes) {
        const pointer = ir.offset(ir.read(base), ir.u32(1));
        const before = v('before', name);
        const expected = ir.read(sum);
        const all: readonly Effect[] = [
          { op: 'atomicAdd', pointer, value, order, scope },
          { op: 'atomicExchange', pointer, value, order, scope },
          { op: 'atomicCas', pointer, expected, value, order, scope },
        ];
        for (const effect of all) {
          body.push(ir.effect(effect, before), ir.assign(sum, ir.binary('+', ir.read(sum), ir.read(before))));
          // Nobody reads this one.
          body.push(ir.effect(effect));
        }
      }
    }
  }
  body.push(ir.effect(ir.store(ir.read(counters), ir.read(sum))));
  return ir.module(`atomics_${name}`, [counters], body, { shared: [tile] });
}

/** Flags, packets, fences, clocks, programmatic launch. */
function waits(): IrModule {
  const flags = ir.param('flags', ir.pointer('u32'));
  const packets = ir.param('packets', ir.pointer('v16'));
  const output = ir.param('output', ir.pointer('v16'));
  const epoch = ir.param('epoch', ir.value('u32'));
  const limit = ir.param('limit', ir.value('u32'));
  const body: Stmt[] = [
    ir.effect({ op: 'prefetch', pointer: ir.offset(ir.read(packets), x) }),
    ir.effect({ op: 'awaitPrevious' }),
  ];
  const common = { epoch: ir.read(epoch), limit: ir.read(limit) };
  const wait = { op: 'awaitEpoch', pointer: ir.offset(ir.read(flags), x), ...common } as const;
  for (const scope of scopes) {
    const reached = v('reached', 'bool');
    const packet = v('packet', 'v16');
    const order = scope === 'sys' ? 'acquire' : 'relaxed';
    body.push(
      ir.effect({ ...wait, order, scope, until: '>=', mask: ir.u32(0xffff_ffff) }, reached),
      ir.effect({ ...wait, order, scope, until: '==', mask: common.epoch }),
      ir.effect({ ...wait, order, scope, until: '!=', mask: ir.u32(0xff) }),
      ir.when(ir.unary('!', ir.read(reached)), [ir.end]),
      ir.effect({ op: 'fence', order: 'acq_rel', scope }),
      ir.effect({ op: 'fence', order: 'seq_cst', scope }),
      ir.effect(
        {
          op: 'awaitFilled',
          pointer: ir.offset(ir.read(packets), x),
          empty: ir.u32(0),
          limit: common.limit,
          scope,
        },
        packet,
      ),
      ir.effect(ir.store(ir.offset(ir.read(output), x), ir.read(packet), { order: 'relaxed', scope: 'sys' })),
    );
  }
  const start = v('start', 'u64');
  body.push(
    ir.effect({ op: 'clock' }, start),
    ir.effect({ op: 'sleep', nanoseconds: ir.u32(200) }),
    ir.effect({ op: 'releaseNext' }),
    ir.effect(ir.store(ir.view('u64', ir.read(output)), ir.read(start))),
  );
  return ir.module('waits', [flags, packets, output, epoch, limit], body);
}

function warps(): IrModule {
  const output = ir.param('output', ir.pointer('u32'));
  const body: Stmt[] = [];
  const sum = v('sum', 'u32', true);
  const add = (value: Expr): Stmt => ir.assign(sum, ir.binary('+', ir.read(sum), value));
  body.push(ir.define(sum, ir.builtin('laneId')));
  for (const op of ['warp.shuffle', 'warp.shuffleXor', 'warp.shuffleUp'] as const) {
    for (const type of ['u32', 'i32', 'f32'] as const) {
      const other = v('other', type);
      const value = type === 'u32' ? ir.read(sum) : ir.convert(type, ir.read(sum));
      body.push(
        ir.effect({ op, value, lane: ir.builtin('warpId') }, other),
        add(ir.convert('u32', ir.read(other))),
      );
    }
  }
  const odd = ir.binary('==', ir.binary('%', ir.read(sum), ir.u32(2)), ir.u32(1));
  const any = v('any', 'bool');
  body.push(ir.effect({ op: 'warp.any', test: odd }, any), ir.when(ir.read(any), [add(ir.u32(3))]));
  body.push(ir.effect({ op: 'warp.any', test: odd }));
  const mask = v('mask', 'u32');
  body.push(ir.effect({ op: 'warp.ballot', test: odd }, mask), add(ir.pure('popc', ir.read(mask))));
  const same = v('same', 'u32');
  body.push(ir.effect({ op: 'warp.match', value: ir.read(sum) }, same), add(ir.pure('ffs', ir.read(same))));
  body.push(ir.effect({ op: 'warp.barrier' }));
  const leader = ir.binary('==', ir.builtin('laneId'), ir.u32(0));
  body.push(
    ir.when(leader, [ir.effect(ir.store(ir.offset(ir.read(output), ir.builtin('warpId')), ir.read(sum)))]),
  );
  return ir.module('warps', [output], body);
}

/** A tile through shared memory by the copy engine: in, changed by all threads, out. */
function bulk(): IrModule {
  const from = ir.param('from', ir.pointer('v16'));
  const to = ir.param('to', ir.pointer('v16'));
  const tile = ir.shared('tile', 'v16', 256);
  const full = ir.shared('full', 'u64', 1);
  const first = ir.binary('==', x, ir.u32(0));
  const base = ir.offset(ir.read(from), ir.binary('*', ir.builtin('blockIdx'), ir.u32(256)));
  const bytes = ir.u32(4096);
  const row = v('row', 'v16');
  const mine = ir.offset(ir.read(tile.variable), x);
  const barrier = ir.read(full.variable);
  const over = v('over', 'bool');
  return ir.module(
    'bulk',
    [from, to],
    [
      ir.when(first, [ir.effect({ op: 'mbarrier.init', barrier, count: ir.u32(1) })]),
      ir.effect({ op: 'barrier' }),
      ir.when(first, [
        ir.effect({ op: 'mbarrier.expect', barrier, bytes }),
        ir.effect({ op: 'bulk.load', to: ir.read(tile.variable), from: base, bytes, barrier }),
      ]),
      ir.effect({ op: 'mbarrier.await', barrier, parity: ir.u32(0), limit: ir.u32(0xffff_ffff) }),
      ir.effect({ op: 'mbarrier.await', barrier, parity: ir.u32(0), limit: ir.u32(5) }, over),
      ir.when(ir.unary('!', ir.read(over)), [ir.effect({ op: 'mbarrier.arrive', barrier })]),
      ir.effect({ op: 'group.barrier', id: ir.u32(1), threads: ir.u32(64) }),
      ir.effect(ir.load(mine), row),
      ir.effect(
        ir.store(
          mine,
          ir.pack(
            'f32',
            [0, 1, 2, 3].map((i) => ir.unary('-', ir.lane('f32', ir.read(row), i))),
          ),
        ),
      ),
      ir.effect({ op: 'barrier' }),
      ir.when(first, [
        ir.effect({ op: 'proxyFence', space: 'shared' }),
        ir.effect({ op: 'proxyFence', space: 'global' }),
        ir.effect({ op: 'bulk.store', to: ir.read(to), from: ir.read(tile.variable), bytes }),
        ir.effect({ op: 'bulk.commit' }),
        ir.effect({ op: 'bulk.waitReads', pending: 1 }),
        ir.effect({ op: 'bulk.wait', pending: 0 }),
      ]),
    ],
    { shared: [tile, full] },
  );
}

/** Rows through shared memory by asynchronous loads, and a product of their matrices. */
function matrices(): IrModule {
  const from = ir.param('from', ir.pointer('v16'));
  const to = ir.param('to', ir.pointer('v16'));
  const tile = ir.shared('tile', 'v16', 256);
  const row = ir.offset(ir.read(tile.variable), x);
  const [a, product] = [v('a', 'v16'), v('product', 'v16')];
  return ir.module(
    'matrices',
    [from, to],
    [
      ir.effect({ op: 'async.load', to: row, from: ir.offset(ir.read(from), x) }),
      ir.effect({ op: 'async.commit' }),
      ir.effect({ op: 'async.wait', pending: 1 }),
      ir.effect({ op: 'async.wait', pending: 0 }),
      ir.effect({ op: 'barrier' }),
      ir.effect({ op: 'warp.ldmatrix', row }, a),
      ...[0, 1].map((half) =>
        ir.effect(
          { op: 'warp.mma', a: ir.read(a), b: ir.read(a), half, sum: ir.read(a) },
          half ? product : v('first', 'v16'),
        ),
      ),
      ir.effect(ir.store(ir.offset(ir.read(to), x), ir.read(product))),
    ],
    { shared: [tile] },
  );
}

/** Peers' windows, also from an inlined device function. */
function windows(): IrModule {
  const layout = ir.layout('Window', [
    { name: 'arrived', type: 'u32', length: 72 },
    { name: 'rows', type: 'v16', length: 1024 },
  ]);
  const type: IrType = { kind: 'peers', layout };
  const mine: Variable[] = [
    ir.param('win', type),
    ir.param('epoch', ir.value('u32')),
    ir.param('rows', ir.pointer('v16')),
  ];
  const [window, now, rows] = mine as [Variable, Variable, Variable];
  const row = v('row', 'v16');
  return ir.module(
    'windows',
    mine,
    [
      ir.count(ir.u32(8), (peer) => [
        ir.effect(ir.load(ir.offset(ir.read(rows), x), { cache: 'stream' }), row),
        ir.effect(ir.store(ir.offset(ir.field(window, peer, 'rows'), x), ir.read(row), { cache: 'stream' })),
      ]),
      ir.effect({ op: 'barrier' }),
      ir.when(ir.binary('<', x, ir.u32(8)), [
        ir.call('publish', () => [
          ir.effect(
            ir.store(ir.offset(ir.field(window, x, 'arrived'), ir.builtin('rank')), ir.read(now), {
              order: 'release',
              scope: 'sys',
            }),
          ),
        ]),
      ]),
    ],
    { layouts: [layout] },
  );
}

/** Sums rows of each storage type in f32 registers and packs them again. */
function reduction(of: 'bf16' | 'f16' | 'e4m3'): IrModule {
  const lanes = of === 'e4m3' ? 16 : 8;
  const rows = ir.param('rows', ir.pointer('v16'));
  const out = ir.param('out', ir.pointer('v16'));
  const count = ir.param('count', ir.value('u32'));
  const sum = ir.variable('sum', { kind: 'registers', of: 'f32', length: lanes });
  const each = Array.from({ length: lanes }, (_, i) => i);
  const row = v('row', 'v16');
  return ir.module(
    `reduction_${of}`,
    [rows, out, count],
    [
      ir.registers(sum, ir.f32(0)),
      ir.count(ir.read(count), (i) => [
        ir.effect(
          ir.load(ir.offset(ir.offset(ir.read(rows), ir.binary('*', i, ir.builtin('blockDim'))), x), {
            cache: 'stream',
          }),
          row,
        ),
        ...each.map((k) =>
          ir.assignRegister(
            sum,
            k,
            ir.binary('+', ir.register(sum, k), ir.convert('f32', ir.lane(of, ir.read(row), k))),
          ),
        ),
      ]),
      ir.effect(
        ir.store(
          ir.offset(ir.read(out), x),
          ir.pack(
            of,
            each.map((k) => ir.register(sum, k)),
          ),
        ),
      ),
    ],
  );
}

/** What folding and unrolling leave behind: unread variables, unreachable statements, empty branches. */
function leftovers(): IrModule {
  const out = ir.param('out', ir.pointer('u32'));
  const n = ir.param('n', ir.value('u32'));
  const unread = v('unread', 'u32');
  const chained = v('chained', 'u32');
  const counted = v('counted', 'u32', true);
  const loaded = v('loaded', 'u32');
  const scratch = ir.shared('scratch', 'u32', 32);
  const sum = v('sum', 'u32', true);
  return ir.module(
    'leftovers',
    [out, n],
    [
      ir.define(unread, ir.read(n)),
      ir.define(chained, ir.read(unread)),
      ir.define(counted, ir.u32(0)),
      ir.assign(counted, ir.binary('+', ir.read(counted), ir.u32(1))),
      ir.effect(ir.load(ir.read(out)), loaded),
      ir.effect(ir.load(ir.offset(ir.read(scratch.variable), x)), v('nothing', 'u32')),
      ir.when(ir.binary('<', ir.read(n), ir.u32(0)), [ir.define(v('x', 'u32'), ir.u32(1))]),
      ir.when(ir.binary('>', ir.read(n), ir.u32(9)), [], [ir.effect(ir.store(ir.read(out), ir.u32(2)))]),
      ir.define(sum, ir.u32(0)),
      ir.whileLoop(ir.constant('bool', true), [
        ir.assign(sum, ir.binary('+', ir.read(sum), ir.u32(1))),
        ir.when(ir.binary('>=', ir.read(sum), ir.read(n)), [ir.stop('break'), ir.assign(sum, ir.u32(0))]),
        ir.stop('continue'),
        ir.assign(sum, ir.u32(0)),
      ]),
      ir.effect(ir.store(ir.read(out), ir.read(sum))),
      ir.end,
      ir.effect(ir.store(ir.read(out), ir.u32(3))),
    ],
    { shared: [scratch] },
  );
}

export const gallery: readonly IrModule[] = [
  ...memoryNames.map(accesses),
  ...(['i32', 'u32', 'u64'] as const).map(atomics),
  waits(),
  warps(),
  bulk(),
  matrices(),
  windows(),
  ...(['bf16', 'f16', 'e4m3'] as const).map(reduction),
  leftovers(),
  reverseTwice.ir(),
];
