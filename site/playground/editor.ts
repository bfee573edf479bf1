/** The editor of a program, whose lines can be marked. */
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { javascript } from '@codemirror/lang-javascript';
import { bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from '@codemirror/language';
import { EditorState, StateEffect, StateField } from '@codemirror/state';
import { Decoration, type DecorationSet, EditorView, keymap, lineNumbers } from '@codemirror/view';
import { classHighlighter } from '@lezer/highlight';

export interface Marks {
  /** Lines that a finding, or an error, points to; from 1. */
  readonly wrong: readonly number[];
  /** The line of the step that is shown; 0 for none. */
  readonly step: number;
}

const setMarks = StateEffect.define<Marks>();

const marks = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(before, { changes, effects, state }) {
    const effect = effects.find((one) => one.is(setMarks));
    if (effect === undefined) return before.map(changes);
    const { wrong, step } = effect.value as Marks;
    const lines = [...new Set([...wrong, step])].filter((n) => n >= 1 && n <= state.doc.lines);
    const decorations = lines.map((n) => {
      const names = [wrong.includes(n) ? 'pg-wrong' : '', n === step ? 'pg-step' : ''];
      return Decoration.line({ class: names.join(' ').trim() }).range(state.doc.line(n).from);
    });
    return Decoration.set(decorations, true);
  },
  provide: (field) => EditorView.decorations.from(field),
});

/** What changes a text by hand; whatever else does, the playground does. */
const userEvents = ['input', 'delete', 'move', 'undo', 'redo'];

export class Editor {
  readonly #view: EditorView;

  constructor(parent: Element, onCheck: () => void, onEdit: () => void) {
    const run = () => {
      onCheck();
      return true;
    };
    this.#view = new EditorView({
      parent,
      state: EditorState.create({
        extensions: [
          lineNumbers(),
          history(),
          indentUnit.of('  '),
          indentOnInput(),
          bracketMatching(),
          javascript({ typescript: true }),
          syntaxHighlighting(classHighlighter),
          marks,
          keymap.of([{ key: 'Mod-Enter', run }, ...defaultKeymap, ...historyKeymap, indentWithTab]),
          EditorView.contentAttributes.of({ 'aria-label': 'Program', spellcheck: 'false' }),
          EditorView.updateListener.of(({ docChanged, transactions }) => {
            if (docChanged && transactions.some((one) => userEvents.some((event) => one.isUserEvent(event))))
              onEdit();
          }),
        ],
      }),
    });
  }

  get text(): string {
    return this.#view.state.doc.toString();
  }

  set text(text: string) {
    const { length } = this.#view.state.doc;
    this.#view.dispatch({ changes: { from: 0, to: length, insert: text } });
  }

  /** Marks lines, and shows that of the step, else the first wrong one. */
  mark(shown: Marks, reveal: boolean): void {
    this.#view.dispatch({ effects: setMarks.of(shown) });
    const line = shown.step || shown.wrong[0] || 0;
    if (!reveal || line < 1 || line > this.#view.state.doc.lines) return;
    const { from } = this.#view.state.doc.line(line);
    // The editor scrolls, the page does not.
    const { top } = this.#view.lineBlockAt(from);
    const { scrollDOM } = this.#view;
    if (top < scrollDOM.scrollTop || top > scrollDOM.scrollTop + scrollDOM.clientHeight - 40) {
      scrollDOM.scrollTop = top - scrollDOM.clientHeight / 2;
    }
  }
}
