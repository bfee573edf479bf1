/** The subjects of `heddle check`. */
import { type Family, families } from '../../../moe/families/index.js';
import type { CheckSubject } from '../subject.js';
import { ceilings } from './ceilings.js';
import { experts } from './experts.js';
import { generalOf } from './general.js';
import { hybrid } from './hybrid.js';
import { hopper, mlp } from './mlp.js';
import { moves } from './moves.js';
import { oneSided } from './one-sided.js';
import { portable } from './portable.js';
import { router } from './router.js';
import { rows } from './rows.js';
import { swiglu } from './swiglu.js';

/** Where other threads find them. */
export const checkSubjectsModule = import.meta.url;

/** Of families whose knobs and messages need more than what is checked of every family. */
const particular = new Map<string, readonly CheckSubject[]>([
  ['one-sided', oneSided],
  ['portable', portable],
  ['hybrid', [hybrid]],
]);

const ofFamily = (family: Family): CheckSubject[] =>
  (particular.get(family.name) ?? generalOf(family)).map((subject) => ({ ...subject, family: family.name }));

export const checkSubjects: readonly CheckSubject[] = [
  ...families.flatMap(ofFamily),
  ...[experts, mlp, hopper, swiglu, router, rows, moves, ceilings],
];
