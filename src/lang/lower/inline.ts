/** Calls of device functions, `arrive({ win, epoch })`: the function's body takes the place of the call. */

import * as build from '../build.js';
import type { DeviceDefinition } from '../definition.js';
import type { InlinedCall, Stmt } from '../ir.js';
import type { Call } from './call.js';
import { Context, Exits, Poisoned } from './context.js';
import { freeze } from './keep.js';
import { Results } from './results.js';
import { takeAll } from './take.js';
import type { Value } from './values.js';

/** A body that is inlined more often than this is a mistake, and would take minutes to compile. */
const mostCalls = 4096;

export function callDevice(call: Call, definition: DeviceDefinition): Value {
  const { ctx, node } = call;
  const firstOwn = ctx.module.nextId;
  const { body: lowered, exits } = lowerCall(call, definition, (param, value) =>
    freeze(ctx, node, param, value),
  );
  const simple = simpleResult(lowered, exits);
  if (simple !== undefined) {
    for (const stmt of lowered.slice(0, -1)) ctx.emit(stmt);
    return simple;
  }
  const results = new Results(call, exits, firstOwn);
  const value = results.join(lowered);
  const body = withoutJumps(results.rewritten(lowered), exits.call);
  for (const stmt of results.declarations) ctx.emit(stmt);
  if (body.length > 0) ctx.emit({ kind: 'block', span: ctx.span(node), body, call: exits.call });
  return value;
}

/** The body of a function for one call of it; `enter` makes of an argument what the body knows it as. */
export function lowerCall(
  call: Call,
  definition: DeviceDefinition,
  enter: (param: string, value: Value) => Value,
): { readonly body: readonly Stmt[]; readonly exits: Exits } {
  const { ctx, node, name } = call;
  const { module } = ctx;
  const given = takeAll(ctx, node, givenArguments(call, definition), definition.params, name);
  const problems = module.problems.length;
  const exits = new Exits({ name }, definition.returns);
  const callee = new Context(module, definition.source, exits);
  let ends = false;
  const entries = new Map<string, Value>();
  const before = ctx.capture(() => {
    for (const [param, value] of given) entries.set(param, enter(param, value));
  });
  const statements = callee.capture(() => {
    ends = lowerOnce(call, callee, definition, entries);
  });
  if (definition.returns !== 'void' && (!ends || exits.values.size === 0)) {
    const end = definition.source.text.length;
    const message = ends
      ? 'no return can be reached, but the header promises a result'
      : 'the end can be reached without a return, but the header promises a result';
    module.report('HK607', message, definition.source, { start: Math.max(0, end - 1), end });
  }
  // The mistake inside has been reported; nothing more is reported about the result.
  if (module.problems.length > problems) throw new Poisoned();
  return { body: [...before, ...statements], exits };
}

function lowerOnce(
  call: Call,
  callee: Context,
  definition: DeviceDefinition,
  params: ReadonlyMap<string, Value>,
): boolean {
  const { module } = callee;
  if (module.active.has(definition)) {
    const why = 'a device function cannot, for it takes the place of its calls';
    call.fail('HK701', `${call.name} calls itself; ${why}`);
  }
  if (++module.calls > mostCalls)
    call.fail(
      'HK703',
      `device functions are called more than ${mostCalls} times in all; call them in a loop`,
    );
  module.active.add(definition);
  try {
    return module.lowerBody(callee, definition, params);
  } finally {
    module.active.delete(definition);
  }
}

/** The value of a function that only computes: it needs no variable of its own. */
function simpleResult(body: readonly Stmt[], { values }: Exits): Value | undefined {
  const last = body.at(-1);
  const only = body.slice(0, -1).every((stmt) => stmt.kind === 'let' && stmt.init !== null);
  return last !== undefined && only ? values.get(last)?.value : undefined;
}

function givenArguments(call: Call, definition: DeviceDefinition): Value & { kind: 'record' } {
  const names = Object.keys(definition.params);
  const only = call.args[0];
  if (only === undefined && names.length === 0) return { kind: 'record', entries: new Map(), what: '' };
  if (call.args.length === 1 && only?.value.kind === 'record') return only.value;
  return call.fail('HK305', `call a device function with one object: ${call.name}({ ${names.join(', ')} })`);
}

/** A body whose end is the end of `call`'s block, with the jumps gone that lead there anyway. */
export function withoutJumps(body: readonly Stmt[], call: InlinedCall): readonly Stmt[] {
  const leaves = (list: readonly Stmt[]): boolean => {
    const last = list.at(-1);
    return last?.kind === 'leave' && last.call === call;
  };
  // The statements after an `if` that leaves on one side belong to its other side.
  const at = body.findIndex((stmt) => stmt.kind === 'if' && (leaves(stmt.then) || leaves(stmt.else)));
  const fork = body[at];
  if (fork?.kind === 'if') {
    const rest = body.slice(at + 1);
    const side = (list: readonly Stmt[]): readonly Stmt[] =>
      withoutJumps(leaves(list) ? list : [...list, ...rest], call);
    return [...body.slice(0, at), ...branch(fork, side(fork.then), side(fork.else))];
  }
  const before = body.slice(0, -1);
  if (leaves(body)) return before;
  const last = body.at(-1);
  if (last?.kind === 'if') {
    const then = withoutJumps(last.then, call);
    return [...before, { ...last, then, else: withoutJumps(last.else, call) }];
  }
  if (last?.kind === 'block') return [...before, { ...last, body: withoutJumps(last.body, call) }];
  return body;
}

/** The `if` with other sides; one with an empty first side is turned round. */
function branch(of: Stmt & { kind: 'if' }, then: readonly Stmt[], otherwise: readonly Stmt[]): Stmt[] {
  if (then.length > 0) return [{ ...of, then, else: otherwise }];
  return otherwise.length === 0 ? [] : branch({ ...of, test: build.not(of.test) }, otherwise, []);
}
