/** How generated code brings the lanes of a warp together: what each brings, and what it gets. */
import { pause } from '../compiled.js';
import type { Instruction } from './code.js';
import { type LaneMeeting, laneWords } from './lanes.js';

export const give = (x: Instruction, word: number, value: string): void =>
  x.code.line(`parts[${laneWords} * threadIdx + ${word}] = ${value};`);
export const got = (word: number): string => `parts[${laneWords} * threadIdx + ${word}]`;

/** Brings words to the lanes that a mask names, and waits for them. */
export function meet(x: Instruction, meeting: LaneMeeting, mask: string, words: readonly string[]): void {
  words.forEach((word, i) => {
    give(x, i, word);
  });
  const { meetings } = x.code.around;
  const number = meetings.push(meeting) - 1;
  x.code.line(`t.meetLanes(meetings[${number}], ${mask}, ${x.site}); yield ${pause.lanes};`);
}
