/** Virtual machines with a network of their own, whose NICs are RDMA devices in software (soft-RoCE). test/machines/make makes what they boot. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { root } from '../tree.js';

const made = join(root, '.machines');

/** Whether test/machines/make has been run. */
export const areMade = (): boolean => existsSync(join(made, 'initrd'));

/** NICs of each machine: eth0 and rxe0, eth1 and rxe1. By eth2 it reaches what listens on loopback of this one. */
const nics = [0, 1];
/** The address of this machine for the virtual ones. */
export const outside = '10.0.2.2';
const memoryMiB = 3072;

/** Node.js that compiles nothing for speed: an emulated processor spends more on the compiler, and on code that is new to it. */
export const node = `${process.execPath} --no-opt --no-sparkplug`;

/** A group of control of a machine, whose commands share a limit of memory. */
const group = '/sys/fs/cgroup/ranks';
/** The command, in that group. */
export const inGroup = (command: string) => `mkdir -p ${group}; echo $$ >${group}/cgroup.procs; ${command}`;
/** The command that limits the memory of the group: to `20M`, or `max`. */
export const limitMemory = (limit: string) => `echo ${limit} >${group}/memory.max`;

/** The command that counts in which calls of its kernel the threads of programs are. */
const wherePrograms =
  'for t in /proc/[0-9]*/task/*; do read -r _ <$t/maps && echo "$(<$t/comm) in $(<$t/wchan)"; done 2>/dev/null | sort | uniq -c';

/** Longer than anything takes on busy processors but what hangs. */
const longestMs = 300_000;

/** Rejects where it takes too long, and says what hangs. */
async function inTime<T>(what: string, promise: Promise<T>): Promise<T> {
  const over = new AbortController();
  const hangs = delay(longestMs, undefined, { signal: over.signal }).then(() => {
    throw new Error(`it hangs for ${longestMs / 1000} s: ${what}`);
  });
  try {
    return await Promise.race([promise, hangs]);
  } finally {
    over.abort();
  }
}

/** A command that runs in a machine. Whoever waits for it too long hears so. */
export interface Command {
  /** All that it has printed so far, by lines. */
  readonly lines: readonly string[];
  /** Resolves once it has printed a line like this, from now on. */
  prints(pattern: RegExp): Promise<void>;
  /** Likewise, also where it has printed one before. */
  hasPrinted(pattern: RegExp): Promise<void>;
  /** Resolves with its exit code; null where its machine went first. */
  ends(): Promise<number | null>;
}

/** Two machines, 0 and 1, in a network of their own. */
export class Machines {
  readonly #folder = mkdtempSync(join(tmpdir(), 'heddle-machines-'));
  readonly #machines: Machine[] = [];

