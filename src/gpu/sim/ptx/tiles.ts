/** Tiles: boxes of tensors (TMA), products of a warp group (wgmma), and the shared memory of other blocks of a cluster. */

import type { PtxOperand } from '../../../lang/ptx/index.js';
import { elementTypes, isElementType } from '../factors.js';
import { mapFieldNames, mapFields, tensorMapBytes } from '../tensor-maps.js';
import { inCluster, mapped, windows } from './addresses.js';
import { type Instruction, meet } from './code.js';
import { placed, scopeOf, spaceOf, spot } from './memory.js';
import { shapeOf } from './sums.js';

export function box(x: Instruction): void {
  const rank = Number(x.among('2d', '3d')?.[0] ?? 0);
  if (rank === 0) x.refuse('only tensors of 2 and 3 dimensions are simulated');
  if (x.has('cta_group::2'))
    x.refuse('boxes that arrive at an mbarrier of either block of a pair are not simulated');
  x.ignore(/^(shared::cluster|shared::cta|global|tile|L2::cache_hint|cta_group::1)$/);
  const isLoad = x.has('mbarrier::complete_tx::bytes');
  const tensor = x.operand(isLoad ? 1 : 0);
  const at = tensor.kind === 'address' ? tensor.coordinates[0] : undefined;
  if (tensor.kind !== 'address' || tensor.base.kind !== 'register' || at?.kind !== 'list')
    x.refuse('it says no place in a tensor');
  if (at.elements.length !== rank) x.refuse(`a place in this tensor is ${rank} numbers`);
  const [low, high] = x.pair(tensor.base);
  const map = `t.tensor(${high}, ${low} + ${tensor.offset})`;
  // The innermost dimension comes first.
  const place = `[${at.elements.map((one) => x.word(one)).reverse()}]`;
  if (!isLoad) {
    if (!x.has('bulk_group')) x.refuse('it says no way in which it completes');
    const from = spot(x, x.operand(1), 'shared');
    x.code.line(`t.bulk.postBox(${map}, ${place}, ${placed(from)}, ${x.site});`);
    return;
  }
  const [to, barrier] = [spot(x, x.operand(0), 'shared'), spot(x, x.operand(2), 'shared')];
  const operands = `${placed(to)}, ${map}, ${place}, ${placed(barrier)}`;
  if (x.has('multicast::cluster'))
    x.code.line(`t.multicastBox(${operands}, ${x.word(x.operand(3))}, ${x.site});`);
  else x.code.line(`t.bulk.loadBox(${operands}, ${x.site});`);
}

/** `tensormap`: changes a field of a tensor map, or copies one to where others read it. */
export function tensormap(x: Instruction): void {
  if (x.has('cp_fenceproxy')) {
    copyMap(x);
    return;
  }
  x.ignore(/^(replace|tile|b1024)$/);
  const field = x.among(...mapFieldNames);
  if (field === null) x.refuse('it names no field that is known');
  const space = spaceOf(x);
  x.types();
  const map = spot(x, x.operand(0), space);
  const counts = mapFields[field].count !== undefined;
  const n = counts ? x.word(x.operand(1)) : '0';
  const [low, high] = x.pair(x.operand(counts ? 2 : 1));
  const access = {
    kind: 'update',
    order: 'weak',
    scope: 'cta',
    bytes: tensorMapBytes,
    site: x.site,
  } as const;
  const change = `replaceInMap(${placed(map)}, '${field}', ${n}, ${low}, ${high});`;
  x.code.accesses.print(access, map, () => x.code.line(change));
}

/** A tensor map that changed in shared memory goes to global memory: the warp copies it as one, and releases it. */
function copyMap(x: Instruction): void {
  x.ignore(/^(global|shared::cta|tensormap::generic|release|sync|aligned)$/);
  const scope = scopeOf(x);
  if (scope === null) x.refuse('it says no scope');
  const [to, from] = [spot(x, x.operand(0), 'global'), spot(x, x.operand(1), 'shared')];
  const together = { key: 'tensormap', orders: true } as const;
  meet(x, together, '-1', []);
  x.code.line('if ((threadIdx & 31) === 0) {');
  const form = { order: 'weak', scope: 'cta', bytes: tensorMapBytes, site: x.site } as const;
  const words = tensorMapBytes / 4;
  x.code.accesses.print({ kind: 'read', ...form }, from, () => {});
  x.code.accesses.print({ kind: 'write', ...form }, to, () =>
    x.code.line(
      `${to.buffer}.i32.set(${from.buffer}.i32.subarray(${from.offset} >> 2, (${from.offset} >> 2) + ${words}), ${to.offset} >> 2);`,
    ),
  );
  x.code.line('}');
  meet(x, together, '-1', []);
  if (x.checked) x.code.line(`t.fence('release', '${scope}');`);
}

