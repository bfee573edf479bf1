/**
 * Runs programs of the tests one after the other, in one process, which loads their modules once: the variable STEPS says which, how and with what
 * variables. What one prints ends with `end of` its number.
 */
import { messageOf } from '../../../src/base/errors.js';

export interface Step {
  /** Of the bundle, in which this one lies, or a path from there, without its ending. */
  readonly program: string;
  readonly args?: readonly string[];
  readonly variables: Readonly<Record<string, string>>;
}

const steps = JSON.parse(process.env.STEPS ?? '[]') as Step[];
for (const [n, { program, args = [], variables }] of steps.entries()) {
  process.argv.splice(2, Number.POSITIVE_INFINITY, ...args);
  Object.assign(process.env, variables);
  try {
    // Another URL each time, so that a program runs again.
    await import(new URL(`./${program}.js?${n}`, import.meta.url).href);
  } catch (error) {
    console.log(`failed: ${messageOf(error)}`);
  }
  for (const name of Object.keys(variables)) delete process.env[name];
  console.log(`end of ${n}`);
}
