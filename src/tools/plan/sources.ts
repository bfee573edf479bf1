/** Sources that measured the same thing, and by how much they differ. */
import { type Cell, grouped, observe, once, shippedCells } from './cells.js';

/** A system on a kind of GPU and network. */
function kindOf({ lib, mode, ep: ranks, domain, fabric, hw }: Cell): string {
  const network = ranks > domain ? fabric : 'one node';
  return JSON.stringify([lib, mode, network, hw.startsWith('H') ? 'Hopper' : hw]);
}

export type Disagreement = ReturnType<typeof disagreements>[number];

/** Two sources' figures for the same system, ranks, tokens, phase and format on the same kind of GPU and network. */
export const disagreements = once(() => {
  const found = grouped(shippedCells(), (cell) => {
    const { phase, dtype, ep: ranks, tokens } = cell;
    return JSON.stringify([kindOf(cell), phase, dtype, ranks, tokens]);
  })
    .filter((cells) => new Set(cells.map((cell) => cell.set)).size > 1)
    .map((cells) => {
      const { lib, mode, phase, dtype, ep: ranks, tokens } = cells[0]!;
      const figures = cells.map((cell) => ({ src: cell.src, hw: cell.hw, us: observe(cell).us }));
      const times = figures.map(({ us }) => us);
      const ratio = Math.max(...times) / Math.min(...times);
      return { lib, mode, what: `${phase} ${dtype}, EP${ranks}, ${tokens} tokens`, figures, ratio };
    });
  return found.sort((a, b) => b.ratio - a.ratio);
});

/** The assumption before any two figures are seen, as if so many had said so. */
const usual = { deviation: 0.2, figures: 4 };

/** By how much another's figures of a system may differ from a source's: the logarithm's standard deviation. */
export function between({ lib, mode }: Pick<Cell, 'lib' | 'mode'>): number {
  const seen = disagreements().filter((one) => one.lib === lib && one.mode === mode);
  const squares = seen.reduce(
    (sum, { ratio }) => sum + Math.log(ratio) ** 2,
    usual.figures * usual.deviation ** 2,
  );
  return Math.sqrt(squares / (usual.figures + seen.length));
}
