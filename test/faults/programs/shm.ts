/** A process that uses shm, and how it ends; and, in a container of its own, several such whose ids repeat. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { TransferEngine } from '../../../src/net/fabric/index.js';

const [, program, how = ''] = process.argv;

/** Two engines, of which one writes to the other. */
async function use(): Promise<readonly TransferEngine[]> {
  const open = () => TransferEngine.open({ provider: 'shm', timeoutMs: 20_000 });
  const [from, to] = [await open(), await open()];
  await write(from, to);
  return [from, to];
}

/** By engines that did not know of each other before. */
async function write(from: TransferEngine, to: TransferEngine): Promise<void> {
  const target = to.allocate(8);
  const remote = from.remote(from.addPeer(to.address), target.descriptor);
  const source = from.allocate(8);
  from.write({ source, sourceOffset: 0, target: remote, targetOffset: 0, bytes: 8, immediate: 1 });
  await to.immediate(1).wait(1);
}

/** A process of a namespace of ids of its own, behind a shell: its id is always 2. */
const repeated = (mode: string): [string, string[]] => [
  'unshare',
  ['--pid', '--fork', '--mount-proc', 'sh', '-c', `"$0" "$1" ${mode}; exit 0`, process.execPath, program!],
];

const filesNow = () => readdirSync('/dev/shm');

const ways: Readonly<Record<string, () => Promise<void>>> = {
  async closed() {
    for (const engine of await use()) await engine.close();
  },
  async exited() {
    await use();
    process.exit(0);
  },
  async thrown() {
    await use();
    throw new Error('on purpose');
  },
  /** Handles the signal that asks it to end, goes on, and says how many of its files are left. */
  async asked() {
    const asked = once(process, 'SIGTERM');
    const engines = await use();
    process.kill(process.pid, 'SIGTERM');
    await asked;
    process.stdout.write(String(filesNow().filter((name) => name.includes(`-${process.pid}-`)).length));
    for (const engine of engines) await engine.close();
  },
  async killed() {
    await use();
    process.stdout.write(`${process.pid} `);
    process.kill(process.pid, 'SIGKILL');
  },
  /** Says when it works, and once it is told to go on whether it still does for others that find it by its name. */
  async waiting() {
    const [from, to] = await use();
    process.stdout.write('here ');
    await once(process.stdin, 'data');
    await write(to!, from!);
    process.stdout.write('and well');
    process.exit(0);
  },
  /** Starts after starts that were killed. */
  async restarts() {
    const starts = Array.from({ length: 4 }, () => spawnSync(...repeated('killed'), { encoding: 'utf8' }));
    const left = filesNow().length;
    const last = spawnSync(...repeated('closed'), { encoding: 'utf8' });
    const ids = starts.map(({ stdout }) => stdout);
    process.stdout.write(JSON.stringify({ ids, left, last: last.stderr, files: filesNow().length }));
  },
  /** One lives while others, of the same id, come and go. */
  async neighbours() {
    const living = spawn(...repeated('waiting'), { stdio: ['pipe', 'pipe', 'inherit'] });
    let said = '';
    living.stdout!.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
    await once(living.stdout!, 'data');
    for (const mode of ['killed', 'exited', 'closed']) spawnSync(...repeated(mode));
    living.stdin!.end('go on');
    await once(living, 'close');
    process.stdout.write(JSON.stringify({ said, files: filesNow().length }));
  },
};

await ways[how]!();
