/** Adds up a part of a token's rows that are home, and writes it to the caller's tensor; a warp. */
import { device, pointer, record, registers, windowOf } from '../../../lang/index.js';
import { dtypes } from '../../layer/index.js';
import { partialDtype, rowsOf } from '../common/received.js';
import { rounding } from '../common/rounded.js';
import { gatherParams, rowSum } from '../common/sum.js';
import { rowOf } from './row-of.js';
import { type PortableShape, type PortableWindow, returnedParts, returnedRow } from './window.js';

export const sumPart = (shape: PortableShape, window: PortableWindow) =>
  shape.output.wire === 'e4m3' ? sumRounded(shape, window) : sumRows(shape, window);

const params = (shape: PortableShape, window: PortableWindow) =>
  ({
    mine: windowOf(window),
    out: pointer(shape.output.dtype),
    token: 'u32',
    part: 'u32',
    /** The first `count` are this token's, in the order of the sum. */
    owners: registers('u32'),
    count: 'u32',
  }) as const;

/** Where a lane's rows lie in `returned`; `scale`: where their scales do, in u32. */
const placeOf = (window: PortableWindow) =>
  record({
    mine: windowOf(window),
    token: 'u32',
    i: 'u32',
    scale: 'u32',
    owners: registers('u32'),
    count: 'u32',
  });

function gather(shape: PortableShape, window: PortableWindow, { vectors, dtype, scaled }: Rows) {
  return device(
    {
      name: 'gather',
      params: gatherParams(placeOf(window)),
      using: {
        VECTORS: vectors,
        DTYPE: dtype,
        SCALED: scaled,
        rowOf: rowOf(shape, window),
      },
    },
    (g, { at: { mine, token, i, scale, owners, count }, first, rows, scales }, u) => {
      for (const r of g.unroll(rows.length)) {
        if (first + r < owners.length) {
          if (first + r < count) {
            const row = u.rowOf({ mine, owner: owners[first + r]!, token });
            if (u.VECTORS) rows[r] = g.load(row.as('v16').at(i), { order: 'relaxed', scope: 'gpu' });
            else rows[r] = g.pack('f32', [g.f32(g.load(row.as(u.DTYPE).at(i))), 0, 0, 0]);
            if (u.SCALED) scales[r] = g.load(row.as('f32').at(scale), { order: 'relaxed', scope: 'gpu' });
          }
        }
      }
    },
  );
}

/** How rows lie in `returned`. */
interface Rows {
  readonly vectors: boolean;
  readonly dtype: PortableShape['output']['dtype'];
  readonly scaled: boolean;
}

/** Rows held at once. Sums of several groups take registers from the rows of the next. */
const mostHeld = (rows: number): number => (rows > 8 ? 4 : 8);

/** Rows as they are: vectors, or where rows are no whole vectors value by value. */
function sumRows(shape: PortableShape, window: PortableWindow) {
  const { dtype } = shape.output;
  const { vectors, lanes, units } = rowsOf(shape, partialDtype(shape));
  const { partUnits } = returnedParts(shape);
  const rows = Math.min(shape.topK, shape.ranks);
  return device(
    {
      name: 'sum_rows',
      params: params(shape, window),
      using: {
        UNITS: units,
        /** A part of `returned`, in what the sum takes at a time. */
        PART_UNITS: partUnits * (units / returnedRow(shape).units),
        VECTORS: vectors,
        LANES: lanes,
        DTYPE: dtype,
        rowSum: rowSum({
          rows,
          most: mostHeld(rows),
          lane: vectors ? dtype : 'f32',
          lanes,
          at: placeOf(window),
          gather: gather(shape, window, { vectors, dtype, scaled: false }),
        }),
      },
    },
    (g, { mine, out, token, part, owners, count }, u) => {
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
      for (let i = part * u.PART_UNITS + g.laneId; i < end; i += 32) {
        const total = g.registers('f32', u.LANES);
        u.rowSum({ at: { mine, token, i, scale: g.u32(0), owners, count }, count, total });
        const to = token * u.UNITS + i;
        if (u.VECTORS) g.store(out.as('v16').at(to), g.pack(u.DTYPE, total), { cache: 'stream' });
        else g.store(out.at(to), g.convert(u.DTYPE, total[0]!));
      }
    },
  );
}

/** Rows as e4m3, stretch by stretch. */
function sumRounded(shape: PortableShape, window: PortableWindow) {
  const { dtype } = shape.output;
  const rows = Math.min(shape.topK, shape.ranks);
  const { size } = dtypes[dtype];
  const { partUnits } = returnedParts(shape);
  const { STRETCH, ...row } = rounding(shape);
  return device(
    {
      name: 'sum_rounded',
      params: params(shape, window),
      using: {
        ...row,
        STRETCH,
        PART_STRETCHES: partUnits / STRETCH,
        DTYPE: dtype,
        /** The vectors that hold 16 sums, and the sums in each. */
        VECTORS: size,
        LANES: 16 / size,
        rowSum: rowSum({
          rows,
          most: mostHeld(rows),
          lane: 'e4m3',
          lanes: 16,
          scaled: true,
          at: placeOf(window),
          gather: gather(shape, window, { vectors: true, dtype, scaled: true }),
        }),
      },
    },
    (g, { mine, out, token, part, owners, count }, u) => {
      const end = g.min((part + 1) * u.PART_STRETCHES, g.u32(u.STRETCHES));
      for (let stretch = part * u.PART_STRETCHES; stretch < end; stretch += 1) {
        const unit = stretch * 32 + g.laneId;
        if (unit < u.UNITS) {
          const total = g.registers('f32', 16);
          const start = stretch * u.STRETCH;
          const vectors = g.min(u.UNITS - stretch * 32, g.u32(32));
          const scale = (start + vectors) * 4 + g.laneId / 8;
          u.rowSum({ at: { mine, token, i: start + g.laneId, scale, owners, count }, count, total });
          const to = out.as('v16').at((token * u.UNITS + unit) * u.VECTORS);
          for (const v of g.unroll(u.VECTORS)) {
            const some = g.registers('f32', u.LANES);
            for (const lane of g.unroll(u.LANES)) some[lane] = total[v * u.LANES + lane]!;
            g.store(to.at(v), g.pack(u.DTYPE, some), { cache: 'stream' });
          }
        }
      }
    },
  );
}
