/** All that kernels of this family are made of: their shape, where things lie, and what every one of them may ask. */
import { peers, windowOf } from '../../../lang/index.js';
import { sourceWeighs } from '../../layer/index.js';
import { masking } from '../common/masks.js';
import { expertOwner, findOwners, firstsOf, mateOf, mostRows } from '../common/owners.js';
import { layerConstants } from '../common/params.js';
import { placeAt } from '../common/places.js';
import { countRoutes, zeroCounts } from '../common/received.js';
import { storeSum } from '../common/sum.js';
import { type Operation, patienceOf, waiting } from '../common/waits.js';
import { awaitVector, emptyWord, filled, isEmpty, lookAt, makeEmpty } from './arrival.js';
import { team } from './team.js';
import { type OneSidedShape, oneSidedWindow, ownReturn, pushes, sharesSums } from './window.js';

export type OneSided = ReturnType<typeof oneSidedKit>;

export function oneSidedKit(shape: OneSidedShape) {
  const window = oneSidedWindow(shape);
  const { dtype } = shape.output;
  const phase = (operation: Operation) => {
    const { blocks, parts, teams } = shape[operation];
    return {
      ...{ BLOCKS: blocks, PARTS: parts, TEAMS: teams, team: team(shape[operation]) },
      ...masking(shape, operation),
      ...waiting(shape, window, operation),
    };
  };
  return {
    ...{ shape, window },
    /** Parameters: the windows of all ranks, and this rank's own. */
    at: { win: peers(window), mine: windowOf(window) },
    /** Numbers of the shape, and functions that ask about ranks, slots and vectors. */
    u: {
      ...layerConstants(shape),
      ...{ SPLIT: shape.split, PUSH: pushes(shape), RETURNS: ownReturn(shape), SHARES: sharesSums(shape) },
      ROUTES: sourceWeighs(shape),
      ...{ ROWS: mostRows(shape), DTYPE: dtype, EMPTY: emptyWord },
      ...{ ownerOf: expertOwner(shape), findOwners: findOwners(shape), firstsOf, mateOf: mateOf(shape) },
      ...{ placeAt: placeAt(shape), patienceOf, storeSum: storeSum(shape) },
      ...{ countRoutes: countRoutes(shape, window), zeroCounts: zeroCounts(shape, window) },
      ...{ filled: filled(dtype), isEmpty, lookAt, makeEmpty, awaitVector: awaitVector(window) },
    },
    phases: { dispatch: phase('dispatch'), combine: phase('combine') },
  };
}
