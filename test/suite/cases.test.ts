import { describe, it } from 'vitest';
import { cases, expectReference } from './cases.js';

describe.each(Object.entries(cases))('%s', (_, some) => {
  it.each(Object.entries(some))('%s', (_, one) => expectReference(one));
});
