/** The line. Heddle's own families stand in families.ts; this one is added to them before anything reads the list. */
import { type Family, families } from '../../../../src/moe/families/index.js';
import { naive } from './family.js';

(families as Family[]).push(naive);
