/**
 * Loads, stores and atomics as PTX, and why each form is enough.
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
import { HeddleError } from '../../base/errors.js';
import { heldName } from '../arithmetic.js';
import type { Cache, Expr, Order, Scope } from '../expression.js';
import type { MemoryName, Space } from '../types.js';

interface Manner {
  readonly order: Order;
  readonly scope: Scope;
  readonly cache: Cache;
}

interface Accessed extends Manner {
  readonly to: MemoryName;
  /** `cluster`: shared memory of the block whose rank in the cluster is the helper's last parameter. */
  readonly space: Space | 'cluster';
}

export function pointerType(pointer: Expr): { readonly to: MemoryName; readonly space: Space } {
  if (pointer.type.kind !== 'pointer') {
    throw new HeddleError('HEDDLE_PRINT', `memory is accessed through a ${pointer.type.kind}`);
  }
  return pointer.type;
}

/** The PTX type in which a type travels, and its register constraint. */
interface Access {
  readonly ptx: string;
  readonly constraint: string;
  /** The operand inside a variable of the C++ type. */
  readonly member: string;
}

export const accesses: Readonly<Record<Exclude<MemoryName, 'v16'>, Access>> = {
  // PTX widens 8 and 16 bits into a 32-bit register on loads and takes the low bits on stores.
  u8: { ptx: 'u8', constraint: 'r', member: '' },
  u16: { ptx: 'u16', constraint: 'r', member: '' },
  i32: { ptx: 's32', constraint: 'r', member: '' },
  u32: { ptx: 'u32', constraint: 'r', member: '' },
  u64: { ptx: 'u64', constraint: 'l', member: '' },
  f32: { ptx: 'f32', constraint: 'f', member: '' },
  bf16: { ptx: 'b16', constraint: 'h', member: '.bits' },
  f16: { ptx: 'b16', constraint: 'h', member: '.bits' },
  // There are no 8-bit registers: e4m3 is loaded as u8 into 32 bits and cut down.
  e4m3: { ptx: 'u8', constraint: 'r', member: '.bits' },
};

function address(space: Accessed['space']): { constraint: string; text: string } {
  if (space === 'cluster') return { constraint: 'r', text: 'cluster_address(p, rank)' };
  return space === 'global'
    ? { constraint: 'l', text: '__cvta_generic_to_global(p)' }
    : { constraint: 'r', text: 'u32(__cvta_generic_to_shared(p))' };
}

/** `_acquire_sys`, `_stream`, `_shared`: what a helper's name says beyond its operation. */
export function suffix({ order, scope, cache, space }: Accessed): string {
  const ordered = order === 'weak' ? '' : `_${order}_${scope}`;
  return `${ordered}${cache === 'stream' ? '_stream' : ''}${space === 'global' ? '' : `_${space}`}`;
}

/** `.acquire.sys.global.L1::no_allocate`: the same in PTX. Shared memory has no cache to bypass. */
function qualifiers({ order, scope, cache, space }: Accessed): string {
  const ordered = order === 'weak' ? '' : `.${order}.${scope}`;
  return `${ordered}.${space === 'cluster' ? 'shared::cluster' : space}${cache === 'stream' && space === 'global' ? '.L1::no_allocate' : ''}`;
}

/** The helper's parameter that says in which block of the cluster. */
const rankOf = ({ space }: Accessed): string => (space === 'cluster' ? ', u32 rank' : '');

/** The access of an effect through its pointer. */
export const accessed = (
  effect: Pick<Manner, 'order' | 'scope'> & Partial<Manner> & { readonly pointer: Expr },
): Accessed => {
  const { to, space } = pointerType(effect.pointer);
  return { cache: 'keep', ...effect, to, space };
};

export function load(of: Accessed): string {
  const { to, order, space } = of;
  const ptx = `ld${qualifiers(of)}`;
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
          : `  ${heldName(to)} value;
  asm volatile("${ptx}.${accesses[to].ptx} %0, [%1];"
               : "=${accesses[to].constraint}"(value${accesses[to].member})
               : "${constraint}"(${text})
               : "memory");
  return value;`;
  return `DEVICE ${heldName(to)} load${suffix(of)}(const ${to}* p${rankOf(of)}) {\n${body}\n}`;
}

export function store(of: Accessed): string {
  const { to, order, space } = of;
  const ptx = `st${qualifiers(of)}`;
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
  return `DEVICE void store${suffix(of)}(${to}* p, ${heldName(to)} value${rankOf(of)}) {\n${body}\n}`;
}

/** A helper that changes a word atomically and returns the value before; `operands` in PTX's order. */
export function atomic(
  what: 'add' | 'exch' | 'cas' | 'max' | 'min',
  operands: readonly string[],
  of: Accessed,
): string {
  const { to, space, order, scope } = of;
  if (to !== 'i32' && to !== 'u32' && to !== 'u64') {
    throw new HeddleError('HEDDLE_PRINT', `atomics work on i32, u32 and u64, not on ${to}`);
  }
  const { constraint: register, ptx } = accesses[to];
  const isBits = what === 'exch' || what === 'cas';
  const type = !isBits ? ptx : to === 'u64' ? 'b64' : 'b32';
  const { constraint, text } = address(space);
  return `DEVICE ${to} atomic_${what}${suffix(of)}(${to}* p, ${operands.map((operand) => `${to} ${operand}`).join(', ')}) {
  ${to} before;
  asm volatile("atom.${order}.${scope}.${space}.${what}.${type} %0, [%1], ${operands.map((_, i) => `%${i + 2}`).join(', ')};"
               : "=${register}"(before)
               : "${constraint}"(${text}), ${operands.map((operand) => `"${register}"(${operand})`).join(', ')}
               : "memory");
  return before;
}`;
}
