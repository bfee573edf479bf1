import { expect, it } from 'vitest';
import { createReports } from '../../../src/net/fabric/core/reports.js';
import { controlWord, createShared, eventWords, peerLost } from '../../../src/net/fabric/core/shared.js';

function reports(bell = 0) {
  const shared = createShared(4);
  const control = new Int32Array(shared.control);
  control[controlWord.bell] = bell;
  /** The caller sleeps until `more` things have happened. */
  const sleep = (more: number) => {
    control[controlWord.wakeAt] = control[controlWord.bell]! + more;
    control[controlWord.callerSleeps] = 1;
  };
  const asleep = () => control[controlWord.callerSleeps] === 1;
  return { shared, control, sleep, asleep, reports: createReports(shared) };
}

it('a caller that sleeps is woken for as much as it waits for, and not before', () => {
  const { reports: core, sleep, asleep } = reports();
  sleep(3);
  core.landed();
  core.landed();
  core.ring();
  expect(asleep()).toBe(true);
  core.landed();
  expect(asleep()).toBe(true);
  core.ring();
  expect(asleep()).toBe(false);
});

it('a loss wakes it, however much is still lacking', () => {
  for (const lose of ['peerLost', 'immediateLost'] as const) {
    const { reports: core, shared, control, sleep, asleep } = reports();
    sleep(1000);
    core[lose](1);
    core.ring();
    expect(asleep()).toBe(false);
    if (lose === 'peerLost') expect(new Int32Array(shared.peers)[2]).toBe(peerLost);
    else expect(control[controlWord.immediatesLost]).toBe(1);
  }
});

it('the bell counts on past 2^31', () => {
  const { reports: core, sleep, asleep } = reports(2 ** 31 - 2);
  sleep(4);
  for (let i = 0; i < 3; i++) core.landed();
  core.ring();
  expect(asleep()).toBe(true);
  core.landed();
  core.ring();
  expect(asleep()).toBe(false);
});

it('an operation ends with its last request, and with its first error', () => {
  const { reports: core, shared, control } = reports();
  const events = new Int32Array(shared.events);
  new Int32Array(shared.remaining)[2] = 3;
  core.requestEnded(2, 0, 0);
  core.requestEnded(2, 1, 110);
  expect(control[controlWord.eventTail]).toBe(0);
  core.requestEnded(2, 0, 5);
  expect(control[controlWord.eventTail]).toBe(1);
  expect([...events.subarray(0, 3)]).toEqual([2, 110, 1]);
  expect([...new Int32Array(shared.peers, 0, 4)]).toEqual([0, 2, 0, 1]);
  // The ticket serves again, without the error of before.
  new Int32Array(shared.remaining)[2] = 1;
  core.requestEnded(2, 0, 0);
  expect([...events.subarray(eventWords, eventWords + 3)]).toEqual([2, 0, expect.any(Number)]);
});
