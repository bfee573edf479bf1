/** Tiles: boxes of tensors (TMA), products of a warp group (wgmma), and the shared memory of other blocks of a cluster. */

import type { SimBuffer } from '../memory.js';
import type { Factors } from '../products.js';
import { inCluster, mapped, windows } from './addresses.js';
import { type Instruction, meet } from './code.js';
import { placed, spot } from './memory.js';
import { shapeOf } from './sums.js';

export function box(x: Instruction): void {
  const rank = Number(x.among('2d', '3d')?.[0] ?? 0);
  if (rank === 0) x.refuse('only tensors of 2 and 3 dimensions are simulated');
  x.ignore(/^(shared::cluster|shared::cta|global|tile|L2::cache_hint)$/);
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
  x.ignore(/^(m64n\d+k\d+|e4m3)$/);
  x.types();
  const type = x.of.parts.at(-1);
  if (x.of.parts.at(-3) !== 'f32' || x.of.parts.at(-2) !== type || (type !== 'bf16' && type !== 'e4m3'))
    x.refuse('only products of bf16 and of e4m3 that add up to f32 are simulated');
  const [sums, a, b, adds, ...signs] = x.operands;
  if (sums?.kind !== 'list' || sums.elements.length !== columns / 2)
    x.refuse(`the sums of ${columns} columns are ${columns / 2} registers`);
  if (a?.kind === 'list') x.refuse('both factors must lie in shared memory');
  const plain = signs.every((sign, i) => sign.kind === 'integer' && sign.value === (i < 2 ? 1n : 0n));
  if (a === undefined || b === undefined || adds === undefined || !plain)
    x.refuse('factors are neither negated nor turned');
  const array = x.simple(x.code.sumsOf(x.of), 'q');
  sums.elements.forEach((sum, i) => {
    x.code.line(`${array}[${i}] = ${x.single(sum)};`);
  });
  const factors = [...x.pair(a), ...x.pair(b)].join(', ');
  const form = `${columns}, ${type === 'e4m3'}, ${x.site}`;
  x.code.line(`t.bring(factorsOf(shared0, ${array}, ${factors}, !(${x.predicate(adds)}), ${form}));`);
  meet(x, { key: `wgmma ${shape}`, multiplies: true }, '-1', []);
  sums.elements.forEach((sum, i) => {
    x.setSingle(sum, `${array}[${i}]`);
  });
}

/** By the two bits at the top of a descriptor. */
const swizzles = [0, 128, 64, 32] as const;

/** The upper word of a descriptor whose tile is K-major, and where 8 rows of as many bytes as the swizzle are one piece. */
const isPlain = (high: number, swizzle: number): boolean =>
  swizzles[high >>> 30] === swizzle && (high & 0x3fff) << 4 === 8 * swizzle && (high & 0xe0000) === 0;

export function factorsOf(
  shared: SimBuffer,
  sums: Float32Array,
  aLow: number,
  aHigh: number,
  bLow: number,
  bHigh: number,
  begin: boolean,
  columns: number,
  isE4m3: boolean,
  site: number,
): Factors {
  const swizzle = swizzles[aHigh >>> 30]!;
  if (swizzle === 0 || !isPlain(aHigh, swizzle) || !isPlain(bHigh, swizzle))
    throw new Error(
      'the descriptors of a product (wgmma) must be of tiles with one swizzle, whose rows follow each other: others are not simulated',
    );
  const [aAt, bAt] = [(aLow & 0x3fff) << 4, (bLow & 0x3fff) << 4];
  const [aFrom, bFrom] = [aAt % swizzle, bAt % swizzle];
  // One literal, for each lane makes one for each product.
  return {
    a: { buffer: shared, offset: aAt - aFrom },
    aFrom,
    b: { buffer: shared, offset: bAt - bFrom },
    bFrom,
    bytes: 32,
    sums,
    begin,
    columns,
    swizzle,
    atOnce: true,
    isE4m3,
    site,
  };
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
