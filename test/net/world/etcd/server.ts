/** A real etcd on loopback, with its data in a temporary folder. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import type { ReadableStream } from 'node:stream/web';
import { EtcdClient, under } from '../../../../src/net/world/etcd/client.js';
import { freePort } from '../circles.js';

export class EtcdServer {
  readonly #folder = mkdtempSync(join(tmpdir(), 'heddle-etcd-'));
  #process: ChildProcess | null = null;

  private constructor(
    readonly port: number,
    readonly peerPort: number,
    readonly options: readonly string[],
  ) {}

  static async start(...options: readonly string[]): Promise<EtcdServer> {
    const server = new EtcdServer(await freePort(), await freePort(), options);
    await server.restart();
    return server;
  }

  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  get rendezvous(): string {
    return `etcd://${this.address}/heddle/tests`;
  }

  /** Starts it on the data that are there. */
  async restart(): Promise<void> {
    const peer = `http://127.0.0.1:${this.peerPort}`;
    const scheme = this.options.includes('--cert-file') ? 'https' : 'http';
    this.#process = spawn(
      'etcd',
      [
        ...['--data-dir', this.#folder, '--logger', 'zap', '--log-level', 'error', '--unsafe-no-fsync'],
        ...['--listen-client-urls', `${scheme}://${this.address}`],
        ...['--advertise-client-urls', `${scheme}://${this.address}`],
        ...['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer],
        ...['--initial-cluster', `default=${peer}`, ...this.options],
      ],
      { stdio: 'ignore', env: { PATH: process.env.PATH, ETCD_UNSUPPORTED_ARCH: process.arch } },
    );
    for (const begun = performance.now(); ; ) {
      const socket = connect(this.port, '127.0.0.1');
      const connected = await once(socket, 'connect').then(
        () => true,
        () => false,
      );
      socket.destroy();
      if (connected) break;
      const { exitCode } = this.#process;
      if (exitCode !== null || performance.now() - begun > 60_000)
        throw new Error(`etcd does not listen on port ${this.port} after 60 s, or it ended: ${exitCode}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    if (scheme === 'http') await this.ask('kv/range', { key: 'aA==' });
  }

  signal(name: NodeJS.Signals): void {
    this.#process!.kill(name);
  }

  /** Returns when all of its threads stand still, which the signal alone does not promise. */
  stop(): void {
    this.signal('SIGSTOP');
    const threads = `/proc/${this.#process!.pid}/task`;
    const stopped = (): boolean =>
      readdirSync(threads).every((thread) =>
        /\) T /.test(readFileSync(join(threads, thread, 'stat'), 'utf8')),
      );
    const until = performance.now() + 5000;
    while (!stopped()) if (performance.now() > until) throw new Error('the server does not stop');
  }

  async kill(): Promise<void> {
    const { exitCode, signalCode } = this.#process!;
    if (exitCode !== null || signalCode !== null) return;
    const ended = once(this.#process!, 'exit');
    this.signal('SIGKILL');
    await ended;
  }

  async ask<T>(path: string, body: object): Promise<T> {
    const [host, port] = ['127.0.0.1', this.port];
    const client = new EtcdClient(
      { endpoints: [{ host, port }], prefix: '', user: undefined, tls: undefined },
      10_000,
    );
    try {
      return await client.call<T>(path, body);
    } finally {
      client.close();
    }
  }

  async count(prefix: string): Promise<number> {
    const of = { ...under(prefix), count_only: true };
    return Number((await this.ask<{ readonly count?: string }>('kv/range', of)).count ?? 0);
  }

  /** Forgets all history. */
  async compact(): Promise<void> {
    const { header } = await this.ask<{ header: { revision: string } }>('kv/range', { key: 'aA==' });
    await this.ask('kv/compaction', { revision: header.revision, physical: true });
  }

  async end(): Promise<void> {
    this.signal('SIGCONT');
    await this.kill();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** What lies between ranks and a server: bytes take a while, and may be cut off. */
export class Detour {
  readonly #sockets = new Set<Socket>();
  #open = true;
  /** How many there were. */
  connections = 0;

  private constructor(readonly port: number) {}

  static async to(target: number, delayMs: number): Promise<Detour> {
    const detour = new Detour(await freePort());
    const server = createServer((from) => {
      if (!detour.#open) return void from.destroy();
      detour.connections++;
      const to = connect(target, '127.0.0.1');
      for (const [one, other] of [[from, to] as const, [to, from] as const]) {
        detour.#sockets.add(one);
        one.on('data', (bytes) => setTimeout(() => other.writable && other.write(bytes), delayMs));
        one.on('error', () => {}).on('close', () => other.destroy());
      }
    });
    server.unref();
    await once(server.listen(detour.port, '127.0.0.1'), 'listening');
    return detour;
  }

  get rendezvous(): string {
    return `etcd://127.0.0.1:${this.port}/heddle/tests`;
  }

  cut(): void {
    this.#open = false;
    for (const socket of this.#sockets) socket.destroy();
  }

  mend(): void {
    this.#open = true;
  }
}

/** etcd's own gateway behind one that changes what it answers. */
export class Gateway {
  private constructor(readonly rendezvous: string) {}

  /** `answer` has the path, what etcd answers there, and what was asked. A watch whose answer it replaces ends at once. */
  static async to(
    { address }: EtcdServer,
    answer: (path: string, body: string, asked: string) => string,
  ): Promise<Gateway> {
    const port = await freePort();
    const server = createHttpServer(async (request, response) => {
      const path = request.url!.slice('/v3/'.length);
      const asked = await text(request);
      if (path === 'watch' && answer(path, asked, asked) === '') return void response.end();
      const real = await fetch(`http://${address}${request.url}`, { method: 'POST', body: asked }).catch(
        () => null,
      );
      if (real === null) return void response.destroy();
      if (path !== 'watch') return void response.end(answer(path, await real.text(), asked));
      const stream = Readable.fromWeb(real.body as ReadableStream).on('error', () => {});
      stream.pipe(response).on('close', () => stream.destroy());
    });
    server.unref();
    await once(server.listen(port, '127.0.0.1'), 'listening');
    return new Gateway(`etcd://127.0.0.1:${port}/heddle/tests`);
  }
}
