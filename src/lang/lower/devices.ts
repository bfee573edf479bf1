/** Calls of device functions: `arrive({ win, epoch })`. */
import type { Node } from 'acorn';
import * as build from '../build.js';
import type { DeviceDefinition } from '../definition.js';
import type { Expr } from '../ir.js';
import type { ParamSpec, PointerParam, ScalarParam } from '../kernel.js';
import type { Call } from './call.js';
import { valueAs } from './coerce.js';
import { describe, type Value } from './values.js';

interface Given {
  readonly values: ReadonlyMap<string, Value>;
  nodeOf(name: string): Node;
}

export function callDevice(call: Call, definition: DeviceDefinition): Value {
  const names = Object.keys(definition.params);
  const given = givenArguments(call, names);
  const lacking = names.filter((name) => !given.values.has(name));
  const extra = [...given.values.keys()].filter((name) => !names.includes(name));
  if (lacking.length > 0) call.fail('HK306', `${call.name} lacks ${lacking.join(', ')}`);
  if (extra.length > 0) {
    call.fail(
      'HK306',
      `${call.name} has no parameter ${extra.join(', ')}; it has ${names.join(', ') || 'none'}`,
    );
  }
  const args = names.flatMap((name) => flatten(call, given, name, definition.params[name]!));
  const { index, returns } = call.ctx.module.callee(definition, call.name, args, call);
  return call.effect({ op: 'call', callee: index, args }, returns, `${call.name}Result`);
}

function givenArguments(call: Call, names: readonly string[]): Given {
  const only = call.args[0];
  if (only === undefined && names.length === 0) return { values: new Map(), nodeOf: () => call.node };
  if (call.args.length !== 1 || only?.value.kind !== 'record') {
    return call.fail(
      'HK305',
      `call a device function with one object: ${call.name}({ ${names.join(', ')} })`,
    );
  }
  const { entries, nodes } = only.value;
  return { values: entries, nodeOf: (name) => nodes?.get(name) ?? only.node };
}

/** The run-time values that one argument consists of: one, or one for each item of a list. */
function flatten(call: Call, given: Given, name: string, spec: ParamSpec): Expr[] {
  const value = given.values.get(name)!;
  const node = given.nodeOf(name);
  const wrong = (wanted: string): never => {
    const was = value.kind === 'expr' ? build.showType(value.expr.type) : describe(value);
    return call.fail('HK305', `${name} of ${call.name} must be ${wanted}, but it is ${was}`, node);
  };
  const single = (of: ScalarParam | PointerParam, item: Value): Expr => {
    if (typeof of !== 'string' && (item.kind !== 'expr' || item.expr.type.kind !== 'pointer')) {
      return wrong(`a pointer to ${of.to}`);
    }
    return valueAs(call.ctx, node, item, paramType(of, item), `for ${name} of ${call.name}`);
  };
  if (typeof spec === 'object' && spec.kind === 'peers') {
    if (value.kind !== 'peers' || value.layout !== spec.layout) {
      return wrong(`the windows of the layout ${spec.layout.name}`);
    }
    return [call.ctx.read(value.variable)];
  }
  if (typeof spec === 'object' && spec.kind === 'list') {
    if (value.kind !== 'list' || value.items.length !== spec.length) return wrong(`a list of ${spec.length}`);
    return value.items.map((item) => single(spec.of, item));
  }
  return [single(spec, value)];
}

/** A device function takes pointers of either space: it is lowered for the spaces that it is called with. */
function paramType(of: ScalarParam | PointerParam, item: Value) {
  if (typeof of === 'string') return build.valueType(of);
  const space = item.kind === 'expr' && item.expr.type.kind === 'pointer' ? item.expr.type.space : 'global';
  return build.pointerType(of.to, space);
}
