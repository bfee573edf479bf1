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

/** Families whose knobs and messages need more than what is checked of every family; the others are checked as any is. */
const particular = [...oneSided, ...portable, hybrid];

const ofFamily = (family: Family): readonly CheckSubject[] => {
  const own = particular.filter((subject) => subject.family === family.name);
  return own.length > 0 ? own : generalOf(family);
};

export const checkSubjects: readonly CheckSubject[] = [
  ...families.flatMap(ofFamily),
  ...[experts, mlp, hopper, swiglu, router, rows, moves, ceilings],
];
