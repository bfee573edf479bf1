/**
 * The table of operations: every function of `g` that is an effect, by its path. A new one is an entry here, its
 * signature for the editor in language.ts, and an entry in the simulator's table; the compiler says what is missing.
 */
import { block } from './block.js';
import { launch } from './launch.js';
import { memory } from './memory.js';
import { network } from './network.js';
import type { Fields, NamedHelper, Operation, Text } from './operation.js';
import { waits } from './waits.js';
import { warp } from './warp.js';

const table = { ...memory, ...waits, ...block, ...warp, ...launch, ...network };

export type OperationName = keyof typeof table;

type FieldsOf<O> = O extends Operation<infer Takes, infer Options> ? Fields<Takes, Options> : never;
type AllFields = { readonly [Op in OperationName]: FieldsOf<(typeof table)[Op]> };

/** The effect of one operation; of any, where none is named. */
export type OperationEffect<Op extends OperationName = OperationName> = {
  [One in Op]: { readonly op: One } & AllFields[One];
}[Op];

/** An entry, to whoever does not care which one. */
interface Entry<Op extends OperationName> extends Omit<Operation, 'cuda' | 'host' | 'unnoticed'> {
  readonly cuda: NamedHelper | { print(effect: OperationEffect<Op>, text: Text, used: boolean): string };
  host?(effect: OperationEffect<Op>, text: Text): string;
  unnoticed?(effect: OperationEffect<Op>): boolean;
}

/** Names in the order of the table. */
export const operationNames = Object.keys(table) as readonly OperationName[];

export const operations: { readonly [Op in OperationName]: Entry<Op> } = table;
