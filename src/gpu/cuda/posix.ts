/** The little of POSIX that windows between processes need: who a process is, and taking over its descriptors. */
import { readFileSync, statSync } from 'node:fs';
import { HeddleError, valueOr } from '../../base/errors.js';
import { errno, functionOfC } from '../../base/native/index.js';

// The numbers are the same on x86-64 and arm64.
const sysPidfdOpen = 434;
const sysPidfdGetfd = 438;
const prSetPtracer = 0x59616d61;
const EPERM = 1;
const ESRCH = 3;
const EBADF = 9;
const ENOSYS = 38;

const syscall = functionOfC('syscall', ['i64', 'i64', 'i64', 'i64', 'i64']);
const close = functionOfC('close', ['i32', 'i32']);
const prctl = functionOfC('prctl', ['i32', 'i32', 'i64', 'i64', 'i64', 'i64']);

/** When a process started, in clock ticks since the machine did: with its id, this names a process for good. */
export const startTime = (pid: number): number | null =>
  valueOr(null, () => {
    // The second field is the program's name in parentheses, which may itself hold spaces and parentheses.
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]);
  });

/** An id of this machine's current run, the same in all its processes and containers. */
export const bootId = (): string =>
  valueOr('unknown', () => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim());

/** Names the namespace of this process's ids: a container has one of its own, unless it is told otherwise. */
export const pidNamespace = (): number => valueOr(0, () => statSync('/proc/self/ns/pid').ino);

type Takeover =
  | { readonly ok: true; readonly fd: number }
  | { readonly ok: false; readonly why: 'ended' | 'closed' | 'refused'; readonly detail: string };

/** Duplicates descriptor `fd` of process `pid` into this process. */
export function takeDescriptor(pid: number, fd: number): Takeover {
  const pidfd = syscall(sysPidfdOpen, pid, 0, 0);
  if (pidfd < 0) return refusal('pidfd_open', errno());
  const taken = syscall(sysPidfdGetfd, pidfd, fd, 0);
  const error = errno();
  close(pidfd);
  return taken < 0 ? refusal('pidfd_getfd', error) : { ok: true, fd: taken };
}

function refusal(call: string, error: number): Takeover {
  if (error === ESRCH) return { ok: false, why: 'ended', detail: `${call}: no such process` };
  if (error === EBADF) return { ok: false, why: 'closed', detail: `${call}: no such descriptor` };
  const name = error === EPERM ? 'EPERM' : error === ENOSYS ? 'ENOSYS' : `errno ${error}`;
  return { ok: false, why: 'refused', detail: `${call}: ${name}` };
}

/** Whether the kernel and the container let processes pass descriptors this way at all. */
export function canTakeDescriptors(): boolean {
  const taken = takeDescriptor(process.pid, 0);
  if (taken.ok) closeDescriptor(taken.fd);
  return taken.ok || taken.why === 'closed';
}

/**
 * Lets the other ranks' processes take descriptors of this one. Needed where Yama restricts that to a process's
 * ancestors (kernel.yama.ptrace_scope 1, Ubuntu's and Debian's default); ranks are siblings. Processes of other
 * users stay locked out.
 */
export function allowDescriptorsToBeTaken(): void {
  // Without Yama, nothing restricts it.
  const scope = valueOr('0', () => readFileSync('/proc/sys/kernel/yama/ptrace_scope', 'utf8').trim());
  // The C declaration takes an unsigned long; -1 is PR_SET_PTRACER_ANY.
  if (scope === '1') prctl(prSetPtracer, -1, 0, 0, 0);
}

export function closeDescriptor(fd: number): void {
  if (close(fd) !== 0) {
    throw new HeddleError('HEDDLE_INTERNAL', `descriptor ${fd} could not be closed (errno ${errno()})`);
  }
}
