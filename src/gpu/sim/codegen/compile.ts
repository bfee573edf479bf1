/**
 * From a kernel's IR to JavaScript functions: a plain function where no thread ever has to wait, a generator
 * otherwise.
 */
import type { Expr, InlinedCall, IrModule, Span, Stmt, Variable } from '../../../lang/index.js';
import { changedBy, sharedLayout, walkStatements } from '../../../lang/index.js';
import { arithmetic } from '../arithmetic.js';
import { type Compiled, onceForEachMode, pause } from '../compiled.js';
import type { Site } from '../detector/detector.js';
import { Accesses } from '../late.js';
import { SimBuffer } from '../memory.js';
import { constants, Named } from '../text.js';
import { Effects } from './effects.js';
import { Expressions, type Printing, pureCalls } from './expressions.js';
import { runsOf } from './late-runs.js';
import { Locals, localsOf } from './locals.js';
import { isDebugged, mapComments } from './source-map.js';

export const compile = onceForEachMode(compiled);

/** Kernels that are the same text share their function, and so what V8 learned about it. */
const evaluated = new Map<string, Compiled['run']>();
const mostEvaluated = 512;

function evaluate(text: string): Compiled['run'] {
  let run = evaluated.get(text);
  if (run === undefined) {
    const known = { ...arithmetic, ...pureCalls, noWindow };
    run = new Function(...Object.keys(known), text)(...Object.values(known)) as Compiled['run'];
    const [oldest] = evaluated.keys();
    if (evaluated.size === mostEvaluated) evaluated.delete(oldest!);
    evaluated.set(text, run);
  }
  return run;
}

/** The window of a rank that does not exist, in checked mode: every access to it is out of bounds. */
const noWindow = new SimBuffer(-1, 'the window of a rank that does not exist', -1, 0);

/** Builtins that kernels in PTX read otherwise. */
const prologue: Readonly<Record<string, string>> = {
  laneId: 't.index & 31',
  warpId: 't.index >>> 5',
  rank: 't.block.launch.rank',
};

