/** Functions that a kernel calls become part of it: each call a copy, with registers, labels and memory of its own. */
import {
  PtxError,
  type PtxFunction,
  type PtxInstruction,
  type PtxLocation,
  type PtxModule,
  type PtxOperand,
  type PtxSymbol,
  placeOfLine,
} from './module.js';

/** What a copy of a function calls its registers and symbols. */
interface Names {
  readonly suffix: string;
  /** Names of its own symbols and parameters; all others have theirs from the module. */
  readonly symbols: ReadonlyMap<string, string>;
}

/** A function that calls others more often than this would take minutes to expand, and no compiler makes one. */
const mostCalls = 4096;

/** The function with all that it calls and that has a body in the module. */
export function withCalls(module: PtxModule, of: PtxFunction): PtxFunction {
  let copies = 0;

  function expand(caller: PtxFunction, above: readonly string[]): PtxFunction {
    const instructions: PtxInstruction[] = [];
    const variables = [...caller.variables];
    const labels = new Map<string, number>();
    const tables = new Map(caller.tables);
    /** Where each instruction is now. */
    const moved: number[] = [];
    for (const one of caller.instructions) {
      moved.push(instructions.length);
      const called = one.parts[0] === 'call' ? calledBy(module, one) : null;
      if (called === null) {
        instructions.push(one);
        continue;
      }
      const { name } = called.callee;
      if (above.includes(name))
        throw new PtxError(placeOfLine(module, one.line), `'${name}' calls itself, which is not simulated`);
      if (++copies > mostCalls)
        throw new PtxError(
          placeOfLine(module, one.line),
          `functions are called more than ${mostCalls} times in all`,
        );
      const suffix = `@${copies}`;
      const callee = expand(called.callee, [...above, name]);
      const behind = `return${suffix}`;
      const own = callee.variables.filter(({ space }) => space === 'local' || space === 'param');
      const ownNames = [
        ...callee.labels.keys(),
        ...callee.tables.keys(),
        ...own.map((variable) => variable.name),
      ];
      const symbols = new Map([
        ...ownNames.map((symbol) => [symbol, symbol + suffix] as const),
        ...called.parameters,
      ]);
      const names: Names = { suffix, symbols };
      const back = (from: PtxInstruction): PtxInstruction => ({
        ...{ ...from, parts: ['bra'], operands: [{ kind: 'symbol', name: behind, offset: 0 }] },
      });
      if (one.guard !== null)
        instructions.push({ ...back(one), guard: { ...one.guard, negated: !one.guard.negated } });
      const first = instructions.length;
      for (const inner of callee.instructions) {
        const guard =
          inner.guard === null ? null : { ...inner.guard, register: renamed(inner.guard.register, names) };
        const source = calledFrom(inner.source, one.source);
        const operands = inner.operands.map((operand) => renamed(operand, names));
        const copy = { ...inner, guard, operands, source };
        instructions.push(copy.parts[0] === 'ret' ? back(copy) : copy);
      }
      for (const [label, at] of callee.labels) labels.set(label + suffix, first + at);
      for (const [table, to] of callee.tables)
        tables.set(
          table + suffix,
          to.map((label) => label + suffix),
        );
      labels.set(behind, instructions.length);
      for (const variable of callee.variables) {
        if (own.includes(variable)) variables.push({ ...variable, name: variable.name + suffix });
        else if (!variables.includes(variable)) variables.push(variable);
      }
    }
    moved.push(instructions.length);
    for (const [label, at] of caller.labels) labels.set(label, moved[at]!);
    return { ...caller, instructions, variables, labels, tables };
  }

  return expand(of, [of.name]);
}

/** The function whose body is here, and what its parameters are there; null where another part knows it or refuses it. */
function calledBy(module: PtxModule, { operands, line }: PtxInstruction) {
  const at = operands.findIndex(({ kind }) => kind !== 'list');
  const name = operands[at];
  const callee = name?.kind === 'symbol' ? module.functions.get(name.name) : undefined;
  if (callee === undefined) return null;
  const given = (list: PtxOperand | undefined): readonly PtxOperand[] =>
    list?.kind === 'list' ? list.elements : [];
  const values = [...given(at > 0 ? operands[0] : undefined), ...given(operands[at + 1])];
  const parameters = [...callee.returns, ...callee.params];
  if (
    values.length !== parameters.length ||
    !values.every((value): value is PtxSymbol => value.kind === 'symbol')
  )
    throw new PtxError(placeOfLine(module, line), `'${callee.name}' takes ${parameters.length} variables`);
  return { callee, parameters: parameters.map((one, i) => [one.name, values[i]!.name] as const) };
}

function renamed<T extends PtxOperand>(operand: T, names: Names): T;
function renamed(operand: PtxOperand, names: Names): PtxOperand {
  switch (operand.kind) {
    case 'register':
      return { ...operand, name: operand.name + names.suffix };
    case 'symbol':
      return { ...operand, name: names.symbols.get(operand.name) ?? operand.name };
    case 'address':
      return {
        ...operand,
        base: renamed(operand.base, names),
        coordinates: operand.coordinates.map((one) => renamed(one, names)),
      };
    case 'list':
      return { ...operand, elements: operand.elements.map((one) => renamed(one, names)) };
    case 'pair':
      return { ...operand, first: renamed(operand.first, names), second: renamed(operand.second, names) };
    case 'not':
      return { ...operand, of: renamed(operand.of, names) };
    default:
      return operand;
  }
}

/** A place in a function that was called is told like one that was inlined. */
function calledFrom(source: PtxLocation | null, call: PtxLocation | null): PtxLocation | null {
  return source === null
    ? null
    : { ...source, inlinedAt: source.inlinedAt === null ? call : calledFrom(source.inlinedAt, call) };
}
