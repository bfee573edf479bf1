/**
 * Weights of MXFP4 on Hopper: a warp group's products. Weights are their left factor, so that they go from memory to the tensor cores through
 * registers, where they become bf16, exactly; rows are the right one. So each weight is unpacked once for all rows of a unit, and never stored
 * again. Sums come out turned: a lane has elements lane / 4 of 16, and 8 more, of rows 2 · (lane % 4) and the next of each 8.
 */
import { constant, device, pointer, registers } from '../../../../lang/index.js';
import { clamp, silu } from '../gemm/swiglu.js';
import { work } from './kit.js';
import type { PackedKit } from './packed-kit.js';
import { packedShift } from './shape.js';
import { findUnit } from './units.js';

/**
 * Makes two bf16 of a byte of each of eight words of two e2m1, times the scale of their half. The byte goes to a half of a word with its sign eight
 * times above it, and two to the left of there: then an e2m1's sign is a bf16's, and its other bits are the last two of its exponent and the
 * first of its mantissa. That is the same number divided by 2^126, subnormal ones too. An e2m1 in a byte's lower half comes there by a shift.
 */
const unpack = device(
  {
    params: { four: 'v16', by: 'u32', select: 'u32', from: constant<number>(), a: registers('u32') },
    using: { REST: 0x81c081c0 },
  },
  (g, { four, by, select, from, a }, u) => {
    for (const i of g.unroll(4)) {
      const word = g.lane(four, 'u32', i);
      const both = g.permute(word << 4, word, select);
      a[from + 4 * ((i - (i % 2)) / 2) + 2 * (i % 2)] = g.multiplyPairs((both << 2) & u.REST, by);
    }
  },
);

/** Loads a thread's weights of a stage, of its two rows, and the numbers by which they are multiplied. */
const loadHeld = ({ ring, u: numbers }: PackedKit) =>
  device(
    {
      params: {
        ...{ ring, packedTurn: 'u32', step: 'u32', own: 'u32' },
        ...{ fours: registers('v16'), bys: registers('u32') },
      },
      // A bf16 of 2^(scale − 127 + 126 − 32), once in each half of a word; infinity where the exponent has no room for it.
      using: { ...numbers, EXPONENT: 126 - packedShift, PAIR: 0x00800080 },
    },
    (g, { ring, packedTurn, step, own, fours, bys }, u) => {
      const part = step % u.FETCHED;
      const turn = packedTurn + step / u.FETCHED;
      const stage = u.waitPacked({ gates: ring.gates, step: turn });
      for (const lower of g.unroll(2)) {
        const at = stage * u.HALVES + (u.GATED ? lower : 0);
        const row = own + (u.GATED ? 0 : 8 * lower);
        for (const side of g.unroll(2)) {
          fours[2 * lower + side] = g.load(
            ring.weights
              .at(at)
              .element(row, 32 * part + 16 * side)
              .as('v16'),
          );
          const scale = g.load(ring.scales.at(at).element(2 * part + side, row));
          bys[2 * lower + side] = g.min(scale + u.EXPONENT, g.u32(255)) * u.PAIR;
        }
      }
      if (part === u.FETCHED - 1 || step === u.STEPS - 1) {
        g.proxyFence('shared');
        g.warp.barrier();
        if (g.laneId === 0) u.releasePacked({ gates: ring.gates, step: turn });
      }
    },
  );

/** A unit's sums. While a stage is multiplied, the next one's weights are loaded; while they become bf16, the other warp group has the tensor cores. */
const multiplyHeld = (kit: PackedKit) =>
  device(
    {
      params: {
        ...{ ring: kit.base.at.ring, packed: kit.ring, turn: 'u32', packedTurn: 'u32', own: 'u32' },
        sums: registers('f32'),
      },
      using: { ...kit.u, loadHeld: loadHeld(kit), unpack, UNSHIFT: 2 ** packedShift, SELECT: 0xc480 },
    },
    (g, { ring, packed, turn, packedTurn, own, sums }, u) => {
      const select = u.SELECT + (g.laneId % 4) * 0x1111;
      const fours = g.registers('v16', 4);
      const bys = g.registers('u32', 4);
      const a = g.registers('u32', 16);
      u.loadHeld({ ring: packed, packedTurn, step: 0, own, fours, bys });
      for (let step = g.u32(0); step < u.STEPS; step += 1) {
        for (const i of g.unroll(4)) {
          const from = 8 * (i % 2) + (i - (i % 2)) / 2;
          u.unpack({ four: fours[i]!, by: bys[i]!, select, from, a });
        }
        const stage = u.wait({ gates: ring.gates, step: turn + step });
        g.wgmma.fence();
        g.wgmma.multiplyHeld(sums, a, ring.rows.at(stage), step === 0);
        g.wgmma.commit();
        if (step + 1 < u.STEPS) u.loadHeld({ ring: packed, packedTurn, step: step + 1, own, fours, bys });
        g.wgmma.wait(0);
        if (g.laneId === 0) u.release({ gates: ring.gates, step: turn + step });
      }
      for (const i of g.unroll(sums.length)) sums[i] = sums[i]! * u.UNSHIFT;
    },
  );

