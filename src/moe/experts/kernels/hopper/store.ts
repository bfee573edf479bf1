/**
 * Where a warp group's sums go. A lane has elements 2 · (lane % 4) and the next of each 8, of rows lane / 4 and 8 more; so that whole
 * lines are stored, the rows of a warp, 16, pass through shared memory that is the warp's own.
 */
import { device, pointer, registers } from '../../../../lang/index.js';
import { exponentFor } from '../../../formats/index.js';
import { clamp, silu } from '../gemm/swiglu.js';
import { type HopperKit, outPlace } from './kit.js';
import { roundsRows } from './shape.js';

/** Rows of a warp. */
const warpRows = 16;
/** Vectors of a row that the shared memory holds at a time; one more lies between rows, so that rows begin in different banks. */
const bufferVectors = 8;
const rowVectors = bufferVectors + 1;
/** Vectors of shared memory that a warp needs. */
export const warpVectors = warpRows * rowVectors;

/** The activation: gates are the first half of the sums, and what they scale the second. */
export const gate = ({ shape: { activation } }: Pick<HopperKit, 'shape'>) =>
  device(
    {
      params: { sums: registers('f32'), made: registers('f32') },
      using: { CLAMPED: activation === 'clamped-swiglu', clamp, silu },
    },
    (g, { sums, made }, u) => {
      for (const i of g.unroll(sums.length / 2)) {
        if (u.CLAMPED) u.clamp({ values: sums, gate: i, up: sums.length / 2 + i });
        made[i] = u.silu({ x: sums[i]! }) * sums[sums.length / 2 + i]!;
      }
    },
  );

/** Adds the biases of an expert from an element on; where rows are gated, those of gates and of what they scale. */
export const addBiases = (kit: HopperKit) =>
  device(
    {
      params: { bias: pointer('bf16'), expert: 'u32', element: 'u32', sums: registers('f32') },
      using: kit.u,
    },
    (g, { bias, expert, element, sums }, u) => {
      const own = bias.at(expert * u.HALVES * u.OUTPUTS + element + 2 * (g.laneId % 4));
      for (const half of g.unroll(u.HALVES)) {
        for (const octet of g.unroll(sums.length / (4 * u.HALVES))) {
          const from = (half * sums.length) / u.HALVES + 4 * octet;
          const pair = g.load(own.at(half * u.OUTPUTS + 8 * octet).as('u32'));
          for (const e of g.unroll(4))
            sums[from + e]! += g.bits('f32', e % 2 === 0 ? pair << 16 : pair & 0xffff0000);
        }
      }
    },
  );

/** Vectors of a warp's rows from its shared memory to the tensor. Other rows may come to that memory next. */
const sendRows = (vectors: number, outputs: number, type: 'bf16' | 'e4m3') =>
  device(
    {
      params: { own: pointer('v16'), to: pointer('v16'), place: outPlace },
      using: {
        ...{ VECTORS: vectors, ALL: warpRows * vectors, PARTS: Math.ceil((warpRows * vectors) / 32) },
        ...{ APART: rowVectors, PER_VECTOR: type === 'e4m3' ? 16 : 8 },
        ROW_VECTORS: outputs / (type === 'e4m3' ? 16 : 8),
      },
    },
    (g, { own, to, place: { row, left, element } }, u) => {
      g.warp.barrier();
      for (const part of g.unroll(u.PARTS)) {
        const i = part * 32 + g.laneId;
        const there = i / u.VECTORS;
        if (i < u.ALL && there < left) {
          const vector = g.load(own.at(there * u.APART + (i % u.VECTORS)));
          g.store(to.at((row + there) * u.ROW_VECTORS + element / u.PER_VECTOR + (i % u.VECTORS)), vector);
        }
      }
      g.warp.barrier();
    },
  );