function compiled(module: IrModule, checked: boolean): Compiled {
  const named = new Named();
  const { ranges } = sharedLayout(module.shared);
  const entryName = `kernel_${module.name.replace(/\W/g, '_')}`;
  const printer = new FunctionPrinter(module, checked, named);
  const { text: entry, spans, isGenerator } = printEntry(module, entryName, printer);
  const code = ["'use strict';", ...entry, `return ${entryName};`];
  if (isDebugged()) code.push(mapComments(module, code, [undefined, ...spans]));
  const text = code.join('\n');
  const run = evaluate(text);
  return {
    module,
    run,
    isGenerator,
    usesWords: /\bwords\[/.test(text),
    // Each array is a buffer of its own.
    shared: ranges.map(({ variable: { name }, elementBytes, length }) => ({
      bytes: elementBytes * length,
      ranges: [{ name, offset: 0, elementBytes, length }],
    })),
    ...named,
    text,
  };
}

/**
 * A generator serves one thread after another: creating one for each would keep the garbage collector busier than
 * the kernel keeps the processor.
 */
function printEntry(module: IrModule, name: string, printer: FunctionPrinter) {
  printer.entry(module);
  const { lines } = printer;
  const arrays = module.shared.map((_, i) => [sharedArray(i), `t.block.shared[${i}]`]);
  const isGenerator = lines.some((line) => /\byield \d/.test(line));
  const head = [
    `function${isGenerator ? '*' : ''} ${name}(t) {`,
    `  ${printer.declaration()}`,
    ...(isGenerator ? ['  for (;;) {'] : []),
    `  ${constants(lines.join('\n'), { ...prologue, ...Object.fromEntries(arrays) })}`,
    ...(isGenerator ? ['  thread: {'] : []),
  ];
  const body = isGenerator ? lines.map((line) => line.replace(/\breturn;$/, 'break thread;')) : lines;
  const tail = isGenerator ? ['  }', `  yield ${pause.end};`, '  }', '}'] : ['}'];
  const spans = [...head.map(() => undefined), ...printer.spans];
  return { text: [...head, ...body, ...tail], spans, isGenerator };
}

function siteOf({ name, sources }: IrModule, span: Span): Site {
  const source = sources[span.source];
  const at = source?.position(span.start);
  return {
    kernel: name,
    span,
    where: at === undefined ? name : `${source!.file}:${at.line}:${at.column}`,
    text: source?.piece(span.start, span.end) ?? '',
  };
}

/** The register arrays that operations take whole. */
function changedArrays(body: readonly Stmt[]): readonly Variable[] {
  const found = new Set<Variable>();
  walkStatements(body, (stmt) => {
    if (stmt.kind === 'effect') for (const array of changedBy(stmt.effect)) found.add(array);
  });
  return [...found];
}

type Loop = Extract<Stmt, { kind: 'while' | 'for' }>;

/** The buffer of a shared array, in generated code. */
const sharedArray = (index: number): string => `shared${index}`;

class FunctionPrinter {
  readonly lines: string[] = [];
  /** The statement that each line belongs to. */
  readonly spans: (Span | undefined)[] = [];
  #indent = 1;
  #labels = 0;
  /** `polls`: looks at memory that others may change meanwhile. */
  readonly #loops: { readonly outer: string; readonly inner: string; polls: boolean }[] = [];
  #span: Span | undefined;
  readonly #calls = new Map<InlinedCall, string>();
  readonly #locals: Locals;
  readonly #expressions: Expressions;
  readonly #effects: Effects;
  readonly #accesses: Accesses<Stmt>;
  readonly #checked: boolean;
  readonly #module: IrModule;
  readonly #named: Named;

  constructor(module: IrModule, checked: boolean, named: Named) {
    const { entry, cluster } = module;
    this.#locals = new Locals(changedArrays(entry.body));
    this.#checked = checked;
    this.#module = module;
    this.#named = named;
    const printing: Printing = {
      ...{ checked, named, inCluster: cluster > 1, locals: this.#locals },
      emit: (line) => this.#emit(line),
      site: () => this.#site(this.#span!),
      polls: () => {
        const loop = this.#loops.at(-1);
        if (loop !== undefined) loop.polls = true;
      },
    };
    this.#expressions = new Expressions(printing);
    this.#accesses = new Accesses(checked ? runsOf(entry.body) : [], {
      ...printing,
      lines: this.lines,
      local: () => this.#locals.temporary('q'),
      keep: (keeps) => this.#locals.keep(keeps),
      repeats: () => {},
    });
    this.#effects = new Effects(printing, this.#expressions, this.#accesses);
  }

  #site(span: Span): number {
    return this.#named.sites.push(siteOf(this.#module, span)) - 1;
  }

  #emit(line: string): void {
    this.lines.push('  '.repeat(this.#indent) + line);
    this.spans.push(this.#span);
  }

  entry({ entry, shared }: IrModule): void {
    const params = entry.params.flatMap((param) => localsOf(this.#locals.declare(param)));
    // Each array is a buffer of its own, so that an index past its end is out of bounds.
    for (const [i, { variable }] of shared.entries())
      this.#locals.bind(variable, { kind: 'pointer', buffer: sharedArray(i), offset: '0' });
    for (const [i, param] of params.entries()) this.#emit(`${param} = args[${i}];`);
    this.#body(entry.body);
  }

  declaration(): string {
    return this.#locals.declaration();
  }

  #body(statements: readonly Stmt[]): void {
    this.#locals.enterScope();
    for (const statement of statements) {
      this.#accesses.before(statement);
      this.#statement(statement);
      this.#accesses.after(statement);
      this.#locals.endStatement();
    }
    this.#locals.leaveScope();
  }

  #nested(statements: readonly Stmt[]): void {
    this.#indent++;
    this.#locals.endStatement();
    this.#body(statements);
    this.#indent--;
  }

  #statement(s: Stmt): void {
    this.#span = s.span;
    switch (s.kind) {
      case 'let': {
        // Evaluated before the variable takes its locals: they are fresh, so nothing it reads is overwritten.
        let values = s.init === null ? [] : this.#values(s.init);
        const bounds = s.init === null || s.variable.mutable ? null : this.#expressions.boundsOf(s.init);
        const names = [...localsOf(this.#locals.declare(s.variable))];
        if (bounds !== null) {
          names.push(this.#locals.bindBounds(s.variable, bounds));
          values = [...values, bounds.start];
        }
        this.#set(names, values);
        return;
      }
      case 'registers': {
        const fill = this.#values(s.fill);
        const slot = this.#locals.declare(s.variable);
        if (slot.kind === 'registers' && slot.array !== null) {
          const { arrays } = this.#locals;
          const { type } = s.variable;
          const words = type.kind === 'registers' && type.of !== 'f32' ? ', true' : '';
          const made = `t.sums(${arrays.indexOf(s.variable)}, ${slot.elements.length}${words})`;
          this.#emit(`${slot.array} = ${made};`);
          this.#expressions.touch(s.variable);
          this.#emit(`${slot.array}.fill(${fill[0]});`);
          return;
        }
        const names = localsOf(slot);
        this.#set(
          names,
          names.map((_, i) => fill[i % fill.length]!),
        );
        return;
      }
      case 'assign':
        this.#assign(s);
        return;
      case 'assignRegister':
        this.#expressions.touch(s.array);
        this.#assignTo(this.#locals.slot(s.array, 'registers').elements[s.index]!, this.#values(s.value));
        return;
      case 'effect':
        this.#effects.effect(s.effect, s.result, this.#site(s.span));
        return;
      case 'if':
        this.#emit(`if (${this.#expressions.scalar(s.test)}) {`);
        this.#nested(s.then);
        if (s.else.length > 0) {
          this.#emit('} else {');
          this.#nested(s.else);
        }
        this.#emit('}');
        return;
      case 'for':
        this.#locals.enterScope();
        for (const init of s.init) {
          this.#statement(init);
          this.#locals.endStatement();
        }
        this.#loop(s, s.update);
        this.#locals.leaveScope();
        return;
      case 'while':
        this.#loop(s, []);
        return;
      case 'break':
        this.#emit(`break ${this.#loops.at(-1)!.outer};`);
        return;
      case 'continue':
        this.#emit(`break ${this.#loops.at(-1)!.inner};`);
        return;
      case 'return':
        this.#emit('return;');
        return;
      case 'block':
        this.#emit(s.call === null ? '{' : `${this.#labelOf(s.call)}: {`);
        this.#nested(s.body);
        this.#emit('}');
        return;
      case 'foreign':
        if (s.result !== null) this.#locals.declare(s.result);
        this.#emit('{');
        this.#nested(s.twin);
        this.#emit('}');
        return;
      case 'leave':
        this.#emit(`break ${this.#labelOf(s.call)};`);
        return;
    }
  }

  #labelOf(call: InlinedCall): string {
    const label = this.#calls.get(call) ?? `call${this.#calls.size}`;
    this.#calls.set(call, label);
    return label;
  }

  #values(e: Expr): readonly string[] {
    if (e.type.kind === 'pointer') {
      const { buffer, offset } = this.#expressions.address(e);
      return [buffer, offset];
    }
    if (e.type.kind === 'value' && e.type.name === 'v16') return this.#expressions.words(e);
    return [this.#expressions.scalar(e)];
  }

  #assign(s: Extract<Stmt, { kind: 'assign' }>): void {
    const values = this.#values(s.value);
    const { type } = s.variable;
    if (type.kind === 'value' && type.name === 'v16') {
      this.#assignTo(this.#locals.slot(s.variable, 'v16').words, values);
    } else if (type.kind === 'pointer') {
      const { buffer, offset } = this.#locals.slot(s.variable, 'pointer');
      if (values[0] !== buffer) this.#emit(`${buffer} = ${values[0]};`);
      this.#emit(`${offset} = ${values[1]};`);
    } else {
      this.#assignTo([this.#locals.slot(s.variable, 'scalar').name], values);
    }
  }

  #assignTo(names: readonly string[], values: readonly string[]): void {
    // The new words of a vector may read the old ones.
    const held = names.length === 1 ? values : values.map((v) => this.#expressions.simple(`(${v})`, 'i'));
    this.#set(names, held);
  }

  #set(names: readonly string[], values: readonly string[]): void {
    for (const [i, value] of values.entries()) this.#emit(`${names[i]} = ${value};`);
  }

  /** The test may need statements of its own, and `continue` must run the update: hence the two labels. */
  #loop({ test, body, span }: Loop, update: readonly Stmt[]): void {
    const outer = `loop${this.#labels}`;
    const inner = `body${this.#labels++}`;
    const loop = { outer, inner, polls: false };
    this.#loops.push(loop);
    this.#emit(`${outer}: for (;;) {`);
    this.#indent++;
    this.#emit(`if (!${this.#expressions.scalar(test)}) break;`);
    this.#locals.endStatement();
    this.#emit(`${inner}: {`);
    this.#nested(body);
    this.#emit('}');
    for (const statement of update) {
      this.#statement(statement);
      this.#locals.endStatement();
    }
    // A loop that polls by itself must let others run, or it would wait forever for what they write.
    if (this.#checked)
      this.#emit(`if (++t.turns > t.block.launch.mostTurns) t.endless(${this.#site(span)});`);
    else if (loop.polls) this.#emit(`yield ${pause.preempt};`);
    this.#indent--;
    this.#emit('}');
    this.#loops.pop();
  }
}