/** A warp group's sums as rows: 64 at a time they pass through shared memory of its own. */
const sendTurned = (kit: PackedKit) =>
  device(
    {
      params: {
        ...{ own: pointer('v16'), outputs: kit.base.at.outputs, group: 'u32', expert: 'u32' },
        /** The first row that goes out, how many there are, and the warp group's first element. */
        ...{ row: 'u32', left: 'u32', element: 'u32', sums: registers('f32') },
      },
      using: {
        ...{ ...kit.u, CLAMPED: kit.base.shape.activation === 'clamped-swiglu', clamp, silu },
        ...{ ROUNDS: kit.rows / kit.sentRows, OCTETS: kit.sentRows / 8, VECTORS: kit.sentVectors },
        ...{
          APART: 8 * (kit.sentVectors + 1),
          MOVES: Math.ceil((kit.sentRows * kit.sentVectors) / 128),
          SENT: kit.sentRows,
        },
        ...{ ROW_VECTORS: kit.base.shape.outputs / 8 },
      },
    },
    (g, { own, outputs: { bias, to }, group, expert, row, left, element, sums }, u) => {
      const first = (g.warpId % 4) * (u.GATED ? 8 : 16) + g.laneId / 4;
      const biases = g.registers('f32', 2);
      if (bias.length > 0) {
        for (const lower of g.unroll(2)) {
          const at = u.GATED ? lower * u.OUTPUTS : 8 * lower;
          biases[lower] = g.f32(g.load(bias[0]!.at(expert * u.HALVES * u.OUTPUTS + element + first + at)));
        }
      }
      const mine = own.as('u16').at(2 * (g.laneId % 4) * u.APART + first);
      const thread = g.threadIdx.x % 128;
      for (const round of g.unroll(u.ROUNDS)) {
        if (round * u.SENT < left) {
          // All have sent what lay there before.
          g.group.barrier(1 + group, 128);
          for (const octet of g.unroll(u.OCTETS)) {
            const four = g.registers('f32', 8);
            for (const e of g.unroll(4)) {
              four[e] = sums[4 * (round * u.OCTETS + octet) + e]!;
              if (bias.length > 0) four[e] = four[e]! + biases[(e - (e % 2)) / 2]!;
            }
            if (u.GATED) {
              for (const e of g.unroll(2)) {
                if (u.CLAMPED) u.clamp({ values: four, gate: e, up: 2 + e });
                four[e] = u.silu({ x: four[e]! }) * four[2 + e]!;
              }
            }
            const pairs = g.pack('bf16', four);
            for (const e of g.unroll(u.GATED ? 2 : 4)) {
              const at = (8 * octet + (e % 2)) * u.APART + 8 * ((e - (e % 2)) / 2);
              g.store(mine.at(at), g.lane(pairs, 'u16', e));
            }
          }
          g.group.barrier(1 + group, 128);
          for (const move of g.unroll(u.MOVES)) {
            const i = move * 128 + thread;
            const there = i / u.VECTORS;
            if (there < u.SENT && round * u.SENT + there < left) {
              const vector = g.load(own.at(there * (u.VECTORS + 1) + (i % u.VECTORS)));
              const at = (row + round * u.SENT + there) * u.ROW_VECTORS + element / 8 + (i % u.VECTORS);
              g.store(to.at(at), vector);
            }
          }
        }
      }
    },
  );

/** All units of this block, by a warp group of two: which it is, `group` says. */
export const multiplyPackedUnits = (kit: PackedKit) =>
  device(
    {
      params: {
        ...{ ring: kit.base.at.ring, packed: kit.ring, work, outputs: kit.base.at.outputs },
        ...{ passage: pointer('v16'), group: 'u32' },
      },
      using: {
        ...{
          ...kit.u,
          SUMS: kit.rows / 2,
          MADE_OF_GROUP: kit.made / 2,
          PASSAGE: kit.passage,
          findUnit: findUnit(kit.base),
        },
        ...{
          multiplyHeld: multiplyHeld(kit),
          sendTurned: sendTurned(kit),
          FETCHES: Math.ceil(kit.u.STEPS / kit.u.FETCHED),
        },
      },
    },
    (g, { ring, packed, work, outputs, passage, group }, u) => {
      const mine = group * u.MADE_OF_GROUP + (g.warpId % 4) * (u.GATED ? 8 : 16) + g.laneId / 4;
      let turn = g.u32(0);
      let packedTurn = g.u32(0);
      let before = g.u32(0);
      let expert = g.u32(0);
      for (let unit = g.blockIdx.x; unit < work.units; unit += g.gridDim.x) {
        const place = u.findUnit({ unit, ends: work.ends, expert, before });
        expert = place.expert;
        before = place.before;
        const sums = g.registers('f32', u.SUMS);
        u.multiplyHeld({ ring, packed, turn, packedTurn, own: mine, sums });
        const element = place.element + group * u.MADE_OF_GROUP;
        // The last unit of a row may have elements for one group only.
        if (element < u.OUTPUTS) {
          const row = g.load(work.begins.at(expert)) + place.row;
          const left = g.load(work.counts.at(expert)) - place.row;
          const own = passage.at(group * u.PASSAGE);
          u.sendTurned({ own, outputs, group, expert, row, left, element, sums });
        }
        turn += u.STEPS;
        packedTurn += u.FETCHES;
      }
    },
  );
