/** One part of a token's row: what its own node made of it, then the rows of the others, node after node; a warp. */
import { device, peers, pointer, registers } from '../../../lang/index.js';
import { dtypes } from '../../layer/index.js';
import { listOwners } from '../common/owners.js';
import { rounding } from '../common/rounded.js';
import { addRows } from './add-rows.js';
import { nodeSum, sumUnit } from './node-sum.js';
import { type HybridShape, localOwner, mostOwners, sourceOf } from './shape.js';
import type { HybridWindow } from './window.js';
import type { HybridWire } from './wire.js';

export function sumToken(shape: HybridShape, window: HybridWindow, wire: HybridWire) {
  return device(
    {
      name: 'sum_token',
      /** `id`: the lane's route. */
      params: { ...given(shape, window, wire), id: 'i32' },
      using: {
        LOCAL: shape.localRanks,
        OWNERS: mostOwners(shape),
        listOwners,
        localOwner: localOwner(shape),
        sourceOf: sourceOf(shape),
        sumPart: (shape.output.wire === 'e4m3' ? sumRounded : sumRows)(shape, window, wire),
      },
    },
    (g, { win, wire, out, id, token, turn, node, part }, u) => {
      const owners = g.registers('u32', u.OWNERS);
      const owner = u.localOwner({ expert: id, node });
      const count = u.listOwners({ owner, ranks: u.LOCAL, owners });
      const source = u.sourceOf({ rank: node * u.LOCAL + g.rank });
      u.sumPart({ win, wire, out, source, token, turn, node, part, owners, count });
    },
  );
}

const given = (shape: HybridShape, window: HybridWindow, wire: HybridWire) =>
  ({
    win: peers(window),
    wire: peers(wire),
    out: pointer(shape.output.dtype),
    token: 'u32',
    /** The rank's, in which it takes the token. */
    turn: 'u32',
    node: 'u32',
    part: 'u32',
  }) as const;

const params = (...of: Parameters<typeof given>) =>
  ({ ...given(...of), source: 'u32', owners: registers('u32'), count: 'u32' }) as const;

/** What both ways of adding up take. */
const sums = (shape: HybridShape, window: HybridWindow, wire: HybridWire) => ({
  DTYPE: shape.output.dtype,
  addRows: addRows(shape, window, wire),
  nodeSum: nodeSum(shape, window),
});

function sumRows(shape: HybridShape, window: HybridWindow, wire: HybridWire) {
  const { units, vectors, values } = sumUnit(shape);
  return device(
    {
      name: 'sum_rows',
      params: params(shape, window, wire),
      using: {
        UNITS: units,
        PART_UNITS: Math.ceil(units / shape.combine.parts),
        VALUES: values,
        VECTORS: vectors,
        ...sums(shape, window, wire),
      },
    },
    (g, { win, wire, out, source, token, turn, node, part, owners, count }, u) => {
      const mine = win.at(g.rank);
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
      for (let i = part * u.PART_UNITS + g.laneId; i < end; i += 32) {
        const values = g.registers('f32', u.VALUES);
        u.nodeSum({ at: { win, source, token, i, owners, count }, values });
        u.addRows({ mine, wire, turn, node, i, scale: g.u32(0), values });
        const to = token * u.UNITS + i;
        if (u.VECTORS) g.store(out.as('v16').at(to), g.pack(u.DTYPE, values), { cache: 'stream' });
        else g.store(out.at(to), g.convert(u.DTYPE, values[0]!));
      }
    },
  );
}

/** Where rows come as e4m3, stretch by stretch. */
function sumRounded(shape: HybridShape, window: HybridWindow, wire: HybridWire) {
  const { UNITS, STRETCHES, STRETCH } = rounding(shape);
  const { size } = dtypes[shape.output.dtype];
  return device(
    {
      name: 'sum_rounded',
      params: params(shape, window, wire),
      using: {
        UNITS,
        STRETCHES,
        STRETCH,
        PART_STRETCHES: Math.ceil(STRETCHES / shape.combine.parts),
        /** The vectors that hold 16 sums, and the sums in each. */
        VECTORS: size,
        LANES: 16 / size,
        ...sums(shape, window, wire),
      },
    },
    (g, { win, wire, out, source, token, turn, node, part, owners, count }, u) => {
      const mine = win.at(g.rank);
      const end = g.min((part + 1) * u.PART_STRETCHES, g.u32(u.STRETCHES));
      for (let stretch = part * u.PART_STRETCHES; stretch < end; stretch += 1) {
        const i = stretch * 32 + g.laneId;
        if (i < u.UNITS) {
          const values = g.registers('f32', 16);
          u.nodeSum({ at: { win, source, token, i, owners, count }, values });
          const start = stretch * u.STRETCH;
          const scale = (start + g.min(u.UNITS - stretch * 32, g.u32(32))) * 4 + g.laneId / 8;
          u.addRows({ mine, wire, turn, node, i: start + g.laneId, scale, values });
          const to = out.as('v16').at((token * u.UNITS + i) * u.VECTORS);
          for (const v of g.unroll(u.VECTORS)) {
            const some = g.registers('f32', u.LANES);
            for (const lane of g.unroll(u.LANES)) some[lane] = values[v * u.LANES + lane]!;
            g.store(to.at(v), g.pack(u.DTYPE, some), { cache: 'stream' });
          }
        }
      }
    },
  );
}
