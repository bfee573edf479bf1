/**
 * Loads, stores, atomics, fences and waits as PTX, and why each form is enough.
 *
 * The language's orders and scopes are PTX's own, so an effect becomes the instruction of the same name:
 * - `weak` is `ld.weak`/`st.weak`, the default of `ld` and `st`. It may be torn, cached and reordered, which is
 *   all that an access without a race needs. 16 bytes go as `.v4.u32`, one instruction.
 * - `relaxed`, `acquire`, `release` at `cta`, `gpu`, `sys` are morally strong operations of the PTX memory model. A
 *   release orders all earlier accesses of its thread, and cumulatively what that thread has acquired, before the
 *   store; an acquire orders all later ones behind the load. ptxas adds the MEMBAR or cache invalidation (CCTL.IVALL)
 *   which the scope needs. `sys` reaches peers over NVLink, because windows are mapped as ordinary global memory.
 * - 16 bytes with an order are `.b128`, not `.v4`: PTX treats a vector access as several scalar accesses in no
 *   particular order, whereas a `.b128` is one memory operation, hence single-copy atomic. Both become
 *   LDG.E.128/STG.E.128, but only the scalar form promises it. Packets (data that carry their flag) rest on this.
 * - `atom` carries order and scope; where nobody reads the result, ptxas turns it into a reduction by itself.
 *
 * Every access is `asm volatile` with a "memory" clobber: the C++ compiler neither drops, merges nor moves it over
 * another access, so the order in the PTX is the order in the source. ptxas knows the instructions' meaning and may
 * still overlap weak accesses that cannot alias, which is where the speed comes from.
 *
 * Addresses are passed to `.global` forms after cvta, which costs nothing (generic and global addresses coincide);
 * without the state space the hardware would have to look at each address to find its window.
 *
 * Weak accesses of shared memory are plain C++: the compiler sees the array and its space, and every barrier and
 * fence here is a compiler barrier too.
 */
import { HeddleError } from '../../errors/index.js';
import type { Effect, Order, Scope } from '../ir.js';
import type { Space, ValueName } from '../types.js';
import type { Prelude } from './prelude.js';

type Accessible = Exclude<ValueName, 'bool'>;
type EffectOf<Op extends Effect['op']> = Extract<Effect, { op: Op }>;

/** How one type travels: the PTX type, its register constraint, and the C++ type in registers. */
interface Access {
  readonly ptx: string;
  readonly constraint: string;
  readonly register: string;
  /** The operand inside a variable of that C++ type. */
  readonly member: string;
}

const accesses: Readonly<Record<Exclude<Accessible, 'v16'>, Access>> = {
  // PTX widens 8 and 16 bits into a 32-bit register on loads and takes the low bits on stores.
  u8: { ptx: 'u8', constraint: 'r', register: 'u32', member: '' },
  u16: { ptx: 'u16', constraint: 'r', register: 'u32', member: '' },
  i32: { ptx: 's32', constraint: 'r', register: 'i32', member: '' },
  u32: { ptx: 'u32', constraint: 'r', register: 'u32', member: '' },
  u64: { ptx: 'u64', constraint: 'l', register: 'u64', member: '' },
  f32: { ptx: 'f32', constraint: 'f', register: 'f32', member: '' },
  bf16: { ptx: 'b16', constraint: 'h', register: 'bf16', member: '.bits' },
  f16: { ptx: 'b16', constraint: 'h', register: 'f16', member: '.bits' },
  // There are no 8-bit registers: e4m3 is loaded as u8 into 32 bits and cut down.
  e4m3: { ptx: 'u8', constraint: 'r', register: 'e4m3', member: '.bits' },
};

/** C++ type of a value of this type in memory's registers: u8 and u16 widen to u32. */
export function registerType(name: ValueName): string {
  return name === 'bool' || name === 'v16' ? name : accesses[name].register;
}

function address(space: Space): { constraint: string; text: string } {
  return space === 'global'
    ? { constraint: 'l', text: '__cvta_generic_to_global(p)' }
    : { constraint: 'r', text: 'u32(__cvta_generic_to_shared(p))' };
}

