/** Holds a value against what the header promises of a parameter or a result. */
import type { Node } from 'acorn';
import { heldName } from '../arithmetic.js';
import * as build from '../build.js';
import type { DeviceParam, DeviceParams } from '../kernel.js';
import { valueAs } from './coerce.js';
import type { Context } from './context.js';
import { shown, type Value } from './values.js';

/** The value as the header says it is; `what` names it in an error: 'epoch of arrive'. */
export function take(ctx: Context, node: Node, value: Value, spec: DeviceParam, what: string): Value {
  const wrong = (wanted: string): never =>
    ctx.fail(node, 'HK305', `${what} must be ${wanted}, but it is ${shown(value)}`);
  if (typeof spec === 'string') {
    return { kind: 'expr', expr: valueAs(ctx, { node, value }, build.valueType(spec), `for ${what}`) };
  }
  switch (spec.kind) {
    case 'pointer': {
      if (value.kind !== 'expr' || value.expr.type.kind !== 'pointer')
        return wrong(`a pointer to ${spec.to}`);
      // Either memory will do: the function is lowered for each call.
      const type = build.pointerType(spec.to, value.expr.type.space);
      return { kind: 'expr', expr: valueAs(ctx, { node, value }, type, `for ${what}`) };
    }
    case 'tiles': {
      const type = build.tileType(spec.tile);
      if (value.kind === 'expr' && build.sameType(value.expr.type, type)) return value;
      return wrong(build.showType(type));
    }
    case 'peers':
    case 'tensorMap':
      if (value.kind === 'handle' && build.sameType(value.variable.type, spec)) return value;
      return wrong(
        spec.kind === 'peers' ? `the windows of the layout ${spec.layout.name}` : build.showType(spec),
      );
    case 'window':
      if (value.kind === 'window' && value.layout === spec.layout) return value;
      return wrong(`one rank's window of the layout ${spec.layout.name}`);
    case 'registers': {
      const fits = value.kind === 'registers' && value.of === heldName(spec.of);
      if (fits && (spec.length === undefined || spec.length === value.length)) return value;
      return wrong(`${spec.length === undefined ? '' : `${spec.length} `}registers of ${spec.of}`);
    }
    case 'list': {
      if (value.kind !== 'list' || value.items.length !== spec.length)
        return wrong(`a list of ${spec.length}`);
      const items = value.items.map((item, i) => take(ctx, node, item, spec.of, `${what}[${i}]`));
      return { ...value, items };
    }
    case 'record': {
      if (value.kind !== 'record') return wrong(`an object { ${Object.keys(spec.of).join(', ')} }`);
      return { ...value, entries: takeAll(ctx, node, value, spec.of, what) };
    }
    case 'callable':
      return value.kind === 'device' ? value : wrong('a device function');
    case 'constant': {
      if (value.kind === 'literal' || value.kind === 'string') return value;
      if (value.kind === 'expr' && value.expr.kind === 'const') return value;
      const message = `${what} must be a constant, but \`${ctx.text(node)}\` is known only at run time`;
      return ctx.fail(node, 'HK501', message);
    }
  }
}

/** Everything that `specs` names, and nothing else. */
export function takeAll(
  ctx: Context,
  node: Node,
  given: Value & { kind: 'record' },
  specs: DeviceParams,
  what: string,
): Map<string, Value> {
  const names = Object.keys(specs);
  const lacking = names.filter((name) => !given.entries.has(name));
  const extra = [...given.entries.keys()].filter((name) => !names.includes(name));
  if (lacking.length > 0) ctx.fail(node, 'HK306', `${what} lacks ${lacking.join(', ')}`);
  if (extra.length > 0) {
    const has = names.join(', ') || 'none';
    ctx.fail(node, 'HK306', `${what} has no parameter ${extra.join(', ')}; it has ${has}`);
  }
  return new Map(
    Object.entries(specs).map(([name, spec]) => {
      const at = given.nodes?.get(name) ?? node;
      return [name, take(ctx, at, given.entries.get(name)!, spec, `${name} of ${what}`)];
    }),
  );
}