  /** Boots a machine: at first, or again after it lost its power. */
  async boot(n: number): Promise<void> {
    const machine = new Machine(n, this.#folder);
    this.#machines[n] = machine;
    await inTime(`machine ${n} boots`, machine.booted);
  }

  at(n: number): Machine {
    return this.#machines[n]!;
  }

  /** What each machine's commands printed last, each line behind its second, where their threads wait, and what its kernel said last. */
  async report(): Promise<string> {
    const lines = this.#machines.map(async (machine) => {
      const threads = machine.run(wherePrograms);
      await Promise.race([threads.ends(), delay(20_000)]);
      const kernel = readFileSync(join(this.#folder, `console${machine.n}`), 'utf8');
      return [`machine ${machine.n}:`, ...machine.last, 'its kernel:', ...kernel.split('\n').slice(-10)];
    });
    return (await Promise.all(lines)).flat().join('\n');
  }

  async losePower(): Promise<void> {
    await Promise.all(this.#machines.map((machine) => machine.losePower()));
  }

  async end(): Promise<void> {
    await this.losePower();
    rmSync(this.#folder, { recursive: true });
  }
}

class Machine {
  readonly #commands = new Map<string, { hear(line: string): void; end(code: number): void }>();
  #count = 0;
  readonly #process: ChildProcess;
  readonly #gone: Promise<null>;
  #port: Socket | undefined;
  /** Until then it takes no commands. */
  readonly booted: Promise<void>;
  /** What was sent and what came back of late, each behind its second. */
  readonly last: string[] = [];

  constructor(
    readonly n: number,
    folder: string,
  ) {
    const path = (name: string) => join(folder, name);
    for (const nic of nics) rmSync(path(`nic${nic}-${n}`), { force: true });
    const server = createServer().listen(path(`port${n}`));
    const [version] = readdirSync(join(made, 'kernel/lib/modules'));
    this.#process = spawn(
      'qemu-system-x86_64',
      [
        ...['-accel', 'tcg,thread=multi', '-cpu', 'max', '-smp', '2', '-m', `${memoryMiB}`],
        ...['-display', 'none', '-no-reboot', '-nodefaults'],
        ...['-serial', `file:${path(`console${n}`)}`, '-serial', `unix:${path(`port${n}`)}`],
        ...['-kernel', join(made, 'kernel/boot', `vmlinuz-${version}`), '-initrd', join(made, 'initrd')],
        ...['-append', `console=ttyS0 quiet panic=1 no_timer_check net.ifnames=0 machine=${n}`],
        ...['-fsdev', 'local,id=root,path=/,security_model=none,readonly=on,multidevs=remap'],
        ...['-device', 'virtio-9p-pci,fsdev=root,mount_tag=root'],
        ...nics.flatMap((nic) => {
          const [own, other] = [n, 1 - n].map((of) => path(`nic${nic}-${of}`));
          const ends = `local.type=unix,local.path=${own},remote.type=unix,remote.path=${other}`;
          const mac = `52:54:00:00:0${nic}:0${n}`;
          return [
            ...['-netdev', `dgram,id=nic${nic},${ends}`],
            ...['-device', `virtio-net-pci,netdev=nic${nic},mac=${mac}`],
          ];
        }),
        ...['-netdev', 'user,id=out', '-device', 'virtio-net-pci,netdev=out'],
      ],
      { stdio: ['ignore', 'ignore', 'inherit'] },
    );
    this.#gone = once(this.#process, 'exit').then(() => null);
    this.booted = this.#begin(server);
  }

  async #begin(server: Server): Promise<void> {
    const connected = await Promise.race([once(server, 'connection') as Promise<[Socket]>, this.#gone]);
    server.close();
    if (connected === null) throw new Error('qemu ended before its machine had begun');
    const [port] = connected;
    this.#port = port.on('error', () => {}); // its end says as much
    await new Promise<void>((resolve, reject) => {
      void this.#gone.then(() => reject(new Error(`machine ${this.n} ended before it had begun`)));
      createInterface(port).on('line', (line) => {
        this.#note(line);
        if (line === 'ready') resolve();
        const [, id, ended, text] = /^(\d+)(!?) (.*)$/.exec(line) ?? [];
        const command = this.#commands.get(id ?? '');
        if (ended) command?.end(Number(text));
        else command?.hear(text ?? '');
      });
    });
  }

  /** Begins a command of bash. */
  run(command: string): Command {
    const id = String(this.#count++);
    const lines: string[] = [];
    const waiting = new Set<(line: string) => void>();
    const last = new Promise<number>((resolve) => {
      this.#commands.set(id, {
        hear(line) {
          lines.push(line);
          for (const look of waiting) look(line);
        },
        end: resolve,
      });
    });
    const ended = Promise.race([last, this.#gone]);
    const name = `command ${id} of machine ${this.n}`;
    this.#note(`${id} > ${command.slice(0, 160)}`);
    this.#port?.write(`${id} ${command}\n`);
    const prints = (pattern: RegExp) => {
      const printed = new Promise<void>((resolve, reject) => {
        const look = (line: string) => {
          if (!pattern.test(line)) return;
          waiting.delete(look);
          resolve();
        };
        waiting.add(look);
        void ended.then((code) => reject(new Error(`${name} ended with ${code}:\n${lines.join('\n')}`)));
      });
      return inTime(`${name} prints ${pattern}`, printed);
    };
    const hasPrinted = async (pattern: RegExp) => {
      if (!lines.some((line) => pattern.test(line))) await prints(pattern);
    };
    return { lines, prints, hasPrinted, ends: () => inTime(`${name} ends`, ended) };
  }

  #note(line: string): void {
    this.last.push(`${(performance.now() / 1000).toFixed(1)} ${line}`);
    if (this.last.length > 40) this.last.shift();
  }

  /** Stops its clock and all that it does, or lets it go on. */
  freeze(yes: boolean): void {
    this.#process.kill(yes ? 'SIGSTOP' : 'SIGCONT');
  }

  /** Takes the power away. */
  async losePower(): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.#gone;
  }
}
