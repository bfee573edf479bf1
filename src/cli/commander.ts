/** Commander, whose commands know the types of their options. The types are all that comes from the other package. */
import type * as typed from '@commander-js/extra-typings';
import * as untyped from 'commander';

export const { Argument, Command, Option } = untyped as unknown as typeof typed;
export type Command = typed.Command;

/** The values of the options that `define` gives a command. */
export type FlagsOf<Define extends (command: Command) => { opts(): unknown }> = ReturnType<
  ReturnType<Define>['opts']
>;
