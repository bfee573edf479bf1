/** What `heddle check` checks. */
import type { CheckSubject } from '../subject.js';
import { ceilings } from './ceilings.js';
import { experts } from './experts.js';
import { hybrid } from './hybrid.js';
import { mlp } from './mlp.js';
import { oneSided } from './one-sided.js';
import { portable } from './portable.js';
import { router } from './router.js';
import { rows } from './rows.js';
import { swiglu } from './swiglu.js';

/** Where other threads find them. */
export const checkSubjectsModule = import.meta.url;

export const checkSubjects: readonly CheckSubject[] = [
  ...oneSided,
  ...portable,
  hybrid,
  experts,
  mlp,
  swiglu,
  router,
  rows,
  ceilings,
];