/** `_acquire_sys`, `_stream`, `_shared`: what a helper's name says beyond its operation. */
function suffix(order: Order, scope: Scope, cache: 'keep' | 'stream', space: Space): string {
  const ordered = order === 'weak' ? '' : `_${order}_${scope}`;
  return `${ordered}${cache === 'stream' ? '_stream' : ''}${space === 'shared' ? '_shared' : ''}`;
}

/** `.acquire.sys.global.L1::no_allocate`: the same in PTX. Shared memory has no cache to bypass. */
function qualifiers(order: Order, scope: Scope, cache: 'keep' | 'stream', space: Space): string {
  const ordered = order === 'weak' ? '' : `.${order}.${scope}`;
  return `${ordered}.${space}${cache === 'stream' && space === 'global' ? '.L1::no_allocate' : ''}`;
}

function typeNeeds(to: Accessible): string[] {
  return to === 'u8' || to === 'u16' || to === 'bf16' || to === 'f16' || to === 'e4m3' || to === 'v16'
    ? [to]
    : [];
}

/** The name of a helper that loads what `to` names; adds it to the prelude. */
export function loadHelper(
  prelude: Prelude,
  to: Accessible,
  space: Space,
  { order, scope, cache }: Pick<EffectOf<'load'>, 'order' | 'scope' | 'cache'>,
): string {
  const name = `load${suffix(order, scope, cache, space)}`;
  const ptx = `ld${qualifiers(order, scope, cache, space)}`;
  const { constraint, text } = address(space);
  const body =
    to === 'v16' && order === 'weak'
      ? `  v16 value;
  asm volatile("${ptx}.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "${constraint}"(${text})
               : "memory");
  return value;`
      : to === 'v16'
        ? `  u64 low, high;
  asm volatile("{ .reg .b128 value; ${ptx}.b128 value, [%2]; mov.b128 {%0, %1}, value; }"
               : "=l"(low), "=l"(high)
               : "${constraint}"(${text})
               : "memory");
  return v16{u32(low), u32(low >> 32), u32(high), u32(high >> 32)};`
        : to === 'e4m3'
          ? `  u32 value;
  asm volatile("${ptx}.u8 %0, [%1];" : "=r"(value) : "${constraint}"(${text}) : "memory");
  return e4m3{u8(value)};`
          : `  ${accesses[to].register} value;
  asm volatile("${ptx}.${accesses[to].ptx} %0, [%1];"
               : "=${accesses[to].constraint}"(value${accesses[to].member})
               : "${constraint}"(${text})
               : "memory");
  return value;`;
  return prelude.add(`${name} ${to}`, name, {
    text: `DEVICE ${registerType(to)} ${name}(const ${to}* p) {\n${body}\n}`,
    needs: typeNeeds(to),
  });
}

/** The name of a helper that stores what `to` names; adds it to the prelude. */
export function storeHelper(
  prelude: Prelude,
  to: Accessible,
  space: Space,
  { order, scope, cache }: Pick<EffectOf<'store'>, 'order' | 'scope' | 'cache'>,
): string {
  const name = `store${suffix(order, scope, cache, space)}`;
  const ptx = `st${qualifiers(order, scope, cache, space)}`;
  const { constraint, text } = address(space);
  const body =
    to === 'v16' && order === 'weak'
      ? `  asm volatile("${ptx}.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "${constraint}"(${text}), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");`
      : to === 'v16'
        ? `  const u64 low = value.x | u64(value.y) << 32, high = value.z | u64(value.w) << 32;
  asm volatile("{ .reg .b128 value; mov.b128 value, {%1, %2}; ${ptx}.b128 [%0], value; }"
               :
               : "${constraint}"(${text}), "l"(low), "l"(high)
               : "memory");`
        : `  asm volatile("${ptx}.${accesses[to].ptx} [%0], %1;"
               :
               : "${constraint}"(${text}), "${accesses[to].constraint}"(${to === 'e4m3' ? 'u32(value.bits)' : `value${accesses[to].member}`})
               : "memory");`;
  return prelude.add(`${name} ${to}`, name, {
    text: `DEVICE void ${name}(${to}* p, ${registerType(to)} value) {\n${body}\n}`,
    needs: typeNeeds(to),
  });
}

/** Weak accesses for the host's compiler: memory there is ordinary memory. */
export function hostLoadHelper(prelude: Prelude, to: Accessible): string {
  return prelude.add(`load ${to}`, 'load', {
    text: `DEVICE ${registerType(to)} load(const ${to}* p) { return *p; }`,
    needs: typeNeeds(to),
  });
}

