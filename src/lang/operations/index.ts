/** All operations, by their paths on `g`. A new one is an object of one of these files. */
import { block } from './block.js';
import { clusters } from './clusters.js';
import { debug } from './debug.js';
import type { SimRequests } from './machine.js';
import { matrices } from './matrices.js';
import { memory } from './memory.js';
import { multimem } from './multimem.js';
import { network } from './network.js';
import type { Fields, Operation, Print } from './operation.js';
import type { Signature } from './parts.js';
import type { pure } from './pure.js';
import { tensors } from './tensors.js';
import { waits } from './waits.js';
import { warp } from './warp.js';
import { wgmma } from './wgmma.js';

const ofKernels = {
  ...memory,
  ...waits,
  ...block,
  ...tensors,
  ...clusters,
  ...multimem,
  wgmma,
  warp: { ...warp, ...matrices },
  ...debug,
};
const table = { ...ofKernels, ...network };

type CallOf<O> = O extends { readonly signature: Signature<infer Call> } ? Call : never;
/** The functions of `g` that operations are, as authors see them: each leads to its object. */
type Seen<Table> = {
  readonly [Name in keyof Table]: Table[Name] extends IsOperation
    ? CallOf<Table[Name]>
    : { readonly [Inner in keyof Table[Name]]: CallOf<Table[Name][Inner]> };
};
export type KernelFunctions = Seen<typeof pure & typeof ofKernels>;
export type TwinFunctions = Seen<typeof network>;

type Table = typeof table;
type IsOperation = { readonly signature: object };
export type OperationName = {
  [Name in keyof Table & string]: Table[Name] extends IsOperation
    ? Name
    : `${Name}.${keyof Table[Name] & string}`;
}[keyof Table & string];

type At<Path extends string> = Path extends `${infer Group extends keyof Table & string}.${infer Name}`
  ? Table[Group][Name & keyof Table[Group]]
  : Table[Path & keyof Table];
type FieldsOf<O> = O extends Operation<infer Takes, infer Options> ? Fields<Takes, Options> : never;
type AllFields = { readonly [Op in OperationName]: FieldsOf<At<Op>> };

/** The effect of one operation; of any, where none is named. */
export type OperationEffect<Op extends OperationName = OperationName> = {
  [One in Op]: { readonly op: One } & AllFields[One];
}[Op];

/** An operation, to whoever does not care which one. */
interface Entry<Op extends OperationName>
  extends Omit<Operation, 'cuda' | 'simulate' | 'refuses' | 'unnoticed'> {
  readonly cuda: string | Print<OperationEffect<Op>>;
  simulate(effect: OperationEffect<Op>, machine: SimRequests): void;
  refuses?(effect: OperationEffect<Op>): string | undefined;
  unnoticed?(effect: OperationEffect<Op>): boolean;
}

const paths = Object.entries<object>(table).flatMap(([name, of]): [string, unknown][] =>
  'signature' in of ? [[name, of]] : Object.entries(of).map(([inner, one]) => [`${name}.${inner}`, one]),
);

export const operationNames = paths.map(([path]) => path) as readonly OperationName[];

export const operations = Object.fromEntries(paths) as { readonly [Op in OperationName]: Entry<Op> };