/** Rows of bf16. */
const storeRows = ({ shape: { gated, outputs }, of }: HopperKit) => {
  const octets = of.columns / (gated ? 16 : 8);
  const vectors = [bufferVectors, 4, 2, 1].find((some) => octets % some === 0)!;
  return device(
    {
      params: { own: pointer('v16'), to: pointer('v16'), place: outPlace, values: registers('f32') },
      using: {
        ...{ PARTS: octets / vectors, VECTORS: vectors, APART: 4 * rowVectors },
        sendRows: sendRows(vectors, outputs, 'bf16'),
      },
    },
    (g, { own, to, place: { row, left, element }, values }, u) => {
      const mine = own.as('u32').at((g.laneId / 4) * u.APART + (g.laneId % 4));
      for (const part of g.unroll(u.PARTS)) {
        for (const v of g.unroll(u.VECTORS)) {
          const i = 4 * (part * u.VECTORS + v);
          const four = g.registers('f32', 8);
          for (const e of g.unroll(4)) four[e] = values[i + e]!;
          const pairs = g.pack('bf16', four);
          g.store(mine.at(4 * v), g.lane(pairs, 'u32', 0));
          g.store(mine.at(8 * u.APART + 4 * v), g.lane(pairs, 'u32', 1));
        }
        u.sendRows({ own, to, place: { row, left, element: element + part * u.VECTORS * 8 } });
      }
    },
  );
};

/** The bits of the largest magnitudes that a unit makes of a thread's two rows. */
const findPeaks = (kit: HopperKit) =>
  device(
    {
      params: {
        /** [warp group][row], where groups share rows. */
        ...{ peaks: pointer('u32'), group: 'u32' },
        ...{ values: registers('f32'), largest: registers('u32') },
      },
      using: kit.u,
    },
    (g, { peaks, group, values, largest }, u) => {
      for (const half of g.unroll(2)) {
        for (const i of g.unroll(values.length / 2)) {
          const value = values[4 * ((i - (i % 2)) / 2) + 2 * half + (i % 2)]!;
          largest[half] = g.max(largest[half]!, g.bits('u32', value) & 0x7fffffff);
        }
        for (const by of g.unroll(2))
          largest[half] = g.max(largest[half]!, g.warp.shuffleXor(largest[half]!, 1 << by));
      }
      if (u.SHARED) {
        const row = (g.warpId % 4) * 16 + g.laneId / 4;
        // A thread that has read the other group's peaks of the unit before has come to this barrier since.
        g.group.barrier(1, u.THREADS);
        for (const half of g.unroll(2))
          if (g.laneId % 4 === 0) g.store(peaks.at(group * u.ROWS + row + 8 * half), largest[half]!);
        g.group.barrier(1, u.THREADS);
        for (const half of g.unroll(2))
          largest[half] = g.max(largest[half]!, g.load(peaks.at((1 - group) * u.ROWS + row + 8 * half)));
      }
    },
  );

/** Rows as e4m3 with a scale for every 128 elements: those that a unit makes of a row. All of the unit's threads take part. */
const storeScaled = (kit: HopperKit) => {
  const { boxRows, shape } = kit;
  return device(
    {
      params: {
        ...{ own: pointer('v16'), to: pointer('v16'), scales: pointer('f32') },
        /** [warp group][row]: largest magnitudes, where groups share rows. */
        ...{ peaks: pointer('u32'), group: 'u32', place: outPlace },
        values: registers('f32'),
      },
      using: {
        ...{ ...kit.u, OCTETS: boxRows / 8, PACKS: Math.ceil(boxRows / 64), APART: 8 * rowVectors },
        ...{ SCALES: shape.outputs / 128, exponentFor, findPeaks: findPeaks(kit) },
        sendRows: sendRows(boxRows / 16, shape.outputs, 'e4m3'),
      },
    },
    (g, { own, to, scales, peaks, group, place: { row, left, element }, values }, u) => {
      const largest = g.registers('u32', 2);
      u.findPeaks({ peaks, group, values, largest });
      const inverse = g.registers('f32', 2);
      for (const half of g.unroll(2)) {
        const exponent = u.exponentFor({ largest: largest[half]! });
        inverse[half] = g.bits('f32', (254 - exponent) << 23);
        // An infinity or a NaN makes all of its block NaN, never plausible numbers.
        const scale = g.select(largest[half]! < 0x7f800000, exponent << 23, g.u32(0x7fc00000));
        if (g.laneId % 4 === 0 && (!u.SHARED || group === 0) && g.laneId / 4 + 8 * half < left)
          g.store(
            scales.at((row + g.laneId / 4 + 8 * half) * u.SCALES + element / 128),
            g.bits('f32', scale),
          );
      }
      for (const half of g.unroll(2)) {
        const some = g.registers('f32', 16);
        const mine = own.as('u16').at((g.laneId / 4 + 8 * half) * u.APART + (g.laneId % 4));
        for (const from of g.unroll(u.PACKS)) {
          for (const i of g.unroll(16)) {
            const at = 32 * from + 4 * ((i - (i % 2)) / 2) + 2 * half + (i % 2);
            if (at < values.length) some[i] = values[at]! * inverse[half]!;
          }
          const bytes = g.pack('e4m3', some);
          for (const v of g.unroll(8))
            if (8 * from + v < u.OCTETS) g.store(mine.at(4 * (8 * from + v)), g.lane(bytes, 'u16', v));
        }
      }
      u.sendRows({ own, to, place: { row, left, element } });
    },
  );
};

