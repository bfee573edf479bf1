/**
 * The names of what the shm provider keeps in /dev/shm. Its own are made of process ids, which repeat in a restarted container:
 * then it finds files of a dead process there, and refuses to start. These are never made twice.
 *
 * Beside an endpoint's file lies one that its owner has locked. The lock ends with its owner, however that ends and in whichever
 * namespace of process ids it ran: where it can be had, nobody uses the files any more.
 */
import { randomBytes } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readdirSync, rmSync, statSync } from 'node:fs';
import { constants as system } from 'node:os';
import { join } from 'node:path';
import { isMainThread } from 'node:worker_threads';
import { valueOr } from '../../../base/errors.js';
import { functionOfC } from '../../../base/native/index.js';
import { pidNamespace } from './address.js';

const folder = '/dev/shm';
const beginning = 'heddle-';
/** Stands in an endpoint's name between its lock's name and the rest. */
const separator = '.';

/** Begins the names of this process, and of no other that lives. */
const ofThisProcess = (): string => `${beginning}${pidNamespace()}-${process.pid}-`;

/** Names for the endpoints of one owner: takes a beginning that nobody has, once what dead owners left is removed. */
export function claimShmNames() {
  sweepShm();
  for (;;) {
    const lock = `${ofThisProcess()}${randomBytes(8).toString('hex')}`;
    const descriptor = openSync(
      join(folder, lock),
      constants.O_CREAT | constants.O_EXCL | constants.O_RDWR,
      0o600,
    );
    // Somebody who sweeps may have come in between, and have removed it.
    if (tryLock(descriptor) && isAt(lock, descriptor)) {
      let made = 0;
      return {
        next: (): string => `${lock}${separator}${made++}`,
        /** Once the endpoints are closed. */
        release(): void {
          removeWith(lock);
          closeSync(descriptor);
        },
      };
    }
    closeSync(descriptor);
  }
}

/** Removes what owners left that are gone. */
export function sweepShm(): void {
  for (const name of namesIn(beginning)) {
    if (name.includes(separator)) continue;
    const descriptor = open(name);
    if (descriptor === null) continue;
    if (tryLock(descriptor) && isAt(name, descriptor)) removeWith(name);
    closeSync(descriptor);
  }
}

/** The lock goes last: whoever is ended in between leaves it to the next. */
function removeWith(lock: string): void {
  for (const name of namesIn(`${lock}${separator}`)) rmSync(join(folder, name), { force: true });
  rmSync(join(folder, lock), { force: true });
}

/** None where there is no such folder. */
const namesIn = (start: string): readonly string[] =>
  valueOr([], () => readdirSync(folder).filter((name) => name.startsWith(start)));

/** Null for what is gone, of another user, or no file. Blocks for nothing. */
const open = (name: string): number | null =>
  valueOr(null, () =>
    openSync(join(folder, name), constants.O_RDWR | constants.O_NOFOLLOW | constants.O_NONBLOCK),
  );

function isAt(name: string, descriptor: number): boolean {
  return statSync(join(folder, name), { throwIfNoEntry: false })?.ino === fstatSync(descriptor).ino;
}

const [LOCK_EX, LOCK_NB] = [2, 4] as const;
const flock = functionOfC('flock', ['i32', 'i32', 'i32']);

const tryLock = (descriptor: number): boolean => flock(descriptor, LOCK_EX | LOCK_NB) === 0;

/**
 * The first shm endpoint of a process takes SIGTERM, SIGINT, SIGBUS and SIGSEGV: libfabric then removes the files of all endpoints, and
 * hands the signal to who had it before. A program that handles a signal, and goes on, would be left with endpoints that nobody finds; a
 * peer that is about to answer one of them crashes. So a signal that somebody handles, or ignores, stays with them.
 */
export function keepingSignals<T>(work: () => T): T {
  const before = takenSignals.map(actionOf);
  try {
    return work();
  } finally {
    for (const [n, signal] of takenSignals.entries()) {
      const action = before[n]!;
      // Its first field is the handler: SIG_DFL is zero.
      if (action.readBigUInt64LE() !== 0n && !action.equals(actionOf(signal))) setAction(signal, action, 0);
    }
  }
}

const { SIGTERM, SIGINT, SIGBUS, SIGSEGV } = system.signals;
const takenSignals = [SIGTERM, SIGINT, SIGBUS, SIGSEGV];
const getAction = functionOfC('sigaction', ['i32', 'i32', 'address', 'buffer']);
const setAction = functionOfC('sigaction', ['i32', 'i32', 'buffer', 'address']);

/** A `struct sigaction`: what handles the signal. It is smaller than this everywhere. */
function actionOf(signal: number): Buffer {
  const action = Buffer.alloc(256);
  getAction(signal, 0, action);
  return action;
}

/**
 * Removes the names whenever the process ends and JavaScript still runs. The main thread does it, because the threads
 * of engines are ended without notice.
 */
if (isMainThread)
  process.on('exit', () => {
    for (const name of namesIn(ofThisProcess())) rmSync(join(folder, name), { force: true });
  });
