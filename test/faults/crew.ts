/** Processes that are nodes of one world after another, each on a host of its own where there are such. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { Hosts } from '../net/fabric/hosts.js';
import { end, heard, isThere } from '../processes.js';
import { transpiled } from '../tree.js';
import type { Case, Report } from './cases.js';

type Said = 'here' | 'told' | { readonly reports: readonly Report[] } | { readonly failed: unknown };

/** A process failed in what comes before the fall, which is to go well. */
export class EarlyFailure extends Error {
  constructor(thrown: unknown) {
    super(`a process failed before the fall: ${JSON.stringify(thrown)}`);
  }
}

export class Crew {
  readonly #members: ChildProcess[] = [];
  readonly #under: (process: number) => readonly string[];
  #underWay: Case | null = null;

  constructor(hosts: Hosts | null) {
    this.#under = (process) => hosts?.under(process) ?? [];
  }

  /**
   * What the ranks of each process say; undefined for one that was killed. Once all survivors were told of the fall they leave, a
   * victim that was stopped goes on, and one that was cut off, which would wait long for its world, is killed.
   */
  async run(told: Case): Promise<(readonly Report[] | undefined)[]> {
    // A case that did not come to its end: its processes would go on with it, and answer for it.
    if (this.#underWay !== null) await this.end();
    this.#underWay = told;
    const members = await Promise.all(Array.from({ length: told.processes }, (_, i) => this.#member(i)));
    const said = members.map((member) => heard<Said>(member));
    for (const member of members) member.send(told);
    const { fall } = told;
    if (fall !== null) {
      await Promise.all(said.filter((_, i) => i !== fall.process));
      for (const [i, member] of members.entries()) {
        if (i === fall.process || (await said[i]) !== 'told') continue;
        said[i] = heard<Said>(member);
        member.send('leave');
      }
      if (fall.fault === 'cut off') await end(members[fall.process]!);
      else members[fall.process]!.kill('SIGCONT');
    }
    const reports = await Promise.all(
      said.map(async (one) => {
        const what = await one;
        if (what === undefined || typeof what === 'string') return undefined;
        if ('failed' in what) throw new EarlyFailure(what.failed);
        return what.reports;
      }),
    );
    if (this.#underWay === told) this.#underWay = null;
    return reports;
  }

  /** Likewise, with processes that `heddle run` has started, which may fall as well. They meet where its environment says. */
  async runLaunched(told: Case, rendezvous: string): Promise<(readonly Report[] | undefined)[]> {
    const folder = mkdtempSync(join(tmpdir(), 'heddle-crew-'));
    const path = join(folder, 'socket');
    const server = createServer().listen(path);
    const joined: Promise<string>[] = [];
    const allJoined = new Promise<void>((resolve) => {
      server.on('connection', (socket) => {
        if (joined.push(text(socket)) === told.processes) resolve();
      });
    });
    const program = (source: string) => transpiled(`test/${source}.ts`);
    const size = ['-n', `${told.processes * told.ranksHere}`, '--nodes', `${told.processes}`];
    spawn(
      process.execPath,
      [
        ...[program('net/world/programs/cli'), 'run', ...size, '--device', 'sim', '--keep-going'],
        program('faults/programs/crew'),
      ],
      {
        stdio: ['ignore', 'inherit', 'inherit'],
        env: {
          ...process.env,
          ...{ NODE_OPTIONS: '', HEDDLE_RENDEZVOUS: rendezvous },
          ...{ HEDDLE_TEST_CASE: JSON.stringify(told), HEDDLE_TEST_SOCKET: path },
        },
      },
    );
    try {
      await allJoined;
      const said = await Promise.all(joined);
      const reports: (readonly Report[] | undefined)[] = said.map(() => undefined);
      for (const line of said.filter((line) => line !== '')) {
        const { me, ...what } = JSON.parse(line) as Extract<Said, object> & { readonly me: number };
        if ('failed' in what) throw new EarlyFailure(what.failed);
        reports[me] = what.reports;
      }
      return reports;
    } finally {
      server.close();
      rmSync(folder, { recursive: true });
    }
  }

  async end(): Promise<void> {
    await Promise.all(this.#members.map(end));
  }

  async #member(i: number): Promise<ChildProcess> {
    const there = this.#members[i];
    if (there && isThere(there)) return there;
    const program = transpiled('test/faults/programs/crew.ts');
    const [command, ...args] = [...this.#under(i), process.execPath, program, String(i)];
    const member = spawn(command!, args, {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      env: { ...process.env, NODE_OPTIONS: '' },
    });
    this.#members[i] = member;
    await heard(member);
    return member;
  }
}
