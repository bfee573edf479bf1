/** What each function of `g` becomes. The types that the editor shows are in language.ts; both say the same. */
import * as build from '../build.js';
import type { Builtin, Expr, FenceOrder, Order, PureFunction, Scope } from '../ir.js';
import { byteSize, type Space } from '../types.js';
import type { Call, Options } from './call.js';
import { anyValue, condition, constantText, unify, valueAs } from './coerce.js';
import { expression, type MemoryElement, type Value } from './values.js';

type Lowering = (call: Call) => Value;

/** Members of `g` that are values. */
export const builtins: Readonly<Record<string, Builtin>> = {
  'threadIdx.x': 'threadIdx',
  'blockIdx.x': 'blockIdx',
  'blockDim.x': 'blockDim',
  'gridDim.x': 'gridDim',
  laneId: 'laneId',
  warpId: 'warpId',
  rank: 'rank',
};
/** Members of `g` that only hold others. */
export const groups: readonly string[] = [
  'threadIdx',
  'blockIdx',
  'blockDim',
  'gridDim',
  'warp',
  'bulk',
  'mbarrier',
];
/** Functions that stand in one place only; statements.ts lowers them there. */
export const placed: readonly string[] = ['shared', 'registers', 'unroll'];

const orders = {
  load: ['weak', 'relaxed', 'acquire'],
  store: ['weak', 'relaxed', 'release'],
  update: ['relaxed', 'acquire', 'release', 'acq_rel'],
  wait: ['relaxed', 'acquire'],
  fence: ['acq_rel', 'seq_cst'],
} as const satisfies Record<string, readonly (Order | FenceOrder)[]>;
const scopes: readonly Scope[] = ['cta', 'gpu', 'sys'];
const caches = ['keep', 'stream'] as const;

/** A weak access synchronises with nobody, so it needs no scope; any other must say how far it reaches. */
const scopeOf = (options: Options, order: Order): Scope =>
  options.text('scope', scopes, order === 'weak' ? 'cta' : undefined);

const conversions = ['i32', 'u32', 'u64', 'f32', 'bf16', 'f16', 'e4m3'] as const;

function convertTo(name: (typeof conversions)[number], index = 0): Lowering {
  return (call) => {
    call.expect(index === 0 ? 'value' : 'type, value');
    const { node, value } = call.arg(index);
    const type = build.valueType(name);
    if (name === 'bf16' || name === 'f16' || name === 'e4m3') {
      return expression(build.convert(type, call.as(index, build.f32)));
    }
    if (value.kind === 'literal') {
      if (name === 'f32') {
        // The nearest f32, also for an integer too large for any integer type.
        return expression(build.constant('f32', Math.fround(Number(value.value))));
      }
      if (typeof value.value === 'bigint' || Number.isInteger(value.value)) {
        const bits = BigInt.asUintN(64, BigInt(value.value));
        return expression(build.convert(type, build.constant('u64', bits)));
      }
    }
    const from = anyValue(call.ctx, node, value);
    const source = build.valueName(from.type);
    const storage = source === 'bf16' || source === 'f16' || source === 'e4m3';
    if (source === undefined || source === 'v16' || (storage && name !== 'f32')) {
      const hint = storage ? `; write g.${name}(g.f32(${call.ctx.text(node)}))` : '';
      return call.fail('HK305', `${call.name} cannot convert ${build.showType(from.type)}${hint}`, node);
    }
    return expression(build.convert(type, from));
  };
}

function pure(name: PureFunction, ...types: readonly string[]): Lowering {
  return (call) => {
    call.expect('value');
    const arg = call.oneOf(0, ...types);
    return expression(build.pure(name, arg.type, [arg]));
  };
}

function minMax(name: 'min' | 'max'): Lowering {
  return (call) => {
    call.expect('a, b');
    const [a, b] = unify(call.ctx, call.node, call.arg(0), call.arg(1));
    requireType(call, a, 'i32', 'u32', 'u64', 'f32');
    return expression(build.pure(name, a.type, [a, b]));
  };
}

function requireType(call: Call, value: Expr, ...names: readonly string[]): void {
  if (!names.includes(build.valueName(value.type) ?? '')) {
    call.fail('HK305', `${call.name} works on ${names.join(', ')}, not on ${build.showType(value.type)}`);
  }
}

