/** What `heddle check` checks. */
import type { CheckSubject } from '../subject.js';
import { ceilings } from './ceilings.js';
import { oneSided } from './one-sided.js';

export const checkSubjects: readonly CheckSubject[] = [...oneSided, ceilings];