export function hostStoreHelper(prelude: Prelude, to: Accessible): string {
  const value = to === 'u8' || to === 'u16' ? `${to}(value)` : 'value';
  return prelude.add(`store ${to}`, 'store', {
    text: `DEVICE void store(${to}* p, ${registerType(to)} value) { *p = ${value}; }`,
    needs: typeNeeds(to),
  });
}

type AtomicName = EffectOf<'atomic'>['name'] | 'compareExchange';

const atomicPtx: Readonly<Record<AtomicName, string>> = {
  add: 'add',
  max: 'max',
  or: 'or',
  exchange: 'exch',
  compareExchange: 'cas',
};

/** The name of a helper for one atomic operation; adds it to the prelude. */
export function atomicHelper(
  prelude: Prelude,
  operation: AtomicName,
  to: Accessible,
  space: Space,
  { order, scope }: Pick<EffectOf<'atomic'>, 'order' | 'scope'>,
): string {
  if (to !== 'i32' && to !== 'u32' && to !== 'u64') {
    throw new HeddleError('HEDDLE_PRINT', `atomics work on i32, u32 and u64, not on ${to}`);
  }
  const spoken = operation === 'compareExchange' ? 'compare_exchange' : `atomic_${operation}`;
  const name = `${spoken}${suffix(order, scope, 'keep', space)}`;
  const { constraint: register } = accesses[to];
  // Bitwise operations and exchanges know widths only.
  const typed = operation === 'add' || operation === 'max' ? accesses[to].ptx : to === 'u64' ? 'b64' : 'b32';
  const ptx = `atom.${order}.${scope}.${space}.${atomicPtx[operation]}.${typed}`;
  const { constraint, text } = address(space);
  const compare = operation === 'compareExchange';
  return prelude.add(`${name} ${to}`, name, {
    text: `DEVICE ${to} ${name}(${to}* p, ${compare ? `${to} compare, ` : ''}${to} value) {
  ${to} before;
  asm volatile("${ptx} %0, [%1], ${compare ? '%2, %3' : '%2'};"
               : "=${register}"(before)
               : "${constraint}"(${text}), ${compare ? `"${register}"(compare), ` : ''}"${register}"(value)
               : "memory");
  return before;
}`,
  });
}

/**
 * The name of a helper that polls a flag. Every poll is a load of the given order, so a wait that ends has the
 * ordering of the load that saw the flag. Short waits never read the clock: the first look comes after 256 polls,
 * and starts the limit. (It made no difference that could be measured.) A limit of 0 polls exactly once.
 */
export function awaitEpochHelper(
  prelude: Prelude,
  space: Space,
  { order, scope }: Pick<EffectOf<'awaitEpoch'>, 'order' | 'scope'>,
): string {
  const load = loadHelper(prelude, 'u32', space, { order, scope, cache: 'keep' });
  const name = `await_epoch${suffix(order, scope, 'keep', space)}`;
  return prelude.add(name, name, {
    text: `DEVICE bool ${name}(const u32* p, u32 epoch, u32 limit_us) {
  u64 start = 0u;
  for (u32 polls = 1u;; ++polls) {
    if (i32(${load}(p) - epoch) >= 0) return true;
    if (limit_us == 0u) return false;
    if (polls % 256u == 0u && past_limit(start, limit_us)) return false;
  }
}`,
    needs: ['past_limit'],
  });
}

/** The name of a helper that polls 16 bytes, loaded as one, until their last four differ from what 'empty' looks like. */
export function awaitFilledHelper(prelude: Prelude, space: Space, scope: Scope): string {
  const load = loadHelper(prelude, 'v16', space, { order: 'relaxed', scope, cache: 'keep' });
  const name = `await_filled${suffix('relaxed', scope, 'keep', space)}`;
  return prelude.add(name, name, {
    text: `DEVICE v16 ${name}(const v16* p, u32 empty, u32 limit_us) {
  u64 start = 0u;
  for (u32 polls = 1u;; ++polls) {
    const v16 value = ${load}(p);
    if (value.w != empty || limit_us == 0u) return value;
    if (polls % 256u == 0u && past_limit(start, limit_us)) return value;
  }
}`,
    needs: ['past_limit'],
  });
}