function shuffle(op: 'shuffle' | 'shuffleXor' | 'shuffleUp' | 'shuffleDown', second: string): Lowering {
  return (call) => {
    call.expect(`value, ${second}`);
    const value = call.oneOf(0, 'i32', 'u32', 'f32');
    return call.effect({ op, value, lane: call.as(1, build.u32) }, value.type, 'shuffled');
  };
}

function vote(op: 'ballot' | 'any' | 'all'): Lowering {
  return (call) => {
    call.expect('test');
    const { node, value } = call.arg(0);
    const result = op === 'ballot' ? build.u32 : build.bool;
    return call.effect(
      { op, value: condition(call.ctx, node, value) },
      result,
      op === 'ballot' ? 'ballot' : op,
    );
  };
}

function atomic(name: 'add' | 'max' | 'or' | 'exchange', ...types: readonly MemoryElement[]): Lowering {
  return (call) => {
    call.expect('pointer, value, options');
    const { expr: pointer, to } = call.pointer(0, ...types);
    const type = build.valueType(to);
    const value = call.as(1, type);
    const options = call.options(2, 'order', 'scope');
    const order = options.text('order', orders.update);
    return call.effect(
      { op: 'atomic', name, pointer, value, order, scope: scopeOf(options, order) },
      type,
      'before',
    );
  };
}

const simple =
  (op: 'barrier' | 'warpBarrier' | 'awaitPrevious' | 'releaseNext' | 'bulkCommit'): Lowering =>
  (call) => {
    call.expect('');
    return call.effect({ op }, build.voidType, '');
  };

const bulkWait =
  (reads: boolean): Lowering =>
  (call) => {
    call.expect('pending');
    return call.effect(
      { op: 'bulkWait', pending: call.constant(0, 'the number of pending groups', 63), reads },
      build.voidType,
      '',
    );
  };

const lanesOf = (name: MemoryElement): number => 16 / byteSize[name];

/** The registers or values that fill a vector. */
function packLanes(call: Call, of: MemoryElement): Expr[] {
  const { node, value } = call.arg(1);
  const count = lanesOf(of);
  const fits = (length: number): void => {
    if (length !== count) {
      call.fail('HK305', `a v16 has ${count} lanes of ${of}, but ${length} are given`, node);
    }
  };
  const inRegisters = build.loadedType(of);
  if (value.kind === 'registers') {
    fits(value.length);
    const type = build.valueType(value.of);
    const converts = value.of === 'f32' && ['bf16', 'f16', 'e4m3'].includes(of);
    if (!converts && !build.sameType(type, inRegisters)) {
      call.fail('HK301', `lanes of ${of} cannot be filled from ${value.of} registers`, node);
    }
    return Array.from({ length: count }, (_, index) => ({
      kind: 'register',
      type,
      array: value.variable,
      index,
    }));
  }
  if (value.kind !== 'list') {
    return call.fail('HK305', `the lanes must be an array of ${count} values, or a register array`, node);
  }
  fits(value.items.length);
  return value.items.map((item) => valueAs(call.ctx, node, item, inRegisters, `for a lane of ${of}`));
}

