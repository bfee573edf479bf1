/** The playground: a program, what the checker says of it, the schedule that shows it, the CUDA it becomes. */

import type { Step } from '../../src/gpu/sim/index.js';
import { mended, programs, type ShownProgram } from '../../test/gpu/sim/gallery/programs.js';
import { Checker } from './checker.js';
import { html } from './dom.js';
import { Editor } from './editor.js';
import * as edits from './edits.js';
import type { FoundMistake, Outcome } from './explore.js';
import { Timeline } from './timeline.js';
import './style.css';

const texts: Record<string, string> = import.meta.glob('../../test/gpu/sim/gallery/programs/*.ts', {
  query: '?raw',
  import: 'default',
  eager: true,
});
const textOf = ({ file }: ShownProgram): string => texts[`../../test/gpu/sim/gallery/programs/${file}`]!;

/** Puts the playground into an element; the result takes it out again. */
export function mount(parent: Element): () => void {
  const playground = new Playground(parent);
  return () => playground.end();
}

class Playground {
  readonly #checker = new Checker();
  readonly #editor: Editor;
  readonly #timeline: Timeline;
  #shown: ShownProgram;
  #wrong: readonly number[] = [];

  readonly #choice = html('select', {
    'aria-label': 'Exhibit',
    change: () => this.#choose(this.#choice.value),
  });
  readonly #mend = html('input', { type: 'checkbox', id: 'pg-mend', change: () => this.#revert() });
  readonly #original = html(
    'button',
    { class: 'pg-original', title: 'Drops your edits', click: () => this.#revert() },
    'Original',
  );
  readonly #stop = html('button', { class: 'pg-stop', click: () => this.#stopped() }, 'Stop');
  readonly #about = html('p', { class: 'pg-about' });
  readonly #verdict = html('p', { class: 'pg-verdict', role: 'status' });
  readonly #findings = html('div', { class: 'pg-findings' });
  readonly #schedule = html('section', { class: 'pg-schedule', 'aria-label': 'Schedule' });
  readonly #slider = html('input', {
    type: 'range',
    min: 1,
    'aria-label': 'Step',
    input: () => this.#timeline.go(Number(this.#slider.value) - 1),
  });
  readonly #told = html('p', { class: 'pg-told' });
  readonly #cuda = html('details', { class: 'pg-cuda', open: true });

  constructor(parent: Element) {
    this.#timeline = new Timeline((step, text) => this.#stepped(step, text));
    for (const { file, title } of programs) this.#choice.append(html('option', { value: file }, title));
    const code = html('div', { class: 'pg-editor' });
    const step = (by: number, label: string, sign: string) =>
      html(
        'button',
        { 'aria-label': label, click: () => this.#timeline.go(this.#timeline.position + by) },
        sign,
      );
    const keys = (event: Event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[(event as KeyboardEvent).key];
      if (by === undefined || event.target === this.#slider) return;
      event.preventDefault();
      this.#timeline.go(this.#timeline.position + by);
    };
    this.#schedule.append(
      html('h2', {}, 'The schedule'),
      html('div', { class: 'pg-steps' }, step(-1, 'Step back', '◀'), this.#slider, step(1, 'Step', '▶')),
      this.#told,
      this.#timeline.element,
      legend(),
    );
    this.#schedule.addEventListener('keydown', keys);
    parent.replaceChildren(
      html(
        'div',
        { class: 'pg' },
        html(
          'header',
          {},
          html('h1', {}, 'Playground'),
          html('p', {}, 'The simulated machine and its race detector, in your browser. Nothing leaves it.'),
        ),
        html(
          'div',
          { class: 'pg-bar' },
          this.#choice,
          html('label', { for: 'pg-mend' }, this.#mend, 'mended'),
          html('button', { class: 'pg-check', title: 'Ctrl+Enter', click: () => this.#check() }, 'Check'),
          this.#stop,
          this.#original,
          this.#verdict,
        ),
        this.#about,
        html(
          'div',
          { class: 'pg-columns' },
          html('div', { class: 'pg-left' }, code),
          html('div', { class: 'pg-right' }, this.#findings, this.#schedule, this.#cuda),
        ),
      ),
    );
    this.#editor = new Editor(
      code,
      () => void this.#check(),
      () => this.#edited(),
    );
    this.#shown =
      programs.find(({ file }) => `#${file.replace('.ts', '')}` === location.hash) ?? programs[0]!;
    this.#choice.value = this.#shown.file;
    this.#load();
  }

  end(): void {
    this.#checker.end();
  }

  #choose(file: string): void {
    this.#shown = programs.find((one) => one.file === file)!;
    this.#mend.checked = false;
    history.replaceState(history.state, '', `#${file.replace('.ts', '')}`);
    this.#load();
  }

  /** Takes away what was said of an earlier text. */
  #clear(): void {
    this.#findings.replaceChildren();
    this.#cuda.replaceChildren();
    this.#timeline.show([], []);
    this.#schedule.hidden = true;
    this.#cuda.hidden = true;
  }

  /** Shows the program: as the visitor left it, else as it is. */
  #load(): void {
    this.#clear();
    const text = textOf(this.#shown);
    const edited = edits.of(this.#shown.file);
    this.#original.hidden = edited === null;
    this.#editor.text = edited ?? (this.#mend.checked ? mended(text, this.#shown) : text);
    this.#about.textContent = this.#shown.about;
    void this.#check();
  }

  #revert(): void {
    edits.drop(this.#shown.file);
    this.#load();
  }

  #edited(): void {
    edits.keep(this.#shown.file, this.#editor.text);
    this.#original.hidden = false;
    this.#wrong = [];
    // It is that of another text; the findings stay, for they are what is being mended.
    this.#cuda.hidden = true;
    this.#editor.mark({ wrong: [], step: 0 }, false);
    this.#say('edited', 'Edited: press Check, or Ctrl+Enter.');
  }

  async #check(): Promise<void> {
    this.#say('running', 'Checking …');
    try {
      const outcome = await this.#checker.check(this.#shown.file, this.#editor.text);
      if (outcome !== null) this.#show(outcome);
    } catch (error) {
      this.#fail(error instanceof Error ? error.message : String(error), 0);
    }
  }

  #stopped(): void {
    this.#checker.end();
    this.#clear();
    this.#say('edited', 'Stopped: press Check to begin again.');
  }

  #say(state: 'edited' | 'running' | 'clean' | 'wrong', text: string): void {
    this.#stop.hidden = state !== 'running';
    this.#verdict.className = `pg-verdict pg-${state}`;
    this.#verdict.textContent = text;
  }

  #fail(message: string, line: number): void {
    this.#clear();
    this.#say('wrong', 'This is no program yet.');
    this.#findings.replaceChildren(html('pre', {}, message));
    this.#wrong = [line];
    this.#editor.mark({ wrong: this.#wrong, step: 0 }, true);
  }

  #show({ error, findings, kernels, milliseconds, schedules, schedule, steps }: Outcome): void {
    if (error !== null) {
      this.#fail(error.message, error.line);
      return;
    }
    const time = `${(milliseconds / 1000).toFixed(2)} s`;
    const tried = schedules === 1 ? 'the first schedule' : `schedule ${schedules}`;
    if (findings.length === 0) this.#say('clean', `Nothing found in ${schedules} schedules, ${time}.`);
    else {
      const [{ byTheLetter, kind }] = findings as [FoundMistake];
      const letter = byTheLetter ? ' by the letter of PTX, which GPUs order today' : '';
      this.#say('wrong', `${titles[kind]}${letter}: found in ${tried}, ${time}.`);
    }
    this.#findings.replaceChildren(
      ...findings.map((finding) =>
        html('button', { click: () => this.#point(finding, steps) }, finding.text),
      ),
    );
    this.#schedule.hidden = steps.length === 0;
    this.#schedule.querySelector('h2')!.textContent = `The schedule ${schedule}, step by step`;
    this.#cuda.hidden = kernels.length === 0;
    const cuda = kernels.map((kernel) => html('pre', {}, kernel.cuda));
    this.#cuda.replaceChildren(html('summary', {}, 'The CUDA it becomes'), ...cuda);
    // The kernel stands behind what it uses.
    for (const text of cuda) text.scrollTop = text.scrollHeight;
    this.#wrong = [];
    if (findings.length > 0) this.#point(findings[0]!, steps);
    else this.#timeline.show(steps, []);
  }

  /** Marks a finding's lines, and shows its steps. */
  #point(finding: FoundMistake, steps: readonly Step[]): void {
    this.#wrong = finding.lines;
    this.#timeline.show(steps, finding.steps);
    if (steps.length === 0) this.#editor.mark({ wrong: this.#wrong, step: 0 }, true);
  }

  #stepped({ where }: Step, text: string): void {
    const { length, position } = this.#timeline;
    this.#slider.max = String(length);
    this.#slider.value = String(position + 1);
    this.#told.textContent = `Step ${position + 1} of ${length}: ${text}.`;
    const line = Number(/:(\d+)(?::\d+)?$/.exec(where)?.[1] ?? 0);
    this.#editor.mark({ wrong: this.#wrong, step: line }, true);
  }
}

const titles: Readonly<Record<FoundMistake['kind'], string>> = {
  race: 'A data race',
  'uninitialised-read': 'A read of memory that nobody wrote',
  'out-of-bounds': 'An access out of bounds',
  misaligned: 'A misaligned access',
  misuse: 'A misuse of the machine',
  divergence: 'Divergence',
  'stuck-wait': 'A wait that nobody will end',
  'wrong-result': 'A wrong result',
  failure: 'A failure',
};

function legend(): HTMLElement {
  const items = [
    ['pg-key-read', 'read'],
    ['pg-key-write', 'write'],
    ['pg-key-flag', 'atomic: a flag, a count'],
    ['pg-key-barrier', 'barrier, fence'],
    ['pg-key-sees', 'sees that store'],
    ['pg-key-race', 'nothing orders these two'],
  ] as const;
  return html(
    'p',
    { class: 'pg-legend' },
    ...items.map(([name, text]) => html('span', { class: name }, text)),
  );
}