export function wgmma(x: Instruction): void {
  x.ignore(/^(sync|aligned)$/);
  const checks = (call: string): void => {
    if (x.checked) x.code.line(`t.products.${call};`);
  };
  if (x.has('fence')) checks('fence()');
  else if (x.has('commit_group')) checks('commit()');
  else if (x.has('wait_group')) checks(`wait(${x.word(x.operand(0))})`);
  else if (x.has('mma_async')) multiply(x);
  else x.refuse('that operation of a warp group is not known');
}

/** The sums go to an array and back: a compiler may move them from register to register at any time. */
function multiply(x: Instruction): void {
  const { shape, columns } = shapeOf(x.of);
  x.ignore(/^(m64n\d+k\d+|e4m3|e5m2|tf32)$/);
  x.types();
  const [into, type, other] = x.of.parts.slice(-3);
  if (!isElementType(type) || type !== other)
    x.refuse('only products of bf16, f16, tf32, e4m3, e5m2, s8 and u8 with their own are simulated');
  const { bytes, isInteger = false } = elementTypes[type];
  if (into !== (isInteger ? 's32' : 'f32')) x.refuse('sums are of f32, or of s32 where integers are added');
  const [sums, a, b, adds, ...how] = x.operands;
  if (sums?.kind !== 'list' || sums.elements.length !== columns / 2)
    x.refuse(`the sums of ${columns} columns are ${columns / 2} registers`);
  if (a === undefined || b === undefined || adds === undefined) x.refuse('a factor is missing');
  const numbers = how.map((one) =>
    one.kind === 'integer' ? Number(one.value) : x.refuse('numbers must stand there'),
  );
  const [left = 1, right = 1] = numbers;
  // Of a factor in registers nothing says whether it is turned.
  const [turnedA, turnedB] = a.kind === 'list' ? [0, numbers[2]] : numbers.slice(2);
  if (bytes !== 2 && (turnedA || turnedB)) x.refuse('factors of other than 16 bits are not turned');
  const array = x.simple(x.code.sumsOf(x.of), 'q');
  const held = isInteger ? x.simple(`new Int32Array(${array}.buffer)`, 'q') : array;
  sums.elements.forEach((sum, i) => {
    x.code.line(`${held}[${i}] = ${isInteger ? x.word(sum) : x.single(sum)};`);
  });
  const factor = (of: PtxOperand, turned: number | undefined): string =>
    of.kind === 'list'
      ? `Int32Array.of(${of.elements.map((one) => x.word(one))})`
      : `factorOf(shared0, ${x.pair(of)}, ${turned === 1})`;
  if (a.kind === 'list' && a.elements.length !== 4) x.refuse('a factor in registers is four of them');
  const form = `columns: ${columns}, type: '${type}', bytes: 32, sign: ${left * right}, atOnce: true, site: ${x.site}`;
  x.code.line(
    `t.bring({ sums: ${array}, a: ${factor(a, turnedA)}, b: ${factor(b, turnedB)}, begin: !(${x.predicate(adds)}), ${form} });`,
  );
  meet(x, { key: `wgmma ${shape}`, multiplies: true }, '-1', []);
  sums.elements.forEach((sum, i) => {
    if (isInteger) x.setWord(sum, `${held}[${i}]`);
    else x.setSingle(sum, `${held}[${i}]`);
  });
}

/** A warp group takes registers or gives them away. */
export function setmaxnreg(x: Instruction): void {
  x.ignore(/^(sync|aligned)$/);
  x.types();
  const takes = x.among('inc', 'dec') === 'inc';
  if (x.checked) x.code.line(`t.keepRegisters(${x.word(x.operand(0))}, ${takes}, ${x.site});`);
}

/** `mapa`: names a place of shared memory as it lies in another block of the cluster. */
export function mapa(x: Instruction): void {
  const isShared = x.has('shared::cluster');
  const type = x.type();
  const [low, high] = x.pair(x.operand(1));
  const rank = x.word(x.operand(2));
  // Without a cluster a block is all there is, and its addresses are its own.
  const isAlone = x.code.kernel.cluster === 1;
  const address = isShared && !isAlone ? mapped(low, rank) : low;
  if (type === 'u32') x.setWord(x.operand(0), address);
  else x.setPair(x.operand(0), address, isShared || isAlone ? high : `${windows.cluster} + ${rank}`);
}

/** The block of the cluster to which an address belongs. */
export function getctarank(x: Instruction): void {
  const isShared = x.has('shared::cluster');
  x.type();
  const [low, high] = x.pair(x.operand(1));
  const rank = isShared ? `t.rankAt(${low})` : `t.rankAt(${inCluster(low, high)})`;
  x.setWord(x.operand(0), x.code.kernel.cluster === 1 ? '0' : rank);
}