export const intrinsics: Readonly<Record<string, Lowering>> = {
  i32: convertTo('i32'),
  u32: convertTo('u32'),
  u64: convertTo('u64'),
  f32: convertTo('f32'),
  bf16: convertTo('bf16'),
  f16: convertTo('f16'),
  e4m3: convertTo('e4m3'),
  convert(call) {
    call.expect('type, value');
    const { node, value } = call.arg(0);
    return convertTo(constantText(call.ctx, node, value, 'the type', conversions), 1)(call);
  },
  bits(call) {
    call.expect('type, value');
    const type = call.memoryName(0);
    if (type !== 'i32' && type !== 'u32' && type !== 'f32') {
      return call.fail('HK305', `g.bits makes i32, u32 or f32, not ${type}`, call.arg(0).node);
    }
    return expression(build.bits(type, call.oneOf(1, 'i32', 'u32', 'f32')));
  },

  min: minMax('min'),
  max: minMax('max'),
  abs: pure('abs', 'i32', 'f32'),
  fma(call) {
    call.expect('a, b, c');
    const args = [call.as(0, build.f32), call.as(1, build.f32), call.as(2, build.f32)];
    return expression(build.pure('fma', build.f32, args));
  },
  rcp(call) {
    call.expect('a');
    return expression(build.pure('rcp', build.f32, [call.as(0, build.f32)]));
  },
  popc: pure('popc', 'u32'),
  ffs: pure('ffs', 'u32'),
  clz: pure('clz', 'u32'),
  select(call) {
    call.expect('test, then, otherwise');
    const test = condition(call.ctx, call.arg(0).node, call.arg(0).value);
    const [then, otherwise] = unify(call.ctx, call.node, call.arg(1), call.arg(2));
    return expression(build.select(test, then, otherwise));
  },

  lane(call) {
    call.expect('vector, type, index');
    const vector = call.as(0, build.v16);
    const of = call.memoryName(1);
    if (of === 'v16') return call.fail('HK305', 'a lane is smaller than the vector', call.arg(1).node);
    const index = call.constant(2, 'the lane', lanesOf(of) - 1);
    const lane: Expr = { kind: 'lane', type: build.valueType(of), vector, index };
    return expression(build.convert(build.loadedType(of), lane));
  },
  pack(call) {
    call.expect('type, lanes');
    const of = call.memoryName(0);
    if (of === 'v16') return call.fail('HK305', 'a lane is smaller than the vector', call.arg(0).node);
    return expression({ kind: 'pack', type: build.v16, of, lanes: packLanes(call, of) });
  },

  load(call) {
    call.expect('pointer, options?');
    const { expr: pointer, to } = call.pointer(0);
    const options = call.options(1, 'order', 'scope', 'cache');
    const order = options.text('order', orders.load, 'weak');
    const scope = scopeOf(options, order);
    const cache = options.text('cache', caches, 'keep');
    return call.effect({ op: 'load', pointer, order, scope, cache }, build.loadedType(to), 'loaded');
  },
  store(call) {
    call.expect('pointer, value, options?');
    const { expr: pointer, to } = call.pointer(0);
    const value = call.as(1, build.loadedType(to));
    const options = call.options(2, 'order', 'scope', 'cache');
    const order = options.text('order', orders.store, 'weak');
    const scope = scopeOf(options, order);
    const cache = options.text('cache', caches, 'keep');
    return call.effect({ op: 'store', pointer, value, order, scope, cache }, build.voidType, '');
  },
  prefetch(call) {
    call.expect('pointer');
    const { expr: pointer, space } = call.pointer(0);
    if (space !== 'global')
      return call.fail('HK305', 'g.prefetch needs a pointer into global memory', call.arg(0).node);
    return call.effect({ op: 'prefetch', pointer }, build.voidType, '');
  },
  atomicAdd: atomic('add', 'i32', 'u32', 'u64'),
  atomicMax: atomic('max', 'i32', 'u32', 'u64'),
  atomicOr: atomic('or', 'u32', 'u64'),
  atomicExchange: atomic('exchange', 'i32', 'u32', 'u64'),
  compareExchange(call) {
    call.expect('pointer, compare, value, options');
    const { expr: pointer, to } = call.pointer(0, 'i32', 'u32', 'u64');
    const type = build.valueType(to);
    const compare = call.as(1, type);
    const value = call.as(2, type);
    const options = call.options(3, 'order', 'scope');
    const order = options.text('order', orders.update);
    return call.effect(
      { op: 'compareExchange', pointer, compare, value, order, scope: scopeOf(options, order) },
      type,
      'before',
    );
  },
  fence(call) {
    call.expect('scope');
    const { value } = call.arg(0);
    if (value.kind === 'record') {
      const options = call.options(0, 'order', 'scope');
      const order = options.text('order', orders.fence);
      const scope = options.text('scope', scopes);
      return call.effect({ op: 'fence', order, scope }, build.voidType, '');
    }
    const scope = value.kind === 'string' ? scopes.find((one) => one === value.value) : undefined;
    if (scope === undefined) {
      return call.fail('HK305', `the scope of g.fence must be one of ${scopes.join(', ')}`, call.arg(0).node);
    }
    return call.effect({ op: 'fence', order: 'acq_rel', scope }, build.voidType, '');
  },
  awaitEpoch(call) {
    call.expect('pointer, epoch, options');
    const { expr: pointer } = call.pointer(0, 'u32');
    const epoch = call.as(1, build.u32);
    const options = call.options(2, 'order', 'scope', 'limit');
    const order = options.text('order', orders.wait);
    const scope = options.text('scope', scopes);
    const limit = options.value('limit', build.u32);
    return call.effect({ op: 'awaitEpoch', pointer, epoch, limit, order, scope }, build.bool, 'arrived');
  },
  awaitFilled(call) {
    call.expect('pointer, empty, options');
    const { expr: pointer } = call.pointer(0, 'v16');
    const empty = call.as(1, build.u32);
    const options = call.options(2, 'scope', 'limit');
    const scope = options.text('scope', scopes);
    const limit = options.value('limit', build.u32);
    return call.effect({ op: 'awaitFilled', pointer, empty, limit, scope }, build.v16, 'filled');
  },

  barrier: simple('barrier'),
  'warp.barrier': simple('warpBarrier'),
  'warp.shuffle': shuffle('shuffle', 'lane'),
  'warp.shuffleXor': shuffle('shuffleXor', 'mask'),
  'warp.shuffleUp': shuffle('shuffleUp', 'by'),
  'warp.shuffleDown': shuffle('shuffleDown', 'by'),
  'warp.ballot': vote('ballot'),
  'warp.any': vote('any'),
  'warp.all': vote('all'),
  'warp.match'(call) {
    call.expect('value');
    return call.effect({ op: 'match', value: call.oneOf(0, 'u32', 'i32') }, build.u32, 'matching');
  },
  'warp.elect'(call) {
    call.expect('');
    return call.effect({ op: 'elect' }, build.bool, 'elected');
  },

  clock(call) {
    call.expect('');
    return call.effect({ op: 'clock' }, build.u64, 'now');
  },
  sleep(call) {
    call.expect('nanoseconds');
    return call.effect({ op: 'sleep', nanoseconds: call.as(0, build.u32) }, build.voidType, '');
  },
  awaitPrevious: simple('awaitPrevious'),
  releaseNext: simple('releaseNext'),

  'bulk.load'(call) {
    call.expect('to, from, bytes, mbarrier');
    const to = pointerIn(call, 0, 'shared', 'v16');
    const from = pointerIn(call, 1, 'global', 'v16');
    const bytes = call.as(2, build.u32);
    const barrier = pointerIn(call, 3, 'shared', 'u64');
    return call.effect({ op: 'bulkLoad', to, from, bytes, barrier }, build.voidType, '');
  },
  'bulk.store'(call) {
    call.expect('to, from, bytes');
    const to = pointerIn(call, 0, 'global', 'v16');
    const from = pointerIn(call, 1, 'shared', 'v16');
    return call.effect({ op: 'bulkStore', to, from, bytes: call.as(2, build.u32) }, build.voidType, '');
  },
  'bulk.commit': simple('bulkCommit'),
  'bulk.wait': bulkWait(false),
  'bulk.waitReads': bulkWait(true),
  'mbarrier.init'(call) {
    call.expect('barrier, count');
    const barrier = pointerIn(call, 0, 'shared', 'u64');
    return call.effect({ op: 'mbarrierInit', barrier, count: call.as(1, build.u32) }, build.voidType, '');
  },
  'mbarrier.expect'(call) {
    call.expect('barrier, bytes');
    const barrier = pointerIn(call, 0, 'shared', 'u64');
    return call.effect({ op: 'mbarrierExpect', barrier, bytes: call.as(1, build.u32) }, build.voidType, '');
  },
  'mbarrier.await'(call) {
    call.expect('barrier, parity');
    const barrier = pointerIn(call, 0, 'shared', 'u64');
    return call.effect({ op: 'mbarrierAwait', barrier, parity: call.as(1, build.u32) }, build.voidType, '');
  },
};

/** A pointer into one kind of memory: bulk copies go between shared and global memory, mbarriers lie in shared. */
function pointerIn(call: Call, index: number, wanted: Space, to: MemoryElement): Expr {
  const { expr, space } = call.pointer(index, to);
  if (space === wanted) return expr;
  const { node } = call.arg(index);
  return call.fail('HK305', `argument ${index + 1} of ${call.name} must be in ${wanted} memory`, node);
}