/** The part of a unit that a warp group has when all its sums are there. Warps without rows have nothing to send. */
const sending = ({ at: { outputs } }: HopperKit) => ({
  own: pointer('v16'),
  outputs,
  peaks: pointer('u32'),
  group: 'u32' as const,
  part: 'u32' as const,
  place: outPlace,
  sums: registers('f32'),
});

/** How a unit's sums leave. */
export const send = (kit: HopperKit) => {
  if (kit.of.parts > 1) return sendSums(kit);
  return roundsRows(kit.shape, kit.of) ? sendScaled(kit) : sendBf16(kit);
};

const sendBf16 = (kit: HopperKit) =>
  device(
    { params: sending(kit), using: { ...kit.u, gate: gate(kit), storeRows: storeRows(kit) } },
    (g, { own, outputs: { to }, place, sums }, u) => {
      if (place.left > 0) {
        if (u.GATED) {
          const made = g.registers('f32', sums.length / 2);
          u.gate({ sums, made });
          u.storeRows({ own, to, place, values: made });
        } else u.storeRows({ own, to, place, values: sums });
      }
    },
  );

const sendScaled = (kit: HopperKit) =>
  device(
    { params: sending(kit), using: { ...kit.u, gate: gate(kit), storeScaled: storeScaled(kit) } },
    (g, { own, outputs: { to, toScales }, peaks, group, place, sums }, u) => {
      const made = g.registers('f32', sums.length / 2);
      if (place.left > 0) u.gate({ sums, made });
      u.storeScaled({ own, to, scales: toScales[0]!, peaks, group, place, values: made });
    },
  );

/** Sums of a part of the inputs, as they are: [row][part][column]. Two lanes exchange halves, so that each stores four in a row. */
const sendSums = (kit: HopperKit) =>
  device(
    { params: sending(kit), using: { ...kit.u, PARTS: kit.of.parts } },
    (g, { outputs: { to }, part, place: { row, left, element }, sums }, u) => {
      const odd = g.laneId % 2;
      const own = g.laneId / 4 + 8 * odd;
      const from =
        ((row + own) * u.PARTS + part) * (u.HALVES * u.OUTPUTS) + element + 2 * (g.laneId % 4) - 2 * odd;
      for (const half of g.unroll(u.HALVES)) {
        for (const octet of g.unroll(sums.length / (4 * u.HALVES))) {
          const i = (half * sums.length) / u.HALVES + 4 * octet;
          const got = g.registers('u32', 2);
          const four = g.registers('u32', 4);
          for (const e of g.unroll(2)) {
            const upper = g.bits('u32', sums[i + e]!);
            const lower = g.bits('u32', sums[i + 2 + e]!);
            got[e] = g.warp.shuffleXor(g.select(odd === 1, upper, lower), 1);
            four[e] = g.select(odd === 1, got[e]!, upper);
            four[2 + e] = g.select(odd === 1, lower, got[e]!);
          }
          if (own < left) g.store(to.at((from + half * u.OUTPUTS + 8 * octet) / 4), g.pack('u32', four));
        }
      }
    },
  );
