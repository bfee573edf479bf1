/** The socket between a program and its session. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { stride } from '../../gpu/sim/index.js';
import type { Call } from './calls.js';
import { Process } from './process.js';
import type { SharedRoom } from './room.js';
import type { Session } from './session.js';

/** Behind the words stand ten places in code. */
const [headBytes, wordBytes] = [144, 64];

/** The calls of one connection, whose bytes come in pieces. */
async function* callsOf(socket: Socket): AsyncGenerator<Omit<Call, 'process'>> {
  let held: Buffer[] = [];
  let have = 0;
  let need = headBytes;
  for await (const piece of socket as AsyncIterable<Buffer>) {
    held.push(piece);
    have += piece.length;
    while (have >= need) {
      const all = held.length === 1 ? held[0]! : Buffer.concat(held);
      held = [all];
      need = headBytes + Number(all.readBigUInt64LE(8));
      if (have < need) break;
      const word = (i: number): number => Number(all.readBigUInt64LE(8 * i));
      yield {
        kind: word(0),
        device: word(2),
        words: [word(3), word(4), word(5), word(6), word(7)],
        stack: all.subarray(wordBytes, headBytes),
        tail: all.subarray(headBytes, need),
      };
      held = [all.subarray(need)];
      have -= need;
      need = headBytes;
    }
  }
}

function wordsOf(values: readonly number[]): Buffer {
  const words = Buffer.alloc(8 * values.length);
  for (const [i, value] of values.entries()) words.writeBigUInt64LE(BigInt(value), 8 * i);
  return words;
}

/** Serves the processes of a program. `address` goes into their environment. */
export async function serve(session: Session, room: SharedRoom) {
  // As long as names may be: versions of Node.js differ in how they fill the rest.
  const name = `heddle-${randomBytes(50).toString('hex')}`;
  const secret = randomBytes(16).toString('hex');
  const processes = new Map<number, Process>();
  let called = false;
  const sockets = new Set<Socket>();
  /** A process ends, or becomes another program, with the last of its connections. */
  const join = (socket: Socket, id: number): Process => {
    const found = processes.get(id) ?? new Process(id);
    processes.set(id, found);
    called = true;
    found.connections++;
    socket.on('close', () => {
      if (--found.connections > 0) return;
      processes.delete(id);
      found.close();
    });
    return found;
  };
  const talk = async (socket: Socket): Promise<void> => {
    let from: Process | null = null;
    for await (const call of callsOf(socket)) {
      if (from === null) {
        if (call.tail.toString() !== secret) return;
        from = join(socket, call.words[0]);
        const { descriptor, first, most } = room;
        socket.write(wordsOf([0, 0, 32, process.pid, descriptor, first, most * stride]));
        continue;
      }
      const { result, word, tail } = await session.answer({ ...call, process: from });
      socket.write(wordsOf([result, word, 8 * tail.length, ...tail]));
    }
  };
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    // A program that ends in the middle of a call is told of by its exit code.
    talk(socket)
      .catch(() => {})
      .finally(() => socket.destroy());
  });
  // Linux keeps such a name for as long as somebody listens, and no file.
  server.listen({ path: `\0${name}` });
  await once(server, 'listening');
  return {
    address: `${name}:${secret}`,
    /** Whether a process has called CUDA. */
    isCalled: (): boolean => called,
    close(): void {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}
