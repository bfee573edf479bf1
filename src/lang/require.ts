/** A module is what a kernel's `ir()` gives. Code that takes one looks for its parts; that they agree is the compiler's promise. */
import { ArgumentError, requireObject } from '../base/errors.js';
import type { IrModule } from './ir.js';

/** Requires what `kernel(…).ir()` gives. */
export function requireModule(argument: string, module: IrModule): void {
  requireObject(argument, module, "a kernel's ir()");
  const { name, entry, layouts, shared } = module;
  const lists = [layouts, shared, entry?.params, entry?.body];
  if (typeof name !== 'string' || !lists.every(Array.isArray)) {
    throw new ArgumentError(argument, module, "a kernel's ir()");
  }
}
