/** Virtual machines with a network of their own, whose NICs are RDMA devices in software (soft-RoCE). test/machines/make makes what they boot. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
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

/** A command that runs in a machine. */
export interface Command {
  /** All that it has printed so far, by lines. */
  readonly lines: readonly string[];
  /** Resolves once it has printed a line like this, from now on. */
  prints(pattern: RegExp): Promise<void>;
  /** Likewise, also where it has printed one before. */
  hasPrinted(pattern: RegExp): Promise<void>;
  /** Resolves with its exit code; null where its machine went first. */
  readonly ended: Promise<number | null>;
}

/** Two machines, 0 and 1, in a network of their own. */
export class Machines {
  readonly #folder = mkdtempSync(join(tmpdir(), 'heddle-machines-'));
  readonly #machines: Machine[] = [];

  static async boot(): Promise<Machines> {
    const machines = new Machines();
    await Promise.all([machines.boot(0), machines.boot(1)]);
    return machines;
  }

  /** Boots a machine: at first, or again after it lost its power. */
  async boot(n: number): Promise<void> {
    this.#machines[n] = await Machine.boot(n, this.#folder);
  }

  at(n: number): Machine {
    return this.#machines[n]!;
  }

  /** What each machine's commands printed last, each line behind its second, where their threads wait, and what its kernel said last. */
  async report(): Promise<string> {
    const lines = this.#machines.map(async (machine) => {
      const threads = machine.run(wherePrograms);
      await Promise.race([threads.ended, delay(20_000)]);
      const kernel = readFileSync(join(this.#folder, `console${machine.n}`), 'utf8');
      return [`machine ${machine.n}:`, ...machine.last, 'its kernel:', ...kernel.split('\n').slice(-10)];
    });
    return (await Promise.all(lines)).flat().join('\n');
  }

  async end(): Promise<void> {
    await Promise.all(this.#machines.map((machine) => machine.losePower()));
    rmSync(this.#folder, { recursive: true });
  }
}

class Machine {
  readonly #commands = new Map<string, { hear(line: string): void; end(code: number | null): void }>();
  #count = 0;
  /** What was sent and what came back of late, each behind its second. */
  readonly last: string[] = [];

  private constructor(
    readonly n: number,
    readonly process: ChildProcess,
    readonly port: Socket,
  ) {}

  static async boot(n: number, folder: string): Promise<Machine> {
    const path = (name: string) => join(folder, name);
    for (const nic of nics) rmSync(path(`nic${nic}-${n}`), { force: true });
    const server = createServer().listen(path(`port${n}`));
    await once(server, 'listening');
    const [version] = readdirSync(join(made, 'kernel/lib/modules'));
    const child = spawn(
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
    const gone = once(child, 'exit').then(() => null);
    const connected = await Promise.race([once(server, 'connection') as Promise<[Socket]>, gone]);
    server.close();
    if (connected === null) throw new Error('qemu ended before its machine had begun');
    const machine = new Machine(n, child, connected[0]);
    await machine.#begin(gone);
    return machine;
  }

  async #begin(gone: Promise<null>): Promise<void> {
    void gone.then(() => {
      for (const command of this.#commands.values()) command.end(null);
    });
    await new Promise<void>((resolve, reject) => {
      void gone.then(() => reject(new Error(`machine ${this.n} ended before it had begun`)));
      createInterface(this.port).on('line', (line) => {
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
    const ended = new Promise<number | null>((resolve) => {
      this.#commands.set(id, {
        hear(line) {
          lines.push(line);
          for (const look of waiting) look(line);
        },
        end: resolve,
      });
    });
    this.#note(`${id} > ${command.slice(0, 160)}`);
    this.port.write(`${id} ${command}\n`);
    const prints = (pattern: RegExp) =>
      new Promise<void>((resolve, reject) => {
        const look = (line: string) => {
          if (!pattern.test(line)) return;
          waiting.delete(look);
          resolve();
        };
        waiting.add(look);
        void ended.then((code) => reject(new Error(`ended with ${code}:\n${lines.join('\n')}`)));
      });
    const hasPrinted = async (pattern: RegExp) => {
      if (!lines.some((line) => pattern.test(line))) await prints(pattern);
    };
    return { lines, prints, hasPrinted, ended };
  }

  #note(line: string): void {
    this.last.push(`${(performance.now() / 1000).toFixed(1)} ${line}`);
    if (this.last.length > 40) this.last.shift();
  }

  /** Stops its clock and all that it does, or lets it go on. */
  freeze(yes: boolean): void {
    this.process.kill(yes ? 'SIGSTOP' : 'SIGCONT');
  }

  /** Takes the power away. */
  async losePower(): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const exited = once(this.process, 'exit');
    this.process.kill('SIGKILL');
    await exited;
  }
}
